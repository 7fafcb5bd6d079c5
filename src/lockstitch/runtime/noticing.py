"""Noticing: what people outside are told of. Made in the commit that it tells of, told afterwards (see `telling`)."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from lockstitch.records import Json, Notice
from lockstitch.runtime.action import Finish
from lockstitch.runtime.journal import Journal
from lockstitch.runtime.stage import Stage

PEOPLE: Final = frozenset({"approval", "doubt", "frontend_tools", "input"})
"""The kinds of waiting that only somebody outside can end."""


def notices_of_wait(stage: Stage, waits: Sequence[Json]) -> list[Notice]:
    """Who is to be told that a thread begins to wait for somebody."""
    asked = [one for one in waits if one.get("kind") in PEOPLE]
    if not asked:
        return []
    return notices(stage.journal, stage.hooks, "waiting", {"waiting_for": asked})


def notices_of_end(stage: Stage, action: Finish) -> list[Notice]:
    """Who is to be told that a run has failed."""
    if action.status != "failed":
        return []
    return notices(stage.journal, stage.hooks, "failed", {"error": action.error})


def notices(
    journal: Journal, hooks: Sequence[str], event: Literal["failed", "waiting"], more: dict[str, Any]
) -> list[Notice]:
    """A notice for each of the hooks."""
    head, now = journal.head, journal.clock.now()
    body: Json = {
        "event": event,
        "thread_id": str(head.id),
        "key": head.key,
        "project": head.project,
        "run_id": str(journal.run.id) if journal.run is not None else None,
        "agent": head.agent,
        "goal": head.goal,
        "title": head.title,
        **more,
    }
    return [Notice(thread_id=head.id, hook=hook, event=event, body=body, due_at=now, at=now) for hook in hooks]
