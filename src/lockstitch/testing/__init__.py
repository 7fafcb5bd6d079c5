"""Tools for tests of agents: `Scripted` models, a `FakeClock`, and `KillPoints` that kill the process."""

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.model import FakeClock
from lockstitch.testing.faults import KillPoints

__all__ = ["FakeClock", "KillPoints", "Scripted"]
