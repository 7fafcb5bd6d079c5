"""Starting: a goal for whoever drives it, at once or at a time, perhaps as part of the caller's own transaction."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lockstitch.backend import Fields, TakesPart
from lockstitch.errors import Refused
from lockstitch.records import Json, Thread, waiting
from lockstitch.store.core import Core

Task = Json | str


async def start(store: Core, fields: Fields, at: datetime | None, connection: object | None) -> Thread:
    """Make a thread that waits for a worker, or first for its time to come."""
    given = {**fields, **(_waiting_until(at, store.clock.now()) if at is not None else {})}
    if connection is None:
        return await store.create(**given)
    if given.get("parent_id") is not None:
        raise Refused("A child is made by its parent, not in a transaction of yours; leave parent_id out.")
    if not isinstance(store.backend, TakesPart):
        raise Refused("Only a store on PostgreSQL can take part in your transaction; leave `connection` out.")
    thread = store.new_thread(**given)
    await store.backend.insert_within(connection, thread)
    return thread


def numbered(tasks: Sequence[Task]) -> list[Json]:
    """A todo list as it is kept: each with an id, a description and a status."""
    return [
        {"id": str(number), "status": "pending", **(task if isinstance(task, Mapping) else {"description": task})}
        for number, task in enumerate(tasks, start=1)
    ]


def _waiting_until(at: datetime, now: datetime) -> dict[str, Any]:
    if at.tzinfo is None:
        raise Refused("`at` must say its time zone, for example datetime.now(UTC) + timedelta(hours=1).")
    at = at.astimezone(UTC)
    if at <= now:
        return {}
    return {"status": "waiting", "waiting_for": [waiting("timer", now, until=at)], "wake_at": at}
