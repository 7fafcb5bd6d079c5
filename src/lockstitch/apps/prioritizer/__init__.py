"""The prioritiser: an agent that orders tasks towards an outcome, with every step of its reasoning on record."""

from lockstitch.apps.prioritizer.plugin import NoActiveOutcome, Prioritizer, SessionRunning

__all__ = ["NoActiveOutcome", "Prioritizer", "SessionRunning"]
