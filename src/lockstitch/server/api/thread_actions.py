"""Replies to threads, and cancel, retry and resume of runs.

A reply needs no agent code. A worker that has the agent continues the thread.
"""

from typing import Annotated
from uuid import UUID

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from lockstitch.agents import answer, approve, cancel, deny, settle, submit_results
from lockstitch.engine.result import result_enqueued
from lockstitch.engine.session.start import as_message
from lockstitch.model import Json, Thread
from lockstitch.model.delivery import message_entry
from lockstitch.server.api import responses
from lockstitch.server.api.messages import WAITED, one_message_id, position_before, stream_run, wait_for_run
from lockstitch.server.api.schemas import Body, ExactJSON, IdempotencyKey, MessageId, TextParam, ThreadRefParam
from lockstitch.server.auth import Caller, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.server.streams.thread import status_of
from lockstitch.store.conversations import deliver_message

router = LazyRouter(prefix="/api/threads/{ref}", tags=["replies"], default_response_class=ExactJSON)

CallId = Annotated[TextParam, Field(min_length=1, max_length=255)]
"""The id or the key of a waiting call, as in `waiting_for`. Ids can repeat within a thread, keys do not."""


class Approval(Body):
    call_id: CallId


class Denial(Body):
    call_id: CallId
    reason: TextParam | None = None


class Settlement(Body):
    """The outcome of a call: its result (`done`), run it again (`redo`), or `unknown`."""

    call_id: CallId
    done: TextParam | None = None
    redo: bool = False
    unknown: bool = False


class AnswerBody(Body):
    text: TextParam
    call_id: CallId | None = None


class Regeneration(Body):
    """The turn to answer again, and the message to send instead of its message. None: the last turn, its message."""

    turn: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    input: str | list[Json] | None = None
    wait: bool = False
    stream: bool = False
    message_id: MessageId | None = None


class ToolResult(Body):
    tool_use_id: CallId
    content: str | list[Json] = ""
    is_error: bool = False


class ToolResults(Body):
    results: list[ToolResult]


class DeliveryBody(Body):
    """A message for the next run of a thread. Messages with the same id are delivered once. A different message with
    the same id is a conflict."""

    input: str | list[Json]
    id: MessageId | None = None


@router.post("/approve", response_model=responses.Status)
async def approve_call(caller: Writer, ref: ThreadRefParam, body: Approval) -> ExactJSON:
    """Approve a call."""
    await approve(caller.store, ref, body.call_id, by=caller.actor)
    return await _now(caller, ref)


@router.post("/deny", response_model=responses.Status)
async def deny_call(caller: Writer, ref: ThreadRefParam, body: Denial) -> ExactJSON:
    """Deny a call. The model gets the reason."""
    await deny(caller.store, ref, body.call_id, reason=body.reason, by=caller.actor)
    return await _now(caller, ref)


@router.post("/settle", response_model=responses.Status)
async def settle_call(caller: Writer, ref: ThreadRefParam, body: Settlement) -> ExactJSON:
    """Resolve a call with an unknown outcome."""
    done, redo, unknown = body.done, body.redo, body.unknown
    await settle(caller.store, ref, body.call_id, done=done, redo=redo, unknown=unknown, by=caller.actor)
    return await _now(caller, ref)


@router.post("/answer", response_model=responses.Status)
async def answer_question(caller: Writer, ref: ThreadRefParam, body: AnswerBody) -> ExactJSON:
    """Answer a question of a thread."""
    await answer(caller.store, ref, body.text, call_id=body.call_id, by=caller.actor)
    return await _now(caller, ref)


@router.post("/tool_results", response_model=responses.Status)
async def tool_results(caller: Writer, ref: ThreadRefParam, body: ToolResults) -> ExactJSON:
    """Submit the results of frontend tools: exactly those that the thread waits for."""
    await submit_results(caller.store, ref, [tool_result.model_dump() for tool_result in body.results])
    return await _now(caller, ref)


@router.post("/deliver", status_code=202, response_model=responses.StatusOfRun)
async def deliver(
    caller: Writer, ref: ThreadRefParam, body: DeliveryBody, idempotency_key: IdempotencyKey = None
) -> ExactJSON:
    """Queue a message for a thread. A worker answers it after the messages accepted before.

    GET /api/runs/{run_id}/result returns the answer to this message, with the status `pending` until its run starts.
    409 if a different message with this id was accepted.
    """
    message_id = one_message_id(body.id, idempotency_key)
    head = await caller.store.thread(ref)
    entry = message_entry(as_message(body.input), message_id=message_id)
    message = await deliver_message(caller.store, head, entry)
    add_log_fields(thread=head.id, run=message.run_id)
    now = await caller.store.thread(head)
    return ExactJSON({**status_of(now), "run_id": str(message.run_id)}, 202)


@router.post("/cancel", status_code=202, response_model=responses.Status)
async def cancel_run(caller: Writer, ref: ThreadRefParam) -> ExactJSON:
    """Cancel the open run and its child threads."""
    return _shown(await cancel(caller.store, ref), 202)


@router.post("/retry", status_code=202, response_model=responses.StatusOfRun)
async def retry(caller: Writer, ref: ThreadRefParam) -> ExactJSON:
    """Retry a failed or cancelled run with the same context."""
    head = await caller.store.thread(ref)
    result = await caller.app.agent(head.agent).retry(head, store=caller.store, detach=True)
    return _accepted(await caller.store.thread(head), result.run_id if result is not None else None)


@router.post("/regenerate", status_code=202, responses=WAITED, response_model=responses.Result)
async def regenerate(
    request: Request,
    caller: Writer,
    ref: ThreadRefParam,
    regeneration: Regeneration | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Answer the last turn again, in a fork that takes the key of the thread.

    Returns 202 with the fork and the run at once, as the start of a run does, also with `wait` and `stream`. With
    `input`, the fork gets this message instead (edit and resend). 409 if the thread has an open run or a message.
    A repeated request with the same `message_id` or Idempotency-Key creates no second fork.
    """
    regeneration = regeneration or Regeneration()
    if regeneration.stream and regeneration.wait:
        raise Problem(422, "Refused", "Set wait or stream, not both.")
    head = await caller.store.thread(ref)
    # 404 if no agent of this app executes the thread.
    caller.app.agent(head.agent)
    message = None if regeneration.input is None else as_message(regeneration.input)
    message_id = one_message_id(regeneration.message_id, idempotency_key)
    queued = await caller.store.regenerate(head, turn=regeneration.turn, message=message, message_id=message_id)
    add_log_fields(thread=queued.thread.id, run=queued.run_id)
    started = await result_enqueued(caller.store, queued)
    if regeneration.stream:
        position = queued.thread.position if queued.new else await position_before(caller, started)
        return stream_run(caller, started, position)
    if regeneration.wait:
        result, idle = await wait_for_run(request, caller, started)
        return ExactJSON(result.as_json(), 200 if idle else 202)
    return ExactJSON(started.as_json(), 202)


@router.post("/resume", status_code=202, response_model=responses.StatusOfRun)
async def resume(caller: Writer, ref: ThreadRefParam) -> ExactJSON:
    """Resume an interrupted thread, or a thread that waits for a timer."""
    head = await caller.store.thread(ref)
    # 404 if no agent of this app executes the thread.
    caller.app.agent(head.agent)
    head = await caller.store.wake(head)
    run = await caller.store.execution.open_run(head)
    return _accepted(head, run.id if run is not None else None)


def _accepted(head: Thread, run_id: UUID | None) -> ExactJSON:
    """The answer for a thread that a worker continues."""
    add_log_fields(thread=head.id, run=run_id)
    return ExactJSON({**status_of(head), "run_id": str(run_id) if run_id is not None else None}, 202)


async def _now(caller: Caller, ref: str, status: int = 200) -> ExactJSON:
    return _shown(await caller.store.thread(ref), status)


def _shown(head: Thread, status: int = 200) -> ExactJSON:
    add_log_fields(thread=head.id)
    return ExactJSON(status_of(head), status)
