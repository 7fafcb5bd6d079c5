"""A report: how a parent is told that a child has ended."""

from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.records.ids import as_id
from lockstitch.records.letter import Letter
from lockstitch.records.message import user
from lockstitch.records.record import Json
from lockstitch.records.stitch import Entry
from lockstitch.records.thread import Thread


def report(
    child: Thread,
    parent_id: UUID,
    status: str,
    summary: str,
    now: datetime,
    **data: Any,
) -> Letter:
    """The letter to the parent. Its sender is the child alone, so that a child reports once, however it ends."""
    said = f"[thread_result thread={child.id} status={status}] goal: {child.goal}\n summary: {summary}"
    told: Json = {"summary": summary, **{name: value for name, value in data.items() if value is not None}}
    entry = Entry(
        type="thread_result",
        run_id=_named(child, "parent_run"),
        lane=lane_of(child),
        child_id=child.id,
        name=child.agent,
        status=status,
        message=user([{"type": "text", "text": said}]),
        data=told,
        at=now,
    )
    return Letter(thread_id=parent_id, sender=str(child.id), kind="children", entry=entry.as_json(), at=now)


def lane_of(child: Thread) -> UUID | None:
    """The lane of its parent that a child was made in, where its report goes: a member's, or the thread's own."""
    return _named(child, "parent_lane")


def _named(child: Thread, what: str) -> UUID | None:
    name = child.state.get(what)
    return as_id(name) if isinstance(name, str) else None
