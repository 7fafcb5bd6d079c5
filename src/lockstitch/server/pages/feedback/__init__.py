"""Feedback on runs, on the run page and on the thread page."""
