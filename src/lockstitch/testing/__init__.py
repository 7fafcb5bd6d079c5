"""For tests of agents: a scripted model, a clock that a test moves, and points at which a process is killed."""

from lockstitch.records import FakeClock
from lockstitch.runtime.providers.scripted import Scripted
from lockstitch.testing.faults import KillPoints

__all__ = ["FakeClock", "KillPoints", "Scripted"]
