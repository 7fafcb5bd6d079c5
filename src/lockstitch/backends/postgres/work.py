"""Which writes make something ready to be claimed, as far as their writer can tell without looking."""

from collections.abc import Sequence
from datetime import datetime

from lockstitch.backend import Change, Commit, Edit, Receipt
from lockstitch.records import Letter, Thread


def makes_work(commit: Commit, receipts: Sequence[Receipt], now: datetime) -> bool:
    """Whether a commit may have made a thread ready. It is told in vain rather than not at all."""
    made = any(is_ready(thread, now) for thread in commit.threads)
    return made or any(_wakes(step, receipt, now) for step, receipt in zip(commit.steps, receipts, strict=True))


def is_ready(thread: Thread, now: datetime) -> bool:
    """Whether a thread as it was written is there to be claimed."""
    waits = thread.status in ("pending", "waiting") and not thread.held
    return waits and _has_come(thread.wake_at, now)


def _wakes(step: Change | Letter | Edit, receipt: Receipt, now: datetime) -> bool:
    if isinstance(step, Letter):
        return receipt.woken
    if isinstance(step, Edit):
        return _has_come(step.fields.get("wake_at"), now)
    # One that goes to wait for a moment that has come is ready too.
    return step.head.get("status") == "pending" or _has_come(step.head.get("wake_at"), now)


def _has_come(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now
