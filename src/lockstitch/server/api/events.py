"""Events: threads as they go on, as a stream that is resumed where it broke off.

The `id` of an event is the position of its stitch. Whoever comes back with the last one they have seen, in
Last-Event-ID or as `after`, gets what follows it: each stitch once, across reconnects and restarts of the server.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from lockstitch.errors import StoreError
from lockstitch.model import Json, codec
from lockstitch.server.api.schemas import Position, ThreadRefParam
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.streams.project import ProjectStream
from lockstitch.server.streams.thread import StreamItem, ThreadStream, Until

router = APIRouter(prefix="/api", tags=["events"])

EVENT_STREAM: Final = "text/event-stream"


def stream_content() -> dict[str, Any]:
    """Return the description of a stream's events, a new one each time: FastAPI adds to what it is given."""
    members = {name: {"type": "string"} for name in ("event", "data", "id")}
    schema = {"title": "Event", "type": "object", "properties": members, "required": ["data"]}
    return {"content": {EVENT_STREAM: {"schema": schema}}}


STREAM: Final[dict[int | str, dict[str, Any]]] = {200: {"description": "Server-sent events", **stream_content()}}

_log = logging.getLogger("lockstitch.server")

_HEADERS: Final = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}

LastEventId = Annotated[str | None, Header(description="The position of the last stitch that was seen.")]


@router.get("/threads/{ref}/events", responses=STREAM, response_class=StreamingResponse)
async def thread_events(
    caller: Reader,
    ref: ThreadRefParam,
    after: Position = 0,
    until: Annotated[Until, Query(description="end of the thread; idle: its run has ended or waits; now")] = "end",
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """A thread as it goes on: everything after a position, and then what comes.

    Events: `stitch`, the stitch, with its position as the id; `delta`, a part of what a model is just saying, with
    run_id, step_number, number, kind (text or thinking), text and attempt; `status`; and `end`. Deltas are replaced by
    the llm_call that has it all; one with another attempt begins anew. Numbers rise, so one that was seen is known.
    """
    head = await caller.store.thread(ref)
    add_log_fields(thread=head.id)
    return streamed(
        caller, ThreadStream(caller.store, caller.state.news, head.id, last_seen(last_event_id, after)), until
    )


@router.get("/events", responses=STREAM, response_class=StreamingResponse)
async def project_events(
    caller: Reader, until: Annotated[Until, Query(description="now: only how things stand")] = "end"
) -> StreamingResponse:
    """How the threads of the project stand: first the recent ones, then whichever changes. Events: `status`."""
    board = ProjectStream(caller.store, caller.state.news)
    return StreamingResponse(_frames(board.follow(once=until == "now")), headers=_HEADERS, media_type=EVENT_STREAM)


def streamed(caller: Caller, follower: ThreadStream, until: Until) -> StreamingResponse:
    return StreamingResponse(_frames(follower.events(until)), headers=_HEADERS, media_type=EVENT_STREAM)


def last_seen(last_event_id: str | None, after: int) -> int:
    """The position that a reader has got to. What is no position of ours is no reason to refuse them."""
    text = (last_event_id or "").strip()
    return max(after, int(text)) if text.isascii() and text.isdigit() and len(text) < 19 else after


async def _frames(told: AsyncGenerator[StreamItem]) -> AsyncGenerator[bytes]:
    # A first word, so that whoever is in between passes the beginning on.
    yield b": here\n\n"
    try:
        async with aclosing(told) as events:
            async for event in events:
                yield frame(event)
    except StoreError as exc:
        # Whoever reads comes back to where they were; there is nothing to tell them that they could not find out.
        _log.warning("A stream ends, since the store does not answer: %s", exc)


def frame(told: StreamItem) -> bytes:
    if told.kind == "beat":
        return b": \n\n"
    position = b"id: %d\n" % told.stitch.position if told.stitch is not None else b""
    return position + b"event: " + told.kind.encode() + b"\ndata: " + _line(told.data) + b"\n\n"


def _line(data: Json) -> bytes:
    # JSON has no line breaks of its own: those in texts are escaped.
    return codec.dumps(data)
