"""Feedback on threads, runs and stitches."""

from lockstitch.store.annotation.feedback import (
    FeedbackSubject,
    feedback_of_run,
    feedback_scores,
    find_feedback,
    get_feedback,
    give_feedback,
    remove_feedback,
)

__all__ = [
    "FeedbackSubject",
    "feedback_of_run",
    "feedback_scores",
    "find_feedback",
    "get_feedback",
    "give_feedback",
    "remove_feedback",
]
