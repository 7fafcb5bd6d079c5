"""The routes of the three-table document, for frontends that use them.

Streams end with `data: [DONE]` and have no ids. The same thread is also available in /api.
"""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import StreamingResponse

from lockstitch.agents import Agent, submit_results
from lockstitch.engine.result import result_enqueued
from lockstitch.engine.session.start import as_message
from lockstitch.errors import Refused
from lockstitch.model import FrontendToolWait, Json, Thread, format_time
from lockstitch.model.context import frontend_calls
from lockstitch.server.api import responses
from lockstitch.server.api.events import EVENT_STREAM, STREAM
from lockstitch.server.api.formatted import frames
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
from lockstitch.server.routing import LazyRouter
from lockstitch.store import Store

router = LazyRouter(prefix="/agent", tags=["compatible"], default_response_class=ExactJSON)


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
    head = await caller.store.thread(result.thread_id)
    return StreamingResponse(frames(caller, formatter, head, result), media_type=EVENT_STREAM)


@router.post("/tool_results", responses=STREAM, response_class=StreamingResponse)
async def tool_results(caller: Writer, executed: Executed) -> StreamingResponse:
    """Submit results of frontend tools and stream the rest of the run."""
    head = await caller.store.thread(executed.agent_uuid)
    add_log_fields(thread=head.id)
    formatter = await caller.app.agent(head.agent).formatter(caller.store, head)
    await submit_results(caller.store, head, [tool_result.model_dump() for tool_result in executed.tool_results])
    return StreamingResponse(frames(caller, formatter, head, head.position), media_type=EVENT_STREAM)


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
