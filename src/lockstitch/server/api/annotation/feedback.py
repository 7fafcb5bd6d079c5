"""Feedback on threads, runs and stitches. Each route checks the project of the record."""

from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import Field

from lockstitch.model import Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Id, Limit, Name, TextParam, rows
from lockstitch.server.auth import Reader, Writer
from lockstitch.server.routing import LazyRouter
from lockstitch.store.annotation import find_feedback, get_feedback, give_feedback, remove_feedback

router = LazyRouter(prefix="/api/feedback", tags=["feedback"], default_response_class=ExactJSON)

Filter = Annotated[TextParam | None, Query(max_length=300)]


class NewFeedback(Body):
    """Feedback of a person or a check on a thread, a run or a stitch."""

    name: Name
    thread: Name | None = None
    run: Name | None = None
    stitch: UUID | None = None
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    value: Json | None = None
    comment: TextParam | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None
    source: Name = "native"


@router.get("", response_model=list[responses.Feedback])
async def feedback(
    caller: Reader,
    thread: Filter = None,
    run: Filter = None,
    name: Filter = None,
    user_id: Filter = None,
    source: Filter = None,
    limit: Limit = 100,
) -> ExactJSON:
    """List the feedback on threads and runs of the project, oldest first."""
    found = await find_feedback(
        caller.store, thread=thread, run=run, name=name, user_id=user_id, source=source, limit=limit
    )
    return ExactJSON(rows(found))


@router.post("", status_code=201, response_model=responses.Feedback)
async def create(caller: Writer, body: NewFeedback) -> ExactJSON:
    """Create feedback on a thread, a run or a stitch.

    With `user_id`, it replaces the feedback with this name that the user has given on the same subject.
    """
    result = await give_feedback(caller.store, **body.model_dump())
    return ExactJSON(result.as_json(), 201)


@router.get("/{id}", response_model=responses.Feedback)
async def read(caller: Reader, id: Id) -> ExactJSON:
    """Return feedback."""
    return ExactJSON((await get_feedback(caller.store, id)).as_json())


@router.delete("/{id}", response_model=responses.Deleted)
async def remove(caller: Writer, id: Id) -> ExactJSON:
    """Delete feedback."""
    removed = await remove_feedback(caller.store, id)
    await caller.store.audits.record(caller.actor, "delete feedback", str(removed.id), name=removed.name)
    return ExactJSON({"deleted": 1})
