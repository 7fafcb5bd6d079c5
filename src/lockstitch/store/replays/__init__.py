"""Replays of recorded threads and runs: how they start, and their report."""

from lockstitch.store.replays.report import DIVERGED, Divergence, ReplayedTurn, ReplayReport, report
from lockstitch.store.replays.start import (
    REPLAYED_RUN,
    ReplayPlan,
    plan_of,
    recorded_source,
    replayed_run,
    runs_of_turn,
    start,
    turns_of,
)

__all__ = [
    "DIVERGED",
    "REPLAYED_RUN",
    "Divergence",
    "ReplayPlan",
    "ReplayReport",
    "ReplayedTurn",
    "plan_of",
    "recorded_source",
    "replayed_run",
    "report",
    "runs_of_turn",
    "start",
    "turns_of",
]
