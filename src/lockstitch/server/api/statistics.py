"""Statistics: what the agents used, how long it took and what went wrong."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from lockstitch.records import Json, Run, format_time
from lockstitch.records.figures import Group
from lockstitch.server.access import Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact
from lockstitch.server.api.parameters import Limit, Moment, Plain, Since
from lockstitch.store.statistics import Only, Statistics

statistics_router = APIRouter(prefix="/api/stats", tags=["statistics"], default_response_class=Exact)

Part = Literal["usage", "tools", "latency", "newest", "slowest", "failed"]


@statistics_router.get("", response_model=shapes.Statistics)
async def stats(
    caller: Reader,
    by: Annotated[list[Group] | None, Query(description="Put usage together by these.")] = None,
    parts: Annotated[list[Part] | None, Query(description="What is wanted; else an overview.")] = None,
    since: Since = None,
    until: Annotated[Moment | None, Query(description="Only before then.")] = None,
    agent: Annotated[Plain | None, Query()] = None,
    model: Annotated[Plain | None, Query()] = None,
    user: Annotated[Plain | None, Query()] = None,
    limit: Limit = 20,
) -> Exact:
    """Tokens, cost, latencies and errors of the project's runs; they count by when they began, in UTC.

    Without `by` and `parts` an overview: the total, and usage by model, agent, status and day, tools and latencies.
    """
    only: Only = {"since": since, "until": until, "agent": agent, "model": model, "user": user}
    figures = caller.store.statistics
    found: Json = {
        "project": caller.project,
        "since": format_time(since) if since else None,
        "until": format_time(until) if until else None,
    }
    if by:
        found["usage"] = (await figures.usage(*by, **only)).as_json()
    for part in parts or ():
        found[part] = await _part(figures, part, only, limit)
    if not by and not parts:
        found |= await _overview(figures, only)
    return Exact(found)


async def _overview(figures: Statistics, only: Only) -> Json:
    models = await figures.usage("model", **only)
    groups: Sequence[Group] = ("agent", "status", "day")
    return {
        "total": models.total.as_json(),
        "by_model": models.as_json()["rows"],
        **{f"by_{group}": (await figures.usage(group, **only)).as_json()["rows"] for group in groups},
        "tools": [one.as_json() for one in await figures.tools(**only)],
        "latency": [one.as_json() for one in await figures.models(**only)],
    }


async def _part(figures: Statistics, part: Part, only: Only, limit: int) -> list[Json] | Json:
    if part == "usage":
        return (await figures.usage(**only)).as_json()
    if part == "tools":
        return [one.as_json() for one in await figures.tools(**only)]
    if part == "latency":
        return [one.as_json() for one in await figures.models(**only)]
    if part == "failed":
        only = {**only, "status": "failed"}
    order = "slowest" if part == "slowest" else "newest"
    return [_run(run) for run in await figures.runs(order=order, limit=limit, **only)]


def _run(run: Run) -> Json:
    took = None if run.completed_at is None else round((run.completed_at - run.started_at).total_seconds() * 1000)
    return {**run.as_json(), "usage": run.usage, "duration_ms": took}
