"""Traces as rows of three tables: runs, model calls and tool calls.

The lens `langsmith` provides the rows. The routes return only rows of the caller's project.
"""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query, Request
from starlette.responses import JSONResponse

from lockstitch.integrations.langsmith.export import find_run
from lockstitch.lenses.catalog import script
from lockstitch.model import Json, Run, codec, format_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Ingester, Reader
from lockstitch.server.ingest.langsmith_write import take
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.store.store import run_sql

router = LazyRouter(tags=["traces"], default_response_class=ExactJSON)

_ROWS: Final = 100_000
_SECONDS: Final = 30.0


@router.get("/traces", response_model=responses.Traces)
async def traces(
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[int, Query(ge=0, le=100_000)] = 0,
) -> ExactJSON:
    """List runs as rows of `agent_runs`, newest first."""
    runs = [run for run in await caller.store.statistics.runs(limit=limit + offset) if run.parent_run_id is None]
    runs = runs[offset:]
    rows = {row["row_id"]: row for row in await _rows(caller, "agent_runs", "row_id", runs)}
    return ExactJSON({"traces": [_shown(rows[str(run.id)]) for run in runs if str(run.id) in rows]})


@router.get("/trace/{trace_id}", response_model=responses.TraceRows)
async def trace(caller: Reader, trace_id: str) -> ExactJSON:
    """Return a run with its rows of `llm_calls` and `tool_calls`."""
    run, calls, tools = await _parts(caller, trace_id)
    return ExactJSON(
        {"run": _shown(run), "llm_calls": list(map(_shown, calls)), "tool_calls": list(map(_shown, tools))}
    )


@router.get("/trace_nested/{trace_id}", response_model=responses.TraceNested)
async def trace_nested(caller: Reader, trace_id: str) -> ExactJSON:
    """Return a run as a tree of steps with their tool calls."""
    run, calls, tools = await _parts(caller, trace_id)
    below: dict[str | None, list[Json]] = {}
    for tool in tools:
        below.setdefault(tool["llm_call_id_row"], []).append(_shown(tool))
    steps = [{**_shown(call), "children": below.pop(call["row_id"], [])} for call in calls]
    # Tool calls without a model call are children of the run.
    return ExactJSON(
        {**_shown(run), "steps": steps, "children": [tool for nested_tools in below.values() for tool in nested_tools]}
    )


@router.post("/langsmith-webhook", status_code=202, response_model=responses.Taken)
async def webhook(request: Request, caller: Ingester) -> JSONResponse:
    """Accept a webhook of a LangSmith automation rule: {"rule_id": …, "runs": […]}."""
    return await take(request, caller)


async def _parts(caller: Caller, trace_id: str) -> tuple[Json, list[Json], list[Json]]:
    await caller.state.intake.settled(5.0)
    run = await find_run(caller.store, trace_id)
    add_log_fields(run=run.id, thread=run.thread_id)
    rows = await _rows(caller, "agent_runs", "row_id", [run])
    calls = await _rows(caller, "llm_calls", "run_id_row", [run])
    tools = await _rows(caller, "tool_calls", "run_id_row", [run])
    calls.sort(key=lambda call: (call["step_index"] is None, call["step_index"], call["row_id"]))
    return rows[0], calls, sorted(tools, key=lambda tool: str(tool["row_id"]))


async def _rows(caller: Caller, table: str, column: str, runs: list[Run]) -> list[Json]:
    """Return the rows of a lens table for these runs of the caller's project."""
    if not runs:
        return []
    # These are ids of the record, so no user input gets into the statement.
    ids = ", ".join(f"'{run.id}'" for run in runs)
    query = f"SELECT * FROM lens_{table} WHERE {column} IN ({ids})"
    answer = await run_sql(caller.state.store, query, limit=_ROWS, seconds=_SECONDS, lens="langsmith", own=True)
    json = _json_columns(table)
    return [
        {name: _read(value, name in json) for name, value in zip(answer.columns, row, strict=True)}
        for row in answer.rows
    ]


def _read(value: Any, is_json: bool) -> Any:
    if is_json and isinstance(value, str):
        return codec.loads(value)
    return str(value) if isinstance(value, UUID) else format_time(value) if isinstance(value, datetime) else value


def _shown(row: Json) -> Json:
    """Return a row without its internal ids."""
    return {name: value for name, value in row.items() if name != "row_id" and not name.endswith("_row")}


def _json_columns(table: str) -> frozenset[str]:
    """Return the JSON columns of a table. SQLite returns them as text."""
    inside = False
    matches: set[str] = set()
    for line in script("langsmith", "tables").splitlines():
        if line.startswith("CREATE TABLE"):
            inside = f" {table} " in line
        elif inside and " JSON " in line:
            matches.add(line.split()[0])
    return frozenset(matches)
