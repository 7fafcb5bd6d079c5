"""Start runs over HTTP. Workers execute them, so a client can disconnect without losing the run."""

from typing import Annotated, Any, Final

from fastapi import Header, Path, Request
from pydantic import Field
from starlette.responses import Response

from lockstitch.agents import Result
from lockstitch.engine.result import result_enqueued, result_for, result_from_store, run_of_message
from lockstitch.engine.session.start import as_message
from lockstitch.errors import NotFound
from lockstitch.model import Json, Thread
from lockstitch.model.thread import TERMINAL_STATUSES
from lockstitch.server.api import responses
from lockstitch.server.api.events import EVENT_STREAM, event_stream_content, streamed
from lockstitch.server.api.schemas import Body, ExactJSON, IdempotencyKey, MessageId, Name, TextParam
from lockstitch.server.auth import Caller, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.server.streams.thread import LIVELY, QUIET, ThreadStream, is_idle
from lockstitch.store.conversations import EnqueuedMessage

router = LazyRouter(prefix="/api/agents", tags=["runs"], default_response_class=ExactJSON)


WAITED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The result with `wait`, events with `stream`",
        "model": responses.Result,
        **event_stream_content(),
    }
}


class Prompt(Body):
    """A message for an agent. An existing thread continues; an unknown key creates a thread."""

    input: str | list[Json]
    thread: Annotated[TextParam, Field(min_length=1, max_length=255)] | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None
    metadata: Json = {}
    tags: list[TextParam] = []
    extras: Json = {}
    stream: bool = False
    wait: bool = False
    message_id: MessageId | None = None


@router.post("/{name}/runs", status_code=202, responses=WAITED, response_model=responses.Result)
async def run(
    request: Request,
    caller: Writer,
    name: Annotated[Name, Path(description="The name of an agent of the loaded app.")],
    prompt: Prompt,
    accept: Annotated[str | None, Header()] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Start a run, or queue the message behind an open run.

    Returns 202 with the thread and the run at once. The status is `pending` until a worker starts the run, and `run_id`
    is the id of that run: GET /api/runs/{run_id}/result returns the answer to this message. With `wait` the response
    comes when the run has ended or waits for a person. With `stream`, or if the request accepts only
    text/event-stream, the response has the events of the thread until then.

    A message may have an id, in `message_id` or in the header Idempotency-Key. If the thread has accepted the id
    before, no run starts, and the response is that of the first message in its current state. 409 if the first
    message has another content. Without `thread`, the id also identifies the new thread.
    """
    stream = prompt.stream or (accept or "").startswith(EVENT_STREAM)
    if stream and prompt.wait:
        raise Problem(422, "Refused", "Set wait or stream, not both.")
    before = await _before(caller, prompt.thread)
    message = await begin(caller, name, prompt, one_message_id(prompt.message_id, idempotency_key))
    started = await result_enqueued(caller.store, message)
    if stream:
        position = before.position if before is not None else 0
        return stream_run(caller, started, position if message.new else await position_before(caller, started))
    if prompt.wait:
        result, idle = await wait_for_run(request, caller, started)
        return ExactJSON(result.as_json(), 200 if idle else 202)
    return ExactJSON(started.as_json(), 202)


def one_message_id(from_body: str | None, from_header: str | None) -> str | None:
    """Return the id of a message. Raises a problem if the body and the header have different ids."""
    if from_body is not None and from_header is not None and from_body != from_header:
        raise Problem(422, "Refused", "message_id and the header Idempotency-Key differ. Send one of them.")
    return from_body if from_body is not None else from_header


async def begin(caller: Caller, name: str, prompt: Prompt, message_id: str | None) -> EnqueuedMessage:
    """Leave a message for a worker. `NotFound` if this server's app has no such agent."""
    message = await caller.store.enqueue(
        caller.app.agent(name).name,
        as_message(prompt.input),
        thread=prompt.thread,
        user_id=prompt.user_id,
        metadata=prompt.metadata,
        tags=prompt.tags,
        extras=prompt.extras,
        message_id=message_id,
    )
    add_log_fields(thread=message.thread.id, run=message.run_id)
    return message


async def position_before(caller: Caller, result: Result) -> int:
    """Return the position before the run of a message; the current position if the run has not started."""
    head = await caller.store.thread(result.thread_id)
    run = await run_of_message(caller.store, head, result.run_id)
    return head.position if run is None else min(run.first_position, run.input_position or run.first_position) - 1


def stream_run(caller: Caller, result: Result, position: int) -> Response:
    """Stream the events of a thread after a position until its run has ended or waits for a person."""
    return streamed(caller, ThreadStream(caller.store, caller.state.changes, result.thread_id, position), "idle")


async def wait_for_run(request: Request, caller: Caller, result: Result) -> tuple[Result, bool]:
    """Wait until the run of a message has ended or the thread waits for a person. Return its result and True.

    If the message is queued behind a run that waits for a person, return the result of that run. If the client
    disconnects or the server stops before, return the current state of the message and False.
    """
    store, news = caller.store, caller.state.changes
    with news.subscribe(result.thread_id) as reader:
        while True:
            head = await store.thread(result.thread_id)
            idle = is_idle(head)
            run = (
                await store.run(result.run_id)
                if result.queued_message_id is None
                else await run_of_message(store, head, result.queued_message_id)
            )
            done = idle or (run is not None and run.status in TERMINAL_STATUSES)
            if done or news.leaving or await request.is_disconnected():
                ahead = await store.execution.open_run(head) if run is None and idle else None
                return await (
                    result_for(store, result.run_id) if ahead is None else result_from_store(store, ahead)
                ), done
            await reader.wait(LIVELY if head.status == "running" else QUIET)


async def _before(caller: Caller, ref: str | None) -> Thread | None:
    """Return the thread before the run, to find the events that are new, or None."""
    if ref is None:
        return None
    try:
        return await caller.store.thread(ref)
    except NotFound:
        return None
