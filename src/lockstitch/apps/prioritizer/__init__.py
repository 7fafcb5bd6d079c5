"""The prioritizer: an agent that orders tasks towards an outcome and records every step of its reasoning."""

from lockstitch.apps.prioritizer.plugin import NoActiveOutcome, Prioritizer, SessionRunning

__all__ = ["NoActiveOutcome", "Prioritizer", "SessionRunning"]
