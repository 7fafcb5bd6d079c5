"""For tests of agents: a scripted model, a clock that a test moves, and points at which a process is killed."""

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.model import FakeClock
from lockstitch.testing.faults import KillPoints

__all__ = ["FakeClock", "KillPoints", "Scripted"]
