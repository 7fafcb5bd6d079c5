"""Claiming on PostgreSQL: what a claim rests on is locked first, so nothing of it changes while it is made."""

from collections.abc import Sequence
from uuid import UUID

from lockstitch.backends.sql import verbs
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.records import Thread


def claim(
    dialect: Dialect,
    worker_id: UUID,
    thread_id: UUID | None,
    agents: Sequence[str] | None,
    project: str | None,
    limit: int,
) -> Script[list[Thread]]:
    """First the worker, then threads: the order of `release`, with which two cannot wait in a circle."""
    yield dialect.statement("worker_hold", {"worker_id": dialect.encode_id(worker_id)})
    if thread_id is not None:
        yield dialect.statement("thread_hold", {"id": dialect.encode_id(thread_id)})
    return (yield from verbs.claim(dialect, worker_id, thread_id, agents, project, limit))
