"""Forking: a new root that goes on from any point of another thread."""

from typing import Any
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.records import Entry, Json, Message, Stitch, Thread, context, open_calls, tool_result
from lockstitch.records.message import tool_uses, user
from lockstitch.store.core import Core
from lockstitch.store.draft import Draft

NOT_CARRIED_OVER = "This call was not carried over into the fork; it has no result here."


async def fork(core: Core, head: Thread, at: int | None, fields: dict[str, Any]) -> Thread:
    """A new thread whose context is that of `head` at a position. Its fork stitch holds it once.

    Calls that were open there are answered with an error, so that the fork's context is valid.
    """
    position = head.position if at is None else at
    if not 1 <= position <= head.position:
        raise Refused(f"Thread {head.id} has positions 1 to {head.position}; there is no {position} to fork at.")
    log = await core.desk.context_stitches(head, until=position)
    origin: Json = {"thread_id": str(head.id), "position": position}
    settings = {name: value for name, value in head.settings.items() if name != "texts"}
    given: dict[str, Any] = {
        "user_id": head.user_id,
        "agent": head.agent,
        "version": head.version,
        "extras": head.extras,
        "settings": settings,
        **fields,
    }
    thread = core.new_thread(**given, state={"forked_from": origin})
    entry = Entry(type="fork", data={"forked_from": origin, "messages": _messages(log)})
    await core.commit([Draft(thread, [entry])], threads=[thread])
    return await core.thread(thread)


def _messages(log: list[Stitch], lane: UUID | None = None) -> list[Message]:
    """The context, with every open call answered."""
    messages = context(log, lane)
    open_ = {(response.position, str(call.get("id"))) for response, call in open_calls(log, lane)}
    if not open_:
        return messages
    response = max((one for one, _ in open_calls(log, lane)), key=lambda one: one.position)
    results = {
        stitch.call_index: stitch.message
        for stitch in log
        if stitch.type == "tool_call" and stitch.reply_to == response.position
    }
    answers = [
        results.get(index) or tool_result(str(call.get("id")), NOT_CARRIED_OVER, is_error=True)
        for index, call in enumerate(tool_uses(response.message))
    ]
    return [*messages, user(answers)]
