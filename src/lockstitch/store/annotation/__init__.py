"""Feedback on threads, runs and stitches, and the queue of runs without it."""

from lockstitch.store.annotation.feedback import (
    FeedbackSubject,
    feedback_of_run,
    feedback_scores,
    find_feedback,
    get_feedback,
    give_feedback,
    remove_feedback,
)
from lockstitch.store.annotation.queue import RunsToAnnotate, place_of, runs_to_annotate

__all__ = [
    "FeedbackSubject",
    "RunsToAnnotate",
    "feedback_of_run",
    "feedback_scores",
    "find_feedback",
    "get_feedback",
    "give_feedback",
    "place_of",
    "remove_feedback",
    "runs_to_annotate",
]
