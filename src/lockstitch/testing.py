"""For tests of agents: a scripted model, a clock that moves when told to, and places where a process may be killed."""

from lockstitch.records import FakeClock
from lockstitch.runtime.points import reach
from lockstitch.runtime.providers.scripted import Scripted

__all__ = ["FakeClock", "Scripted", "reach"]
