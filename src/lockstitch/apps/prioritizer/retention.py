"""The store extension, and the retention of reasoning.

An expired trace is not shown. The next `purge`, or the start of the next session, removes its text: the thoughts and
answers of the model, and the inputs and outputs of tools. An archive keeps the calls with their times, tokens and cost.
The thread, its run, the plan and the metrics stay unchanged, so the sums of other lenses stay correct. A thread with a
later `expires_at` keeps its log until then.
"""

from datetime import datetime
from typing import Any, Final

from lockstitch import Conflict, NotFound, Refused, Stitch, Store
from lockstitch.apps.prioritizer.records import KINDS, Document, Outcome, Session, TaskRelationship
from lockstitch.ext import Extension, Json, Where, blocks

_AT_ONCE: Final = 50
EXPIRED: Final = "[expired]"
"""Replacement for removed text."""


async def expire(store: Store, extension: Extension) -> int:
    """Remove the reasoning of some expired sessions of this project. Return the number of sessions.

    Without expired sessions this is one index lookup.
    """
    sessions: list[Session] = await store.query(
        extension,
        "sessions_expired",
        record_type=Session,
        project=store.project,
        moment=store.clock.now(),
        at_most=_AT_ONCE,
    )
    return sum([await forget(store, extension, session) for session in sessions])


async def forget(store: Store, extension: Extension, session: Session) -> bool:
    """Remove the reasoning of a session. Return False if the thread is in use or deleted."""
    try:
        await store.redact(await store.thread(session.thread_id), redacted)
    except (Conflict, NotFound):
        return False
    except Refused:
        # The database rejects rows of a thread that was deleted since.
        if await store.threads_by_id([session.thread_id]):
            raise
        return False
    # Write one column only, because another caller may have changed the session since.
    await store.execute(extension, "session_forgotten", thread=session.thread_id)
    return True


def redacted(stitch: Stitch) -> Stitch:
    """Return a stitch without its text. The call and its duration stay."""
    changes: dict[str, Any] = {}
    if stitch.message is not None and stitch.type != "input":
        changes["message"] = _redacted(stitch.message)
    texts = [name for name in ("message", "prompt", "text") if name in stitch.data]
    if texts:
        changes["data"] = {**stitch.data, **dict.fromkeys(texts, EXPIRED)}
    return stitch.changed(**changes) if changes else stitch


def _redacted(message: Json) -> Json:
    """Return a message or a tool result without its text."""
    content: Any = message.get("content")
    if isinstance(content, str) or message.get("type") == "tool_result":
        return {**message, "content": EXPIRED}
    calls = [block for block in blocks(message) if block.get("type") == "tool_use"]
    remaining: list[Json] = [
        {"type": "tool_use", "id": call.get("id"), "name": call.get("name"), "input": {}} for call in calls
    ]
    return {**message, "content": remaining or EXPIRED}


async def _purge(store: Store, _before: datetime | None, user_id: str | None) -> None:
    """Remove expired reasoning, or all records of a user."""
    if user_id is None:
        while await expire(store, EXTENSION):
            pass
        return
    owned = (Where("project", "=", store.project), Where("user_id", "=", user_id))
    for kind in (TaskRelationship, Document, Outcome):
        await store.table(kind).delete(*owned)


EXTENSION: Final = Extension("prioritizer", "lockstitch.apps.prioritizer.sql", kinds=KINDS, on_purge=_purge)
