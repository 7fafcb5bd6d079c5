"""Server-sent events of threads and projects.

The `id` of an event is the position of its stitch. A client that reconnects with the last id, in Last-Event-ID or as
`after`, gets the following stitches, each once, also after a restart of the server.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import Header, Query
from starlette.responses import StreamingResponse

from lockstitch.errors import StoreError
from lockstitch.model import Json, codec
from lockstitch.server.api.schemas import Position, ThreadRefParam
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.server.streams.project import ProjectStream, follow_stitches
from lockstitch.server.streams.thread import StreamItem, ThreadStream, Until

router = LazyRouter(prefix="/api", tags=["events"])

EVENT_STREAM: Final = "text/event-stream"


def event_stream_content() -> dict[str, Any]:
    """Return the schema of events. It is a new object each time, because FastAPI changes it."""
    members = {name: {"type": "string"} for name in ("event", "data", "id")}
    schema = {"title": "Event", "type": "object", "properties": members, "required": ["data"]}
    return {"content": {EVENT_STREAM: {"schema": schema}}}


STREAM: Final[dict[int | str, dict[str, Any]]] = {200: {"description": "Server-sent events", **event_stream_content()}}

_log = logging.getLogger("lockstitch.server")

_HEADERS: Final = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}

LastEventId = Annotated[str | None, Header(description="The position of the last received stitch.")]


@router.get("/threads/{ref}/events", responses=STREAM, response_class=StreamingResponse)
async def thread_events(
    caller: Reader,
    ref: ThreadRefParam,
    after: Position = 0,
    until: Annotated[
        Until,
        Query(description="end: until the thread ends. idle: until its run ends or waits. now: current events only"),
    ] = "end",
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Stream the events of a thread after a position, and then new events.

    Events: `stitch` with the position as the id; `delta`, a part of a streamed response with run_id, step_number,
    number, kind (text or thinking), text and attempt; `status`; and `end`. The llm_call stitch replaces the deltas. A
    delta of another attempt replaces the earlier ones. Numbers increase, so clients can ignore repeated deltas.
    """
    head = await caller.store.thread(ref)
    add_log_fields(thread=head.id)
    return streamed(
        caller, ThreadStream(caller.store, caller.state.changes, head.id, last_seen(last_event_id, after)), until
    )


@router.get("/events", responses=STREAM, response_class=StreamingResponse)
async def project_events(
    caller: Reader, until: Annotated[Until, Query(description="now: only the current status")] = "end"
) -> StreamingResponse:
    """Stream the status of the threads of the project: first recent threads, then changes. Events: `status`."""
    board = ProjectStream(caller.store, caller.state.changes)
    return StreamingResponse(_frames(board.follow(once=until == "now")), headers=_HEADERS, media_type=EVENT_STREAM)


@router.get("/events/stitches", responses=STREAM, response_class=StreamingResponse)
async def stitch_events(
    caller: Reader,
    recent: Annotated[int, Query(ge=0, le=1000, description="Number of stored stitches to send first.")] = 0,
    until: Annotated[Until, Query(description="now: only the stored stitches")] = "end",
) -> StreamingResponse:
    """Stream the stitches of all threads of the project: first the latest ones, then new ones. Events: `stitch`."""
    if until == "now":
        stitch_items = _stored(caller, recent)
    else:
        stitch_items = follow_stitches(caller.store.watch(recent=recent), lambda: caller.state.changes.leaving)
    return StreamingResponse(_frames(stitch_items), headers=_HEADERS, media_type=EVENT_STREAM)


async def _stored(caller: Caller, recent: int) -> AsyncGenerator[StreamItem]:
    for stitch in reversed(await caller.store.latest(limit=recent) if recent else []):
        yield StreamItem("stitch", stitch.as_json(), stitch)


def streamed(caller: Caller, follower: ThreadStream, until: Until) -> StreamingResponse:
    return StreamingResponse(_frames(follower.events(until)), headers=_HEADERS, media_type=EVENT_STREAM)


def last_seen(last_event_id: str | None, after: int) -> int:
    """Return the last position that the client has received. Invalid event ids are ignored."""
    text = (last_event_id or "").strip()
    return max(after, int(text)) if text.isascii() and text.isdigit() and len(text) < 19 else after


async def _frames(stream_items: AsyncGenerator[StreamItem]) -> AsyncGenerator[bytes]:
    # Send a comment first, so proxies forward the start of the response.
    yield b": here\n\n"
    try:
        async with aclosing(stream_items) as events:
            async for event in events:
                yield frame(event)
    except StoreError as exc:
        # The client reconnects and continues at its position, so end the stream without an error event.
        _log.warning("Event stream ended, store unreachable: %s", exc)


def frame(stream_item: StreamItem) -> bytes:
    if stream_item.kind == "beat":
        return b": \n\n"
    position = b"id: %d\n" % stream_item.stitch.position if stream_item.stitch is not None else b""
    return position + b"event: " + stream_item.kind.encode() + b"\ndata: " + _line(stream_item.data) + b"\n\n"


def _line(data: Json) -> bytes:
    # The JSON has no line breaks; those in strings are escaped.
    return codec.dumps(data)
