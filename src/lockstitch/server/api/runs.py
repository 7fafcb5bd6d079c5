"""Runs: one, its log, what was said in it, its trace, its difference to another, its export."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from lockstitch.bridges.outgoing.langsmith import export_run
from lockstitch.records import Json, Run
from lockstitch.runtime.driving import result_for, run_for
from lockstitch.server.access import Caller, Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact, rows
from lockstitch.server.api.parameters import RunRef
from lockstitch.server.guard import mention
from lockstitch.store.traces import LINES

router = APIRouter(prefix="/api/runs", tags=["runs"], default_response_class=Exact)


@router.get("/{id}", response_model=shapes.RunWithUsage)
async def run(caller: Reader, id: RunRef) -> Exact:
    """One run, with its usage under the names that providers use; `pending` while its message waits in line."""
    found = await _known(caller, id)
    return Exact({**found.as_json(), "usage": found.usage})


@router.get("/{id}/result", response_model=shapes.Result)
async def result(caller: Reader, id: RunRef) -> Exact:
    """Return the result of a run in its current state; `pending` while its message waits in line."""
    found = await result_for(caller.store, id)
    mention(thread=found.thread_id, run=found.run_id)
    return Exact(found.as_json())


@router.get("/{id}/log", response_model=list[shapes.Stitch])
async def log(caller: Reader, id: RunRef) -> Exact:
    """Everything that a run did, in order; nothing while its message waits in line."""
    found = await _known(caller, id)
    return Exact(rows(await caller.store.log(found.id) if found.status != "pending" else []))


@router.get("/{id}/messages", response_model=list[Json])
async def messages(caller: Reader, id: RunRef) -> Exact:
    """Return the messages of a run, also those that were compacted since. Empty while its message waits in line."""
    found = await _known(caller, id)
    return Exact(await caller.store.messages(found.id) if found.status != "pending" else [])


@router.get("/{id}/trace", response_model=shapes.Trace)
async def trace(
    caller: Reader,
    id: RunRef,
    depth: Annotated[int | None, Query(ge=0, le=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = LINES,
) -> Exact:
    """A run as a tree of model calls, tools, nested runs and child threads, or of the spans of a mirror."""
    return Exact((await caller.store.trace((await _known(caller, id)).id, depth=depth, limit=limit)).as_json())


@router.get("/{id}/export", response_model=list[Json])
async def export(
    caller: Reader, id: RunRef, form: Annotated[Literal["langsmith"], Query(alias="as")] = "langsmith"
) -> Exact:
    """A run as another system has it."""
    found = await _known(caller, id)
    answer = Exact(await export_run(caller.store, str(found.id)))
    answer.headers["Content-Disposition"] = f'attachment; filename="{found.id}.{form}.json"'
    return answer


@router.get("/{a}/difference/{b}", response_model=shapes.Difference)
async def difference(caller: Reader, a: RunRef, b: RunRef) -> Exact:
    """What differs between two runs: as wholes, and step by step."""
    one, other = await _known(caller, a), await _known(caller, b)
    return Exact((await caller.store.difference(one.id, other.id)).as_json())


async def _known(caller: Caller, id: str) -> Run:
    found = await run_for(caller.store, id)
    mention(thread=found.thread_id, run=found.id)
    return found
