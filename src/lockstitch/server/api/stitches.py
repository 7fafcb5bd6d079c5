"""Stitches: one, and the exact request behind a model call."""

from fastapi import APIRouter

from lockstitch.records import Json
from lockstitch.server.access import Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact
from lockstitch.server.api.parameters import Id
from lockstitch.server.guard import mention

stitches_router = APIRouter(prefix="/api/stitches", tags=["stitches"], default_response_class=Exact)


@stitches_router.get("/{id}", response_model=shapes.Stitch)
async def stitch(caller: Reader, id: Id) -> Exact:
    """One stitch."""
    found = await caller.store.stitch(id)
    mention(thread=found.thread_id, run=found.run_id)
    return Exact(found.as_json())


@stitches_router.get("/{id}/request", response_model=Json)
async def request(caller: Reader, id: Id) -> Exact:
    """The exact request of a model call, rebuilt and checked against the hash it was sent under."""
    return Exact(await caller.store.request(id))
