"""Claiming on PostgreSQL: what a claim rests on is locked first, so nothing of it changes while it is made."""

from uuid import UUID

from lockstitch.backends.sql.claim import choosing, claim_one, taken
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Rows, Script
from lockstitch.records import Thread
from lockstitch.records.claim import Wish

SPARE = 10
"""Candidates beyond those wanted: so many may be in the hands of others without anyone coming away empty."""


def claim(dialect: Dialect, wish: Wish, thread_id: UUID | None) -> Script[list[Thread]]:
    """First the worker, then threads: the order of `release`, with which two cannot wait in a circle."""
    yield dialect.statement("worker_hold", {"worker_id": dialect.encode_id(wish.worker_id)})
    if thread_id is not None:
        return (yield from claim_one(dialect, wish, thread_id))
    statement = yield from choosing(dialect, wish, SPARE)
    if statement is None:
        return []
    rows = yield statement
    if wish.suspects:
        return [dialect.decode(Thread, row) for row in rows]
    if _all_in_others_hands(rows):
        # Some of those who chose them may be done by now, and there may be more behind.
        rows = yield statement
    return taken(dialect, wish, [row for _, *row in rows if row[0] is not None])


def _all_in_others_hands(rows: Rows) -> bool:
    candidates, first, *_ = rows[0]
    return candidates > 0 and first is None
