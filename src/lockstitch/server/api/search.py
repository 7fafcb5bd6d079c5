"""Search, errors, statistics and SQL."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from lockstitch.lenses import catalog
from lockstitch.model import Json, Run, format_time
from lockstitch.model.format import plain
from lockstitch.model.statistics import Group
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Limit, Since, TextParam, TimeParam, rows
from lockstitch.server.auth import Admin, Caller, Reader
from lockstitch.server.routing import LazyRouter
from lockstitch.store import QueryResult
from lockstitch.store.reports.matches import describe_hits
from lockstitch.store.reports.statistics import RunFilter, Statistics

statistics_router = LazyRouter(prefix="/api/stats", tags=["statistics"], default_response_class=ExactJSON)

_MOST_GROUPS = 100_000
"""Largest value of the parameter `most`."""

Part = Literal["usage", "tools", "latency", "newest", "slowest", "failed"]


@statistics_router.get("", response_model=responses.Statistics)
async def stats(
    caller: Reader,
    by: Annotated[list[Group] | None, Query(description="Group usage by these fields.")] = None,
    parts: Annotated[list[Part] | None, Query(description="The parts to return. Default: an overview.")] = None,
    since: Since = None,
    until: Annotated[TimeParam | None, Query(description="Only before this time (with time zone).")] = None,
    agent: Annotated[TextParam | None, Query()] = None,
    model: Annotated[TextParam | None, Query()] = None,
    user: Annotated[TextParam | None, Query()] = None,
    limit: Limit = 20,
    most: Annotated[int, Query(ge=1, le=_MOST_GROUPS, description="Maximum number of rows of usage by group.")] = 1000,
) -> ExactJSON:
    """Return tokens, cost, latencies and errors of the runs of the project. Runs count at their start time in UTC.

    Without `by` and `parts` it returns an overview: the total, usage by model, agent, status and day, tools and
    latencies.
    """
    only: RunFilter = {"since": since, "until": until, "agent": agent, "model": model, "user": user}
    figures = caller.store.statistics
    result: Json = {
        "project": caller.project,
        "since": format_time(since) if since else None,
        "until": format_time(until) if until else None,
    }
    if by:
        result["usage"] = (await figures.usage(*by, most=most, **only)).as_json()
    for part in parts or ():
        result[part] = await _part(figures, part, only, limit)
    if not by and not parts:
        result |= await _overview(figures, only)
    return ExactJSON(result)


@statistics_router.get("/tokens", response_model=list[responses.ThreadUsage])
async def tokens(
    caller: Reader, since: Annotated[TimeParam, Query(description="Only runs since this time (with time zone).")]
) -> ExactJSON:
    """List the average input and output tokens per run for each thread."""
    usages = await caller.store.average_tokens(since)
    return ExactJSON([{**usage._asdict(), "thread_id": str(usage.thread_id)} for usage in usages])


async def _overview(figures: Statistics, only: RunFilter) -> Json:
    groups: tuple[Group, ...] = ("model", "agent", "status", "day")
    tables = await figures.breakdown(*groups, **only)
    return {
        "total": tables[0].total.as_json(),
        **{f"by_{group}": table.as_json()["rows"] for group, table in zip(groups, tables, strict=True)},
        "tools": [tool.as_json() for tool in await figures.tools(**only)],
        "latency": [model.as_json() for model in await figures.models(**only)],
    }


async def _part(figures: Statistics, part: Part, only: RunFilter, limit: int) -> list[Json] | Json:
    if part == "usage":
        return (await figures.usage(**only)).as_json()
    if part == "tools":
        return [tool.as_json() for tool in await figures.tools(**only)]
    if part == "latency":
        return [model.as_json() for model in await figures.models(**only)]
    if part == "failed":
        only = {**only, "status": "failed"}
    order = "slowest" if part == "slowest" else "newest"
    return [_run(run) for run in await figures.runs(order=order, limit=limit, **only)]


def _run(run: Run) -> Json:
    took = None if run.completed_at is None else round((run.completed_at - run.started_at).total_seconds() * 1000)
    return {**run.as_json(), "usage": run.usage, "duration_ms": took}


sql_router = LazyRouter(prefix="/api/sql", tags=["sql"], default_response_class=ExactJSON)

Lens = Literal["three_table", "reasoning", "langsmith", "agentic_threads", "agno"]
assert set(catalog.NAMES) == set(Lens.__args__)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]

_LONGEST = 100_000


class Question(Body):
    """A SELECT statement on the core tables or on a lens."""

    query: Annotated[TextParam, Field(min_length=1, max_length=_LONGEST)]
    lens: Lens | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


@sql_router.get("", response_model=responses.Cells)
async def sql(
    caller: Admin,
    q: Annotated[TextParam, Query(min_length=1, max_length=_LONGEST)],
    lens: Annotated[Lens | None, Query()] = None,
    limit: Annotated[int | None, Query(ge=1)] = None,
) -> ExactJSON:
    """Run a SQL query. It sees all projects."""
    return as_answer(await ask(caller, q, lens, limit))


@sql_router.post("", response_model=responses.Cells)
async def ask_sql(caller: Admin, question: Question) -> ExactJSON:
    """Run a SQL query that is too long for a URL. It sees all projects."""
    return as_answer(await ask(caller, question.query, question.lens, question.limit))


async def ask(caller: Caller, query: str, lens: str | None = None, limit: int | None = None) -> QueryResult:
    """Run a statement within the limits of the server. The audit log gets it first."""
    settings = caller.state.settings
    await caller.store.audits.record(caller.actor, "sql", lens or "record", query=query)
    most = settings.sql_rows if limit is None else min(limit, settings.sql_rows)
    return await caller.store.sql(query, limit=most, seconds=settings.sql_seconds, lens=lens, force=settings.sql_force)


def as_answer(answer: QueryResult) -> ExactJSON:
    rows = [[plain(value) for value in row] for row in answer.rows]
    return ExactJSON({"columns": answer.columns, "rows": rows, "more": answer.truncated})


search_router = LazyRouter(prefix="/api", tags=["finding"], default_response_class=ExactJSON)


@search_router.get("/search", response_model=list[responses.Hit])
async def search(
    caller: Reader,
    q: Annotated[TextParam, Query(min_length=1, max_length=1000, description="Words. Results contain all of them.")],
    limit: Limit = 20,
) -> ExactJSON:
    """Search titles, messages, tool calls, tool results and errors. Best results first, with the text around a word.

    The header `Lockstitch-Unindexed` has the number of stitches that are not searched yet, if there are any.
    """
    hits = await caller.store.search(q, limit=limit, complete=False)
    unindexed = await caller.store.unindexed()
    headers = {"Lockstitch-Unindexed": str(unindexed)} if unindexed else None
    return ExactJSON([row for row, _ in await describe_hits(caller.store, hits, q)], headers=headers)


@search_router.get("/errors", response_model=list[responses.Stitch])
async def errors(caller: Reader, since: Since = None, limit: Limit = 50) -> ExactJSON:
    """List the latest errors of all threads, newest first."""
    return ExactJSON(rows(await caller.store.errors(limit=limit, since=since)))
