"""`accept()`: store a request body. Routes of the quarantine."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, TypeVar
from uuid import UUID

from fastapi import Query, Request, Response
from starlette.requests import ClientDisconnect

from lockstitch.integrations.body_reader import OTEL
from lockstitch.integrations.langsmith.redaction import redacted_body
from lockstitch.integrations.otel.accept import screen, screen_logs
from lockstitch.integrations.spans.budget import Budget
from lockstitch.model import Json, format_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Admin, Caller
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter

_STORED_HEADERS: Final = ("content-type", "content-encoding", "user-agent")
_LONGEST: Final = 500
_SMALL: Final = 2 << 10
"""Maximum size of an uncompressed body that is screened in the event loop, in bytes."""

_Value = TypeVar("_Value")


async def accept(request: Request, caller: Caller, source: str, *, logs: bool = False) -> list[str]:
    """Store the body of a request. It is durable when this returns.

    Return one problem for each part that cannot be read. For LangSmith bodies this is not known yet. Raises a problem
    400 if an OTLP request cannot be read at all, and `BodyTooExpensive` if reading it costs too much. Redacted values
    are not stored. With `logs`, the body has log records, of which only some are stored.
    """
    intake = caller.state.intake
    body = await body_of(request, caller)
    headers: Json = {name: request.headers[name][:_LONGEST] for name in _STORED_HEADERS if name in request.headers}
    headers["path"] = request.url.path[-_LONGEST:]
    settings = caller.state.settings
    hide = frozenset(name.lower() for name in settings.redact)
    budget = Budget(settings.body_cost)
    problems: list[str] = []
    if source == OTEL:
        look_at = screen_logs if logs else screen
        looking = partial(look_at, body, budget, keep_secrets=settings.keep_secrets, hide=hide)
        screened = await _apart(intake, body, budget, looking)
        if screened.malformed:
            raise Problem(400, "Not OTLP", f"Nothing was stored: {'; '.join(screened.problems)}")
        body = screened.body
        problems = screened.problems + [""] * (screened.rejected - len(screened.problems))
        if logs and not body:
            return problems
    elif not settings.keep_secrets:
        body = await _apart(intake, body, budget, partial(redacted_body, body, headers, budget, hide))
    await intake.put(caller.project, source, headers, body)
    return problems


async def body_of(request: Request, caller: Caller) -> bytes:
    """Return the body of a request. Raises a problem 503 if the queue has no room for it."""
    length = request.headers.get("content-length", "")
    # Check before reading the body, so a rejected client does not send all of it.
    caller.state.intake.check_room(int(length) if length.isdecimal() else 0)
    try:
        return await request.body()
    except ClientDisconnect as exc:
        raise Problem(400, "Incomplete body", "The connection closed before the body was complete.") from exc


async def _apart(intake: IngestBuffer, body: bytes, budget: Budget, look: Callable[[], _Value]) -> _Value:
    """Screen a body in a thread unless it is small. If the client disconnects, the thread stops at its next step.

    The number of threads is limited: each holds an unpacked body and shares the processor with the event loop.
    """
    if len(body) <= _SMALL and not body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return look()
    async with intake.looking:
        try:
            return await asyncio.to_thread(look)
        except asyncio.CancelledError:
            budget.stop()
            raise


router = LazyRouter(prefix="/api/arrivals", tags=["arrivals"], default_response_class=ExactJSON)


@router.get("", response_model=responses.Arrivals)
async def arrivals(caller: Admin, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ExactJSON:
    """Return the counts of the ingest queue and the quarantined bodies, newest first."""
    intake = caller.state.intake
    counts = await intake.counts(caller.project)
    status = await caller.store.ingest_queue.status()
    # List after counting, so a body that fails in between is in the list.
    held = await intake.quarantine(caller.project, limit)
    return ExactJSON(
        {
            **counts._asdict(),
            "oldest_seconds": status.oldest_seconds,
            "stuck": status.stuck,
            "quarantine": [{**row._asdict(), "id": str(row.id), "at": format_time(row.at)} for row in held],
        }
    )


@router.get(
    "/{arrival_id}/body",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def body(caller: Admin, arrival_id: UUID) -> Response:
    """Download a quarantined body unchanged."""
    row = await caller.state.intake.held(caller.project, arrival_id)
    await caller.store.audits.record(caller.actor, "read arrival", str(arrival_id))
    name = {"Content-Disposition": f'attachment; filename="{arrival_id}.body"'}
    return Response(row.body, media_type="application/octet-stream", headers=name)


@router.post("/{arrival_id}/retry", status_code=202, response_model=responses.Arrival)
async def retry(caller: Admin, arrival_id: UUID) -> ExactJSON:
    """Process a quarantined body again."""
    await caller.state.intake.retry(caller.project, arrival_id)
    await caller.store.audits.record(caller.actor, "retry arrival", str(arrival_id))
    return ExactJSON({"id": str(arrival_id)}, 202)


@router.delete("/{arrival_id}", status_code=204)
async def drop(caller: Admin, arrival_id: UUID) -> Response:
    """Delete a quarantined body permanently."""
    await caller.state.intake.drop(caller.project, arrival_id)
    await caller.store.audits.record(caller.actor, "delete arrival", str(arrival_id))
    return Response(status_code=204)
