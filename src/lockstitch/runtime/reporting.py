"""Reporting: how a child tells its parent that it has ended, in the commit of its end.

The summary is short and made without a model: what `complete_thread` was given, or else the last answer, cut.
"""

from typing import Any, Final
from uuid import UUID

from lockstitch.records import Entry, Json, Letter, Thread, as_id
from lockstitch.records.clock import Clock
from lockstitch.records.message import user

SUMMARY: Final = 2_000
"""Characters of a summary."""


def result(status: str, summary: str | None, error: str | None, *, output: Any = None, data: Any = None) -> Json:
    """What a thread ends with. `data` is what it was completed with, `output` its structured answer."""
    told: Json = {"status": status, "summary": summary, "error": error}
    if output is not None:
        told["output"] = output
    if data is not None:
        told["data"] = data
    return told


def report(head: Thread, ended: Json, clock: Clock) -> list[Letter]:
    """The letter to the parent of a thread that ends so; none for a root. A child reports once, however it ends."""
    if head.parent_id is None:
        return []
    now = clock.now()
    summary = str(ended.get("summary") or ended.get("error") or "")[:SUMMARY]
    data: Json = {"summary": summary}
    for name in ("data", "output"):
        if ended.get(name) is not None:
            data[name] = ended[name]
    entry = Entry(
        type="thread_result",
        run_id=_run_that_asked(head),
        child_id=head.id,
        name=head.agent,
        status=str(ended["status"]),
        message=user([{"type": "text", "text": told(head, str(ended["status"]), summary)}]),
        data=data,
        at=now,
    )
    return [Letter(thread_id=head.parent_id, sender=str(head.id), kind="children", entry=entry.as_json(), at=now)]


def told(head: Thread, status: str, summary: str) -> str:
    """A thread's end as its parent's model reads it."""
    return f"[thread_result thread={head.id} status={status}] goal: {head.goal}\n summary: {summary}"


def _run_that_asked(head: Thread) -> UUID | None:
    asked: Any = head.state.get("parent_run")
    return as_id(asked) if isinstance(asked, str) else None
