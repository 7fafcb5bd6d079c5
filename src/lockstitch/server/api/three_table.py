"""The routes of the three-table document, for frontends that use them.

Streams end with `data: [DONE]` and have no ids. The same thread is also available in /api.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from lockstitch.agents import Agent, Event, Result, submit_results
from lockstitch.agents.formatters import formats
from lockstitch.agents.formatters.formatter import Formatter
from lockstitch.engine.replay import EventReplay
from lockstitch.engine.result import result_enqueued, run_for
from lockstitch.engine.session.start import as_message
from lockstitch.errors import Refused
from lockstitch.model import FrontendToolWait, Json, Thread, format_time
from lockstitch.model.context import frontend_calls
from lockstitch.server.api import responses
from lockstitch.server.api.events import EVENT_STREAM, STREAM
from lockstitch.server.api.messages import one_message_id
from lockstitch.server.api.schemas import (
    Body,
    ExactJSON,
    IdempotencyKey,
    Limit,
    MessageId,
    Name,
    Offset,
    TextParam,
    ThreadRefParam,
)
from lockstitch.server.api.thread_actions import ToolResult
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.streams.thread import LIVELY, ThreadStream, is_idle
from lockstitch.store import Store

router = APIRouter(prefix="/agent", tags=["compatible"], default_response_class=ExactJSON)


class RunRequest(Body):
    """A message for an agent. The name is optional if the app has one agent."""

    user_prompt: str | list[Json]
    agent_uuid: Annotated[TextParam, Field(min_length=1, max_length=255)] | None = None
    agent: Name | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None
    message_id: MessageId | None = None


class Executed(Body):
    """Results of frontend tools."""

    agent_uuid: Annotated[TextParam, Field(min_length=1, max_length=255)]
    tool_results: list[ToolResult]


@router.post("/run", responses=STREAM, response_class=StreamingResponse)
async def run(caller: Writer, body: RunRequest, idempotency_key: IdempotencyKey = None) -> StreamingResponse:
    """Run an agent and stream its events in its own format until the run ends or waits for the frontend.

    If another run of the thread is open, the message is queued, and the stream starts with its own run. If the thread
    has accepted `message_id` (or the header Idempotency-Key) before, the stream shows the run of the first message.
    """
    agent = _agent(caller, body.agent)
    formatter = await agent.formatter(caller.store, body.agent_uuid)
    message = await caller.store.enqueue(
        agent.name,
        as_message(body.user_prompt),
        thread=body.agent_uuid,
        user_id=body.user_id,
        message_id=one_message_id(body.message_id, idempotency_key),
    )
    result = await result_enqueued(caller.store, message)
    add_log_fields(thread=result.thread_id, run=result.run_id)
    return _streamed(caller, formatter, await caller.store.thread(result.thread_id), begun=result)


@router.post("/tool_results", responses=STREAM, response_class=StreamingResponse)
async def tool_results(caller: Writer, executed: Executed) -> StreamingResponse:
    """Submit results of frontend tools and stream the rest of the run."""
    head = await caller.store.thread(executed.agent_uuid)
    add_log_fields(thread=head.id)
    formatter = await caller.app.agent(head.agent).formatter(caller.store, head)
    await submit_results(caller.store, head, [tool_result.model_dump() for tool_result in executed.tool_results])
    return _streamed(caller, formatter, head)


@router.get("/sessions", response_model=responses.Sessions)
async def sessions(caller: Reader, limit: Limit = 20, offset: Offset = 0) -> ExactJSON:
    """List threads as sessions, most recently active first."""
    threads = await caller.store.threads(limit=limit + 1, offset=offset)
    shown = [await _session(caller.store, head) for head in threads[:limit]]
    return ExactJSON({"sessions": shown, "has_more": len(threads) > limit})


@router.get("/{ref}/conversations", response_model=responses.Conversations)
async def conversations(
    caller: Reader,
    ref: ThreadRefParam,
    before: Annotated[int | None, Query(ge=0, lt=2**53, description="A sequence_number: only older turns.")] = None,
    limit: Limit = 20,
) -> ExactJSON:
    """List finished turns as conversations, newest first."""
    page = await caller.store.history(await caller.store.thread(ref), limit=limit, before=before)
    return ExactJSON({"conversations": [turn.as_json() for turn in page.turns], "has_more": page.has_more})


def _agent(caller: Caller, name: str | None) -> Agent:
    agents = caller.app.agents
    if name is None and len(agents) != 1:
        raise Refused(f"Choose an agent: {', '.join(sorted(agents))}.")
    return caller.app.agent(name or next(iter(agents)))


def _streamed(caller: Caller, formatter: Formatter, head: Thread, begun: Result | None = None) -> StreamingResponse:
    return StreamingResponse(_frames(caller, formatter, head, begun), media_type=EVENT_STREAM)


async def _frames(caller: Caller, formatter: Formatter, head: Thread, result: Result | None) -> AsyncGenerator[str]:
    after = head.position if result is None else await _before(caller, result)
    follower = ThreadStream(caller.store, caller.state.changes, head.id, after)
    async with aclosing(follower.events("idle")) as stream_items:
        events = _without_none(EventReplay(caller.store, head).events(stream_items))
        async for frame in formats.stream(events, formatter):
            yield frame


async def _before(caller: Caller, result: Result) -> int:
    """Return the position before the run of a message, once the run starts.

    If the message is queued behind a run that waits for a person, return the position before that run.
    """
    store, news = caller.store, caller.state.changes
    with news.subscribe(result.thread_id) as reader:
        while True:
            head = await store.thread(result.thread_id)
            run = await run_for(store, result.run_id)
            if run.status == "pending" and is_idle(head):
                run = await store.execution.open_run(head) or run
            if run.status != "pending" or is_idle(head) or news.leaving:
                return run.first_position - 1
            await reader.wait(LIVELY)


async def _without_none(events: AsyncGenerator[Event | None]) -> AsyncGenerator[Event]:
    async for event in events:
        if event is not None:
            yield event


async def _session(store: Store, head: Thread) -> Json:
    pending: list[Json] = []
    if any(isinstance(wait, FrontendToolWait) for wait in head.waits):
        pending = frontend_calls(await store.execution.context_stitches(head), head.waits)
    return {
        "agent_uuid": str(head.id),
        "key": head.key,
        "title": head.title,
        "agent": head.agent,
        "user_id": head.user_id,
        "status": head.status,
        "awaiting_frontend_tools": bool(pending),
        "pending_frontend_tools": pending,
        "total_runs": head.total_runs,
        "extras": head.extras,
        "created_at": format_time(head.created_at),
        "updated_at": format_time(head.updated_at),
        "last_run_at": format_time(head.last_run_at) if head.last_run_at else None,
    }
