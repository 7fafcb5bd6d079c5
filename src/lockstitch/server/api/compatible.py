"""The routes of the three-table document, for front ends that were written for it.

Streams end with `data: [DONE]` and have no ids; what they are in /api is the same thread, and can be followed there.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from lockstitch.errors import Refused
from lockstitch.records import Json, Thread, format_time
from lockstitch.runtime import Agent, Event, submit_results
from lockstitch.runtime.formatters import sse
from lockstitch.server.access import Caller, Reader, Writer
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact
from lockstitch.server.api.events import EVENT_STREAM, STREAM
from lockstitch.server.api.parameters import Body, Limit, Name, Offset, Plain, Ref
from lockstitch.server.api.replies import ToolResult
from lockstitch.server.following import Follower
from lockstitch.server.guard import mention
from lockstitch.server.retelling import Retelling

router = APIRouter(prefix="/agent", tags=["compatible"], default_response_class=Exact)


class Asked(Body):
    """What an agent is to do. Its name may be left out where the app has one agent."""

    user_prompt: str | list[Json]
    agent_uuid: Annotated[Plain, Field(min_length=1, max_length=255)] | None = None
    agent: Name | None = None
    user_id: Annotated[Plain, Field(max_length=255)] | None = None


class Executed(Body):
    """What a browser has executed."""

    agent_uuid: Annotated[Plain, Field(min_length=1, max_length=255)]
    tool_results: list[ToolResult]


@router.post("/run", responses=STREAM, response_class=StreamingResponse)
async def run(caller: Writer, asked: Asked) -> StreamingResponse:
    """Run an agent, and stream what it does in its own format until it has answered or waits for the browser."""
    agent = _agent(caller, asked.agent)
    begun = await agent.run(
        asked.user_prompt, store=caller.store, thread=asked.agent_uuid, user_id=asked.user_id, detach=True
    )
    mention(thread=begun.thread_id, run=begun.run_id)
    first = (await caller.store.run(begun.run_id)).first_position
    return _streamed(caller, agent, await caller.store.thread(begun.thread_id), first - 1)


@router.post("/tool_results", responses=STREAM, response_class=StreamingResponse)
async def tool_results(caller: Writer, executed: Executed) -> StreamingResponse:
    """Hand in what the browser has executed, and stream how the run goes on."""
    head = await caller.store.thread(executed.agent_uuid)
    mention(thread=head.id)
    agent = caller.app.agent(head.agent)
    await submit_results(caller.store, head, [one.model_dump() for one in executed.tool_results])
    return _streamed(caller, agent, head, head.position)


@router.get("/sessions", response_model=shapes.Sessions)
async def sessions(caller: Reader, limit: Limit = 20, offset: Offset = 0) -> Exact:
    """The threads as the document's sessions, the most recently active first."""
    found = await caller.store.threads(limit=limit + 1, offset=offset)
    return Exact({"sessions": [_session(head) for head in found[:limit]], "has_more": len(found) > limit})


@router.get("/{ref}/conversations", response_model=shapes.Conversations)
async def conversations(
    caller: Reader,
    ref: Ref,
    before: Annotated[int | None, Query(ge=0, lt=2**53, description="A sequence_number: only older ones.")] = None,
    limit: Limit = 20,
) -> Exact:
    """Finished turns as the document's conversations, the newest first."""
    page = await caller.store.history(await caller.store.thread(ref), limit=limit, before=before)
    return Exact({"conversations": [turn.as_json() for turn in page.turns], "has_more": page.more})


def _agent(caller: Caller, name: str | None) -> Agent:
    agents = caller.app.agents
    if name is None and len(agents) != 1:
        raise Refused(f"Say which agent: {', '.join(sorted(agents))}.")
    return caller.app.agent(name or next(iter(agents)))


def _streamed(caller: Caller, agent: Agent, head: Thread, after: int) -> StreamingResponse:
    return StreamingResponse(_frames(caller, agent, head, after), media_type=EVENT_STREAM)


async def _frames(caller: Caller, agent: Agent, head: Thread, after: int) -> AsyncGenerator[str]:
    follower = Follower(caller.store, caller.house.news, head.id, after)
    async with aclosing(follower.follow("idle")) as told:
        events = _told(Retelling(caller.store, head).events(told))
        async for frame in sse.stream(events, agent.formatter()):
            yield frame


async def _told(events: AsyncGenerator[Event | None]) -> AsyncGenerator[Event]:
    async for event in events:
        if event is not None:
            yield event


def _session(head: Thread) -> Json:
    return {
        "agent_uuid": str(head.id),
        "key": head.key,
        "title": head.title,
        "agent": head.agent,
        "user_id": head.user_id,
        "status": head.status,
        "awaiting_frontend_tools": head.waits_for("frontend_tools") is not None,
        "pending_frontend_tools": [one for one in head.waiting_for if one.get("kind") == "frontend_tools"],
        "total_runs": head.total_runs,
        "extras": head.extras,
        "created_at": format_time(head.created_at),
        "updated_at": format_time(head.updated_at),
        "last_run_at": format_time(head.last_run_at) if head.last_run_at else None,
    }
