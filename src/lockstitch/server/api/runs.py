"""Runs, stitches and agents: read, trace, compare and export."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field

from lockstitch.engine.result import result_for, run_for
from lockstitch.errors import NotFound
from lockstitch.integrations.langsmith.export import export_run
from lockstitch.model import Json, Run
from lockstitch.model.scores import scores_as_json, scores_of
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON, Id, Limit, Name, RunRef, Since, rows
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.store.annotation import feedback_of_run
from lockstitch.store.reports.definitions import version_changes as compare_versions
from lockstitch.store.reports.traces import LINES

router = LazyRouter(prefix="/api/runs", tags=["runs"], default_response_class=ExactJSON)


@router.get("/{id}", response_model=responses.RunWithUsage)
async def run(caller: Reader, id: RunRef) -> ExactJSON:
    """Return a run with its token usage and its average scores. It is `pending` while its message is queued."""
    result = await _known(caller, id)
    scores = scores_of(await feedback_of_run(caller.store, result))
    return ExactJSON({**result.as_json(), "usage": result.usage, "scores": scores_as_json(scores)})


@router.get("/{id}/result", response_model=responses.Result)
async def result(caller: Reader, id: RunRef) -> ExactJSON:
    """Return the current result of a run. The status is `pending` while its message is queued."""
    run_result = await result_for(caller.store, id)
    add_log_fields(thread=run_result.thread_id, run=run_result.run_id)
    return ExactJSON(run_result.as_json())


@router.get("/{id}/log", response_model=list[responses.Stitch])
async def log(caller: Reader, id: RunRef) -> ExactJSON:
    """Return the stitches of a run in order. Empty while its message is queued."""
    run = await _known(caller, id)
    return ExactJSON(rows(await caller.store.log(run.id) if run.status != "pending" else []))


@router.get("/{id}/messages", response_model=list[Json])
async def messages(caller: Reader, id: RunRef) -> ExactJSON:
    """Return the messages of a run, including compacted messages. Empty while its message is queued."""
    run = await _known(caller, id)
    return ExactJSON(await caller.store.messages(run.id) if run.status != "pending" else [])


@router.get("/{id}/trace", response_model=responses.Trace)
async def trace(
    caller: Reader,
    id: RunRef,
    depth: Annotated[int | None, Query(ge=0, le=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = LINES,
) -> ExactJSON:
    """Return a run as a tree of model calls, tools, nested runs and child threads, or of imported spans."""
    return ExactJSON((await caller.store.trace((await _known(caller, id)).id, depth=depth, limit=limit)).as_json())


@router.get("/{id}/export", response_model=list[Json])
async def export(
    caller: Reader, id: RunRef, form: Annotated[Literal["langsmith"], Query(alias="as")] = "langsmith"
) -> ExactJSON:
    """Export a run in the format of another system."""
    run = await _known(caller, id)
    answer = ExactJSON(await export_run(caller.store, str(run.id)))
    answer.headers["Content-Disposition"] = f'attachment; filename="{run.id}.{form}.json"'
    return answer


@router.get("/{a}/difference/{b}", response_model=responses.Difference)
async def difference(caller: Reader, a: RunRef, b: RunRef) -> ExactJSON:
    """Compare two runs: totals and steps."""
    run, other = await _known(caller, a), await _known(caller, b)
    return ExactJSON((await caller.store.difference(run.id, other.id)).as_json())


async def _known(caller: Caller, id: str) -> Run:
    run = await run_for(caller.store, id)
    add_log_fields(thread=run.thread_id, run=run.id)
    return run


agents_router = LazyRouter(prefix="/api/agents", tags=["agents"], default_response_class=ExactJSON)

AgentName = Annotated[Name, Path()]
VersionNumber = Annotated[int, Field(ge=0, lt=2**63)]


@agents_router.get("", response_model=responses.Agents)
async def agents(
    caller: Reader,
    role: Annotated[
        Literal["agent", "team", "workflow"] | None, Query(description="Only agents with this role.")
    ] = None,
    limit: Limit = 1000,
) -> ExactJSON:
    """List the agents of the project. `here` has the agents of the loaded app."""
    equal = {"project": caller.project, **({"role": role} if role is not None else {})}
    known = await caller.store.agents.list(limit=limit, **equal)
    here = sorted(caller.state.app.agents) if caller.state.app is not None else []
    return ExactJSON({"agents": rows(known), "here": here})


@agents_router.get("/{name}", response_model=responses.Agent)
async def agent(caller: Reader, name: AgentName) -> ExactJSON:
    """Return an agent of the project."""
    return ExactJSON((await caller.store.agents.get(caller.project, name)).as_json())


@agents_router.get("/{name}/versions", response_model=list[responses.AgentVersion])
async def versions(
    caller: Reader,
    name: AgentName,
    newest: Annotated[int, Query(ge=1, le=1000, description="Maximum number of versions, newest ones.")] = 1000,
    before: Annotated[VersionNumber | None, Query(description="Only versions with a lower number.")] = None,
) -> ExactJSON:
    """List the versions of an agent, oldest first."""
    agents = caller.store.agents
    agent_versions = await agents.versions(caller.project, name, newest=newest, before=before)
    if not agent_versions and (before is None or not await agents.versions(caller.project, name, newest=1)):
        raise NotFound(f"Agent {name} not found in project {caller.project}.")
    return ExactJSON(rows(agent_versions))


@agents_router.get("/{name}/versions/{version}", response_model=responses.AgentVersion)
async def version(caller: Reader, name: AgentName, version: Annotated[VersionNumber, Path()]) -> ExactJSON:
    """Return one version of an agent with its definition."""
    return ExactJSON((await caller.store.agents.version(caller.project, name, version)).as_json())


@agents_router.get("/{name}/versions/{version}/changes", response_model=responses.VersionChanges)
async def version_changes(
    caller: Reader,
    name: AgentName,
    version: Annotated[VersionNumber, Path()],
    since: Annotated[
        VersionNumber | None, Query(description="The version to compare with. Default: the previous one.")
    ] = None,
) -> ExactJSON:
    """Return the fields of a definition that differ from another version, each with the lines of a unified diff."""
    return ExactJSON((await compare_versions(caller.store.agents, caller.project, name, version, since)).as_json())


stitches_router = LazyRouter(prefix="/api/stitches", tags=["stitches"], default_response_class=ExactJSON)


@stitches_router.get("", response_model=list[responses.Stitch])
async def latest(caller: Reader, since: Since = None, limit: Limit = 50) -> ExactJSON:
    """List the latest stitches of all threads of the project, newest first."""
    return ExactJSON(rows(await caller.store.latest(limit=limit, since=since)))


@stitches_router.get("/{id}", response_model=responses.Stitch)
async def stitch(caller: Reader, id: Id) -> ExactJSON:
    """Return a stitch."""
    result = await caller.store.stitch(id)
    add_log_fields(thread=result.thread_id, run=result.run_id)
    return ExactJSON(result.as_json())


@stitches_router.get("/{id}/request", response_model=Json)
async def request(caller: Reader, id: Id) -> ExactJSON:
    """Return the exact request of a model call, rebuilt and verified with its hash."""
    return ExactJSON(await caller.store.request(id))
