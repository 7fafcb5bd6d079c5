"""The extension; retention of reasoning; what a purge removes.

"Deleted" is both: a trace that has expired is shown to nobody from that moment on, and its text is removed by the next
`purge` or after the next session begins. Removed is what the model said and thought, what tools were given and what
they gave. That there were these calls, with their times, tokens and cost, stays in an archive; the thread, its run, the
plan and the figures stay as they are, so no other lens loses a sum. A thread whose own `expires_at` is later keeps all
of its log until then.
"""

from datetime import datetime
from typing import Any, Final

from lockstitch import Conflict, NotFound, Refused, Stitch, Store
from lockstitch.apps.prioritizer.records import KINDS, Document, Outcome, Session, TaskRelationship
from lockstitch.ext import Extension, Json, Where, blocks

_AT_ONCE: Final = 50
GONE: Final = "[expired]"
"""What stands where something was said."""


async def expire(store: Store, extension: Extension) -> int:
    """Remove the reasoning of sessions of this project that have expired, some at a time; how many.

    Where nothing has expired this is one look at an index.
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
    """Remove the reasoning of a session, unless somebody goes on with it or it is gone; whether it was removed."""
    try:
        await store.redact(await store.thread(session.thread_id), silenced)
    except (Conflict, NotFound):
        return False
    except Refused:
        # The database refuses what is of a thread that has just gone.
        if await store.threads_by_id([session.thread_id]):
            raise
        return False
    # Nothing else of the session is written: it may have been put aside, or replaced, meanwhile.
    await store.execute(extension, "session_forgotten", thread=session.thread_id)
    return True


def silenced(stitch: Stitch) -> Stitch:
    """A stitch without what was said in it: which call it was stays, and how long it took."""
    changes: dict[str, Any] = {}
    if stitch.message is not None and stitch.type != "input":
        changes["message"] = _silenced(stitch.message)
    if "message" in stitch.data:
        changes["data"] = {**stitch.data, "message": GONE}
    return stitch.changed(**changes) if changes else stitch


def _silenced(message: Json) -> Json:
    """A message, or the bare block of a tool's result, with every text of it gone."""
    content: Any = message.get("content")
    if isinstance(content, str) or message.get("type") == "tool_result":
        return {**message, "content": GONE}
    calls = [block for block in blocks(message) if block.get("type") == "tool_use"]
    remaining: list[Json] = [
        {"type": "tool_use", "id": call.get("id"), "name": call.get("name"), "input": {}} for call in calls
    ]
    return {**message, "content": remaining or GONE}


async def _purging(store: Store, _before: datetime | None, user_id: str | None) -> None:
    """Remove reasoning that has expired, or whatever is a user's."""
    if user_id is None:
        while await expire(store, EXTENSION):
            pass
        return
    theirs = (Where("project", "=", store.project), Where("user_id", "=", user_id))
    for kind in (TaskRelationship, Document, Outcome):
        await store.table(kind).delete(*theirs)


EXTENSION: Final = Extension("prioritizer", "lockstitch.apps.prioritizer.sql", kinds=KINDS, on_purge=_purging)
