"""The tools of the MCP server that change threads: replies to waiting calls, forks and retries."""

from typing import Annotated

from pydantic import Field

from lockstitch.engine import replies
from lockstitch.integrations.mcp.answers import clipped, compact
from lockstitch.integrations.mcp.rows import TEXT
from lockstitch.integrations.mcp.tools import McpCaller, ThreadName
from lockstitch.model import Json, Thread
from lockstitch.store.references import find_thread

CallName = Annotated[str, Field(description="`call` of the reply in waiting.")]


async def approve(caller: McpCaller, thread: ThreadName, call: CallName) -> Json:
    """Approve a call that waits. A worker executes it."""
    head = await find_thread(caller.store, thread)
    await replies.approve(caller.store, head, call, by=caller.actor)
    return await _state(caller, head)


async def deny(caller: McpCaller, thread: ThreadName, call: CallName, reason: str = "") -> Json:
    """Deny a call that waits. The agent gets the reason."""
    head = await find_thread(caller.store, thread)
    await replies.deny(caller.store, head, call, reason=reason or None, by=caller.actor)
    return await _state(caller, head)


async def answer(caller: McpCaller, thread: ThreadName, text: str, call: CallName = "") -> Json:
    """Answer the question of a thread, the first one by default."""
    head = await find_thread(caller.store, thread)
    await replies.answer(caller.store, head, text, call_id=call or None, by=caller.actor)
    return await _state(caller, head)


async def fork(
    caller: McpCaller,
    thread: ThreadName,
    at: Annotated[int, Field(ge=0, description="Last position of the copy. 0: the end.")] = 0,
    before_turn: Annotated[int, Field(ge=0, description="Instead of at: the copy ends before this turn.")] = 0,
    key: Annotated[str, Field(description="Key of the fork.")] = "",
) -> Json:
    """Create a thread that continues from a place of another thread, which does not change."""
    head = await find_thread(caller.store, thread)
    created = await caller.store.fork(head, at=at or None, before_turn=before_turn or None, key=key or None)
    return await _state(caller, created)


async def retry(caller: McpCaller, thread: ThreadName) -> Json:
    """Retry the last run of a thread, if it failed or was cancelled. A worker executes it."""
    head = await find_thread(caller.store, thread)
    await caller.agent_of(head.agent).retry(head, store=caller.store, detach=True)
    return await _state(caller, head)


async def _state(caller: McpCaller, head: Thread) -> Json:
    now = await caller.store.thread(head)
    return compact(
        thread=str(now.id), key=now.key, title=clipped(now.title or "", TEXT), status=now.status, position=now.position
    )
