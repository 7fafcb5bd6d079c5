"""The quarantine: bodies that could not be read, or not all of them. For those who run the server."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from lockstitch.records import format_time
from lockstitch.server.access import Admin
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact

router = APIRouter(prefix="/api/arrivals", tags=["arrivals"], default_response_class=Exact)


@router.get("", response_model=shapes.Arrivals)
async def arrivals(caller: Admin, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Exact:
    """How much waits to be read, and what could not be read, newest first."""
    intake = caller.house.intake
    counts = await intake.counts(caller.project)
    # After the counts: what is counted as read by then, and could not be, is listed.
    held = await intake.quarantine(caller.project, limit)
    return Exact(
        {
            **counts._asdict(),
            "quarantine": [{**row._asdict(), "id": str(row.id), "at": format_time(row.at)} for row in held],
        }
    )


@router.get(
    "/{arrival_id}/body",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def body(caller: Admin, arrival_id: UUID) -> Response:
    """A body in quarantine as it came, to look at or to send elsewhere."""
    row = await caller.house.intake.held(caller.project, arrival_id)
    await caller.store.audits.note(caller.actor, "read arrival", str(arrival_id))
    name = {"Content-Disposition": f'attachment; filename="{arrival_id}.body"'}
    return Response(row.body, media_type="application/octet-stream", headers=name)


@router.post("/{arrival_id}/retry", status_code=202, response_model=shapes.Arrival)
async def retry(caller: Admin, arrival_id: UUID) -> Exact:
    """Have a body read once more."""
    await caller.house.intake.retry(caller.project, arrival_id)
    await caller.store.audits.note(caller.actor, "retry arrival", str(arrival_id))
    return Exact({"id": str(arrival_id)}, 202)


@router.delete("/{arrival_id}", status_code=204)
async def drop(caller: Admin, arrival_id: UUID) -> Response:
    """Delete a body in quarantine for good."""
    await caller.house.intake.drop(caller.project, arrival_id)
    await caller.store.audits.note(caller.actor, "delete arrival", str(arrival_id))
    return Response(status_code=204)
