"""Commits that only make threads: nobody has seen them, so nothing is compared, and each row is written once."""

from typing import NamedTuple

from lockstitch.backend import Change, Commit, Receipt
from lockstitch.backends.sql.change import head_fields
from lockstitch.records import Thread


class Fresh(NamedTuple):
    """A new thread as its first change leaves it, and that change."""

    head: Thread
    change: Change

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.head.position, self.head.delivered, self.head.cancel_requested)


def fresh(commit: Commit) -> list[Fresh] | None:
    """The new threads of a commit with their changes, if it is made of nothing else."""
    if not commit.threads or len(commit.threads) != len(commit.steps) or commit.notices or not commit.plain:
        return None
    new = {thread.id: thread for thread in commit.threads}
    found: list[Fresh] = []
    for step in commit.steps:
        thread = new.pop(step.thread_id, None)
        if not isinstance(step, Change) or thread is None or not _simple(thread, step):
            return None
        fields = {**head_fields(step), "position": step.position + len(step.stitches)}
        found.append(Fresh(thread.changed(**fields), step))
    return found


def _simple(thread: Thread, change: Change) -> bool:
    """Whether a change fits to its thread, and does nothing but append; the ordinary way knows the rest."""
    if change.runs or change.taken or change.spawned or change.uses or change.replaced:
        return False
    seen = (change.fence, change.position, change.worker_id)
    return seen == (thread.fence, thread.position, thread.worker_id) and change.delivered in (None, thread.delivered)
