"""LangSmith's read protocol: routes and JSON objects."""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Final, cast
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from lockstitch.errors import NotFound
from lockstitch.integrations.langsmith.export import export_run, exported_span
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.integrations.spans.trace import trace_of
from lockstitch.model import Json, Run, Stitch, as_id, codec, foreign_id, format_time, parse_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.ingest.langsmith_write import PREFIXES
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.problems import Problem
from lockstitch.store import Store

_KINDS: Final = {"llm_call": "llm", "tool_call": "tool"}
_WORDS: Final = frozenset({"chain", "llm", "tool", "retriever", "embedding", "prompt", "parser"})
_ORDER: Final = re.compile(r"(?:^|\.)\d{8}T\d{6,15}Z")


def session_id(project: str, name: str) -> str:
    """Return the id of a LangSmith project. Here a project is only a name in the state of runs."""
    return str(foreign_id(project, "langsmith", f"session:{name}"))


def session_of(store: Store, run: Run) -> str:
    """Return the LangSmith project of a run. Native runs have the project of the store."""
    group = run.state.get("group")
    return str(group) if group else store.project if run.source == "native" else "default"


async def spans_of(store: Store, run: Run) -> list[Json]:
    """Return all spans of a run, root first."""
    if run.source == "native":
        return [_complete_span(store, run, value) for value in await export_run(store, str(run.id))]
    spans = [_mirrored(store, run, stitch) for stitch in await store.log(run.id) if stitch.data.get("id")]
    return sorted(spans, key=lambda span: (span["parent_run_id"] is not None, span["start_time"], span["id"]))


async def roots_of(store: Store, runs: Iterable[Run]) -> list[Json]:
    """Return the root spans of the runs in order. Runs without a root span are left out."""
    names = MirrorIds(store.project, "langsmith")
    mirrors = {run.id: run for run in runs}
    wanted = {names.span(trace_of(run)): run for run in mirrors.values() if run.foreign_id}
    stitches = {row.run_id: row for row in (await store.mirrors.stitches(wanted)).values() if row.data.get("id")}
    roots: list[Json] = []
    for run in mirrors.values():
        row = stitches.get(run.id)
        if row is not None:
            roots.append(_mirrored(store, run, row))
        else:
            roots += [span for span in (await spans_of(store, run))[:1] if span["parent_run_id"] is None]
    return roots


async def read_span(store: Store, ref: str) -> Json:
    """Return a span by its LangSmith id or its own id. The id of a run returns its root span."""
    stitches = await store.mirrors.stitches([MirrorIds(store.project, "langsmith").span(ref)])
    for stitch in stitches.values():
        if stitch.run_id is not None and stitch.data.get("id"):
            return _mirrored(store, await store.run(stitch.run_id), stitch)
    own = as_id(ref)
    if own is not None:
        try:
            stitch = await store.stitch(own)
        except NotFound:
            pass
        else:
            if stitch.run_id is not None:
                spans = await spans_of(store, await store.run(stitch.run_id))
                for span in spans:
                    if span["id"] == ref:
                        return span
    run = await store.run(ref)
    spans = await spans_of(store, run)
    if not spans:
        raise NotFound(f"Run {ref} has no span yet.")
    return spans[0]


def _mirrored(store: Store, run: Run, stitch: Stitch) -> Json:
    """Return a span as it was received, with computed fields."""
    value = exported_span(stitch.data)
    began = stitch.at or run.started_at
    if as_id(str(value["id"])) is None or as_id(str(value.get("trace_id"))) is None:
        # The client accepts only UUIDs, so use the ids of the record for spans of other systems.
        above = stitch.parent_id if value.get("parent_run_id") else None
        value |= {"id": str(stitch.id), "trace_id": str(run.id), "parent_run_id": str(above) if above else None}
        value.pop("dotted_order", None)
    counted = stitch.input_tokens is not None or stitch.output_tokens is not None
    tokens = (stitch.input_tokens or 0, stitch.output_tokens or 0)
    figures: Json = {"prompt_tokens": None, "completion_tokens": None}
    if counted:
        figures = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    elif value["parent_run_id"] is None:
        figures = {
            "prompt_tokens": run.input_tokens,
            "completion_tokens": run.output_tokens,
            "total_tokens": run.input_tokens + run.output_tokens,
            "total_cost": run.total_cost,
        }
    cost = stitch.data.get("cost")
    if isinstance(cost, int | float):
        figures["total_cost"] = cost
    kind = str(value.get("run_type") or "")
    return _complete_span(
        store,
        run,
        {
            **value,
            **figures,
            "name": value.get("name") or stitch.name or "run",
            "run_type": kind if kind in _WORDS else _KINDS.get(stitch.type, "chain"),
            "start_time": value.get("start_time") or format_time(began),
        },
    )


def _complete_span(store: Store, run: Run, value: Json) -> Json:
    """Return a span with all fields that the client's schema requires."""
    order = str(value.get("dotted_order") or "")
    above = [item for item in _ORDER.split(order)[1:-1] if as_id(item)]
    failed = bool(value.get("error"))
    ended = value.get("end_time") is not None
    name = session_of(store, run)
    return {
        "inputs": {},
        "outputs": None,
        "end_time": None,
        "error": None,
        "events": [],
        "tags": [],
        "extra": {},
        "total_tokens": None,
        "total_cost": None,
        **value,
        "status": value.get("status") or ("error" if failed else "success" if ended else "pending"),
        "session_id": session_id(store.project, name),
        "session_name": name,
        "dotted_order": order,
        "parent_run_ids": above or ([value["parent_run_id"]] if value.get("parent_run_id") else []),
        "child_run_ids": None,
        "thread_id": value.get("thread_id"),
        "app_path": f"/run/{run.id}",
        "feedback_stats": None,
        "reference_example_id": None,
    }


async def sessions(store: Store, most: int) -> list[Json]:
    """Return the LangSmith projects of the newest runs, most recently used first."""
    first: dict[str, datetime] = {}
    for run in await store.statistics.runs(limit=most):
        name = session_of(store, run)
        first[name] = min(run.started_at, first.get(name, run.started_at))
    return [_session(store, name, began) for name, began in first.items()]


def _session(store: Store, name: str, began: datetime) -> Json:
    result: dict[str, Any] = {
        "id": session_id(store.project, name),
        "name": name,
        "start_time": format_time(began),
        "end_time": None,
        "description": None,
        "extra": {},
        "tenant_id": str(UUID(int=0)),
        "reference_dataset_id": None,
    }
    return result


_PAGE: Final = 100
_RUNS: Final = 20
"""Number of traces per read."""
_SESSIONS: Final = 5_000
"""Number of newest runs that are searched for projects."""
_SETTLING: Final = 5.0
"""Seconds to wait for queued bodies before a read."""

_MOMENT: Final = timedelta(microseconds=1)
_UNSERVED: Final = ("query", "filter", "trace_filter", "tree_filter", "reference_example")


_PAGE_OF_RUN: Final[dict[int | str, dict[str, Any]]] = {303: {"description": "The page of the run, for a browser"}}
_NOT_SERVED: Final[dict[int | str, dict[str, Any]]] = {501: {"description": "A filter that this server does not have"}}


class RunQuery(BaseModel):
    """The filters of a LangSmith run query."""

    model_config = ConfigDict(extra="allow")

    session: list[str] | None = None
    id: list[str] | None = Field(default=None, max_length=1000)
    trace: str | None = None
    parent_run: str | None = None
    run_type: str | None = None
    is_root: bool | None = None
    error: bool | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    limit: int | None = Field(default=None, ge=1)
    cursor: str | None = None
    select: list[str] | None = None

    def wants(self, span: Json) -> bool:
        """True if a span matches the filters."""
        if self.is_root is not None and self.is_root != (span["parent_run_id"] is None):
            return False
        if self.error is not None and self.error != bool(span["error"]):
            return False
        if self.run_type is not None and span["run_type"] != self.run_type:
            return False
        if self.parent_run is not None and span["parent_run_id"] != self.parent_run:
            return False
        if self.trace is not None and span["trace_id"] != self.trace:
            return False
        began = parse_time(span["start_time"])
        if self.start_time is not None and began < _aware(self.start_time):
            return False
        return self.end_time is None or began <= _aware(self.end_time)


async def read_run(request: Request, caller: Reader, run_id: str) -> Response:
    """Return a run (a span) by its LangSmith id or its own id. Browsers are redirected to its page."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    at_root = request.url.path.removeprefix(base).startswith("/runs/")
    if at_root and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{base}/run/{quote(run_id, safe='')}", 303)
    await caller.state.intake.settled(_SETTLING)
    span = await read_span(caller.store, codec.check_text(run_id, "The id"))
    add_log_fields(run=span["id"])
    return ExactJSON(span)


async def list_runs(caller: Reader, run_query: RunQuery) -> ExactJSON:
    """List runs (spans): newest traces first, the spans of a trace together."""
    unserved = [name for name in _UNSERVED if (run_query.model_extra or {}).get(name)]
    if unserved:
        raise Problem(
            501,
            "Not supported",
            f"Filtering runs by {' or '.join(unserved)} is not supported. Filter by project, id, trace, run_type, "
            "parent, is_root, error and start_time, or use SQL: lockstitch sql --lens langsmith.",
        )
    await caller.state.intake.settled(_SETTLING)
    most = min(run_query.limit or _PAGE, _PAGE)
    matches: list[Json] = []
    following: str | None = None
    async for span, here in _spans(caller, run_query):
        if not run_query.wants(span):
            continue
        if len(matches) == most:
            following = here
            break
        matches.append(span)
    return ExactJSON({"runs": [_selected(span, run_query.select) for span in matches], "cursors": {"next": following}})


async def _spans(caller: Caller, run_query: RunQuery) -> AsyncIterator[tuple[Json, str | None]]:
    """Yield the candidate spans with their cursors."""
    store = caller.store
    if run_query.id is not None:
        for ref in run_query.id:
            with suppress(NotFound):
                yield await read_span(store, codec.check_text(ref, "The id")), None
        return
    if run_query.trace is not None:
        with suppress(NotFound):
            run = await store.run(codec.check_text(run_query.trace, "The trace"))
            skip = _cursor(run_query.cursor)[2] if run_query.cursor else 0
            for number, span in enumerate(await spans_of(store, run)):
                if number >= skip:
                    yield span, _cursor_text(run, number)
        return
    async for run, skip in _runs(caller, run_query):
        spans = await roots_of(store, [run]) if run_query.is_root else await spans_of(store, run)
        for number, span in enumerate(spans):
            if number >= skip:
                yield span, _cursor_text(run, number)


async def _runs(caller: Caller, run_query: RunQuery) -> AsyncIterator[tuple[Run, int]]:
    """Yield the runs of the requested projects, newest first, with the number of spans to skip."""
    store = caller.store
    at, run_id, skip = _cursor(run_query.cursor) if run_query.cursor else (None, "", 0)
    since = _later(_aware(run_query.start_time), timedelta(days=-1)) if run_query.start_time else None
    seen: set[str] = set()
    until = _later(at, _MOMENT) if at else None
    reached = at is None
    while True:
        # Read additional runs with the same start time as the last one, so none is skipped.
        runs = await store.statistics.runs(limit=_RUNS + len(seen), since=since, until=until)
        fresh = [run for run in runs if str(run.id) not in seen]
        for run in fresh:
            if not reached and at is not None:
                reached = str(run.id) == run_id or run.started_at < at
                if not reached:
                    continue
            first = skip if str(run.id) == run_id else 0
            if run_query.session is None or session_id(store.project, session_of(store, run)) in run_query.session:
                yield run, first
        if len(fresh) < _RUNS:
            return
        last = fresh[-1].started_at
        until = _later(last, _MOMENT)
        seen = {str(run.id) for run in runs if run.started_at == last}


async def list_sessions(
    caller: Reader,
    name: str | None = None,
    name_contains: str | None = None,
    id: Annotated[list[str] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> ExactJSON:
    """List LangSmith projects."""
    await caller.state.intake.settled(_SETTLING)
    matches = await sessions(caller.store, _SESSIONS)
    matches = [
        item
        for item in matches
        if name in (None, item["name"])
        and (name_contains or "").lower() in str(item["name"]).lower()
        and (id is None or item["id"] in id)
    ]
    return ExactJSON(matches[offset : offset + limit])


async def read_session(caller: Reader, session: str) -> ExactJSON:
    """Return a LangSmith project."""
    await caller.state.intake.settled(_SETTLING)
    for item in await sessions(caller.store, _SESSIONS):
        if item["id"] == session:
            return ExactJSON(item)
    raise NotFound(f"LangSmith project {session} not found.")


@cache
def routers() -> tuple[APIRouter, ...]:
    return tuple(map(_router, PREFIXES))


def _router(prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["langsmith"], default_response_class=ExactJSON)
    add = router.add_api_route
    add("/runs/query", list_runs, methods=["POST"], response_model=responses.LangSmithRuns, responses=_NOT_SERVED)
    add("/runs/{run_id}", read_run, methods=["GET"], response_model=responses.LangSmithRun, responses=_PAGE_OF_RUN)
    add("/sessions", list_sessions, methods=["GET"], response_model=list[responses.LangSmithProject])
    add("/sessions/{session}", read_session, methods=["GET"], response_model=responses.LangSmithProject)
    return router


def _selected(span: Json, names: list[str] | None) -> Json:
    if not names:
        return span
    # Always include the fields that the client requires.
    always = ("id", "name", "run_type", "start_time", "trace_id", "dotted_order", "parent_run_id", "session_id")
    return {name: span[name] for name in dict.fromkeys((*always, *names)) if name in span}


def _cursor_text(run: Run, number: int) -> str:
    value = codec.dumps([format_time(run.started_at), str(run.id), number])
    return base64.urlsafe_b64encode(value).decode()


def _cursor(text: str) -> tuple[datetime, str, int]:
    try:
        value: Any = codec.loads(base64.urlsafe_b64decode(text.encode()))
        at, run_id, number = cast("list[Any]", value)
        return parse_time(str(at)), str(run_id), int(number)
    except (ValueError, TypeError, OverflowError, binascii.Error) as exc:
        raise Problem(422, "Refused", "The cursor is not valid.") from exc


def _later(moment: datetime, by: timedelta) -> datetime:
    """Return a shifted time, or the same time if the result is out of range."""
    try:
        return moment + by
    except OverflowError:
        return moment


def _aware(moment: datetime) -> datetime:
    """Return the time in UTC. LangSmith's client sends times without a time zone."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
