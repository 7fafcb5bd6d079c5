"""Evaluations: their totals, cases and comparison. The work is done by `lockstitch.agents.evals.stored_evals`."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field

from lockstitch.agents.evals.recorded_runs import MAX_RUNS
from lockstitch.agents.evals.requests import EvalRequest
from lockstitch.agents.evals.stored_evals import MAX_COMPARED, Evals
from lockstitch.model import Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Limit, Name, TextParam
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter

router = LazyRouter(prefix="/api/evals", tags=["evals"], default_response_class=ExactJSON)

Ref = Annotated[
    TextParam, Path(max_length=300, description="Id of an evaluation, `name#number`, or a name: the last one.")
]
Filter = Annotated[TextParam | None, Query(max_length=300)]
Cursor = Annotated[int | None, Query(ge=0, description="`next` of the previous page.")]


def evals_of(caller: Caller) -> Evals:
    """Return the evaluations of the caller's project."""
    return Evals(caller.store)


@router.get("", response_model=responses.Evals)
async def evals(
    caller: Reader,
    name: Filter = None,
    dataset: Filter = None,
    agent: Filter = None,
    status: Literal["running", "completed", "stopped"] | None = None,
    limit: Limit = 50,
    after: Filter = None,
) -> ExactJSON:
    """List the evaluations of the project with their totals, newest first."""
    found = await evals_of(caller).list(
        name=name, dataset=dataset, agent=agent, status=status, limit=limit, after=after
    )
    return ExactJSON(found)


class NewEval(Body):
    """An evaluation with an agent of the server: of a stored dataset, or of recorded runs.

    `sources` are threads and runs. `where` has filters such as `tag=vip` for the latest `limit` threads. With `replay`,
    each case is a replay of its recorded run. With `live: "safe"`, replays run tools with the effect `safe` if the
    record does not have their call.
    """

    agent: Name
    dataset: Annotated[TextParam, Field(min_length=1, max_length=300)] | None = None
    sources: Annotated[list[Name], Field(max_length=MAX_RUNS)] = []
    where: Annotated[list[Annotated[TextParam, Field(max_length=300)]], Field(max_length=20)] = []
    limit: Annotated[int, Field(ge=1, le=MAX_RUNS)] = 100
    replay: bool = False
    live: Literal["safe"] | None = None
    model: Name | None = None
    instructions: TextParam | None = None
    graders: Annotated[list[Name], Field(min_length=1, max_length=20)]
    name: Name | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    trials: Annotated[int, Field(ge=1, le=1000)] = 1
    concurrency: Annotated[int, Field(ge=1, le=100)] = 4
    judge: Name | None = None
    criteria: TextParam | None = None
    pass_at: float | None = None


@router.post("", status_code=202, response_model=responses.Eval)
async def start(caller: Writer, body: NewEval) -> ExactJSON:
    """Start an evaluation on this server, or continue the same one that was interrupted."""
    request = EvalRequest(**body.model_dump(exclude={"live"}), live_safe=body.live == "safe")
    return ExactJSON(await start_eval(caller, request), 202)


async def start_eval(caller: Caller, request: EvalRequest) -> Json:
    """Start an evaluation on this server and return it. Raises a problem 409 if the server executes no threads."""
    if not caller.state.settings.work:
        raise Problem(409, "No worker", "This server executes no threads. Run `lockstitch eval` with the store.")
    return await caller.state.evaluations.begin(caller.app, caller.store, request)


# Before the route of one evaluation, which would match its path.
@router.get("/compare", response_model=responses.EvalComparison)
async def compare(
    caller: Reader,
    id: Annotated[list[TextParam], Query(min_length=2, max_length=MAX_COMPARED)],
    changed: bool = False,
    limit: Limit = 100,
    after: Filter = None,
) -> ExactJSON:
    """Compare evaluations case by case, the worst differences first. The first evaluation is the baseline."""
    return ExactJSON(await evals_of(caller).compare(id, changed=changed, limit=limit, after=after))


@router.get("/{ref}", response_model=responses.Eval)
async def read(caller: Reader, ref: Ref) -> ExactJSON:
    """Return an evaluation with its totals. While it runs, they are those of the trials that are done."""
    return ExactJSON(await evals_of(caller).get(ref))


@router.get("/{ref}/cases", response_model=responses.EvalCases)
async def cases(caller: Reader, ref: Ref, failed: bool = False, limit: Limit = 50, after: Cursor = None) -> ExactJSON:
    """List the cases of an evaluation with their trials, in the order of the dataset."""
    return ExactJSON(await evals_of(caller).cases(ref, failed=failed, limit=limit, after=after))
