"""LangSmith's protocol, as its clients read in it: runs and projects, as far as the record can tell of them."""

import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, cast
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from lockstitch.errors import NotFound
from lockstitch.records import Json, Run, codec, format_time, parse_time
from lockstitch.server.access import Caller, Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact
from lockstitch.server.guard import mention
from lockstitch.server.ingest.langsmith import PREFIXES
from lockstitch.server.ingest.runs import read_span, roots_of, session_id, session_of, sessions, spans_of
from lockstitch.server.problems import Problem

_PAGE: Final = 100
_RUNS: Final = 20
"""Traces that are read at once."""
_SESSIONS: Final = 5_000
"""Runs that are looked at for their projects, the newest ones."""
_SETTLING: Final = 5.0
"""Seconds that a reader waits for what was sent before to be in the record."""

_MOMENT: Final = timedelta(microseconds=1)
_UNSERVED: Final = ("query", "filter", "trace_filter", "tree_filter", "reference_example")


_PAGE_OF_RUN: Final[dict[int | str, dict[str, Any]]] = {303: {"description": "The page of the run, for a browser"}}
_NOT_SERVED: Final[dict[int | str, dict[str, Any]]] = {501: {"description": "A filter that this server does not have"}}


class Asked(BaseModel):
    """What LangSmith's client asks for when it lists runs."""

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
        """Whether a span is one of those asked for."""
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
    """One run (a span), by LangSmith's id or by ours. A browser is led to its page."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    at_root = request.url.path.removeprefix(base).startswith("/runs/")
    if at_root and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{base}/run/{quote(run_id, safe='')}", 303)
    await caller.house.intake.settled(_SETTLING)
    span = await read_span(caller.store, codec.check_text(run_id, "The id"))
    mention(run=span["id"])
    return Exact(span)


async def list_runs(caller: Reader, asked: Asked) -> Exact:
    """Runs (spans): the newest traces first, the spans of each together."""
    unserved = [name for name in _UNSERVED if (asked.model_extra or {}).get(name)]
    if unserved:
        raise Problem(
            501,
            "Not served",
            f"Runs cannot be asked for by {' or '.join(unserved)} here. Ask by project, id, trace, run_type, parent, "
            "is_root, error and start_time, or in SQL: lockstitch sql --lens langsmith.",
        )
    await caller.house.intake.settled(_SETTLING)
    most = min(asked.limit or _PAGE, _PAGE)
    found: list[Json] = []
    following: str | None = None
    async for span, here in _spans(caller, asked):
        if not asked.wants(span):
            continue
        if len(found) == most:
            following = here
            break
        found.append(span)
    return Exact({"runs": [_selected(span, asked.select) for span in found], "cursors": {"next": following}})


async def _spans(caller: Caller, asked: Asked) -> AsyncIterator[tuple[Json, str | None]]:
    """Every span that may be one of those asked for, with the cursor that leads back to it."""
    store = caller.store
    if asked.id is not None:
        for ref in asked.id:
            with suppress(NotFound):
                yield await read_span(store, codec.check_text(ref, "The id")), None
        return
    if asked.trace is not None:
        with suppress(NotFound):
            run = await store.run(codec.check_text(asked.trace, "The trace"))
            skip = _cursor(asked.cursor)[2] if asked.cursor else 0
            for number, span in enumerate(await spans_of(store, run)):
                if number >= skip:
                    yield span, _cursor_text(run, number)
        return
    async for run, skip in _runs(caller, asked):
        spans = await roots_of(store, [run]) if asked.is_root else await spans_of(store, run)
        for number, span in enumerate(spans):
            if number >= skip:
                yield span, _cursor_text(run, number)


async def _runs(caller: Caller, asked: Asked) -> AsyncIterator[tuple[Run, int]]:
    """Runs of the projects that are asked for, the newest first, and how many of a run's spans were given before."""
    store = caller.store
    at, run_id, skip = _cursor(asked.cursor) if asked.cursor else (None, "", 0)
    since = _later(_aware(asked.start_time), timedelta(days=-1)) if asked.start_time else None
    seen: set[str] = set()
    until = _later(at, _MOMENT) if at else None
    reached = at is None
    while True:
        # As many again as began in the same moment as the last one, so that none is passed over.
        runs = await store.statistics.runs(limit=_RUNS + len(seen), since=since, until=until)
        fresh = [run for run in runs if str(run.id) not in seen]
        for run in fresh:
            if not reached and at is not None:
                reached = str(run.id) == run_id or run.started_at < at
                if not reached:
                    continue
            first = skip if str(run.id) == run_id else 0
            if asked.session is None or session_id(store.project, session_of(store, run)) in asked.session:
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
) -> Exact:
    """Projects in LangSmith's sense: names that runs carry."""
    await caller.house.intake.settled(_SETTLING)
    found = await sessions(caller.store, _SESSIONS)
    found = [
        one
        for one in found
        if name in (None, one["name"])
        and (name_contains or "").lower() in str(one["name"]).lower()
        and (id is None or one["id"] in id)
    ]
    return Exact(found[offset : offset + limit])


async def read_session(caller: Reader, session: str) -> Exact:
    """One project in LangSmith's sense."""
    await caller.house.intake.settled(_SETTLING)
    for one in await sessions(caller.store, _SESSIONS):
        if one["id"] == session:
            return Exact(one)
    raise NotFound(f"No run here is of a LangSmith project {session}.")


def routers() -> tuple[APIRouter, ...]:
    return tuple(map(_router, PREFIXES))


def _router(prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["langsmith"], default_response_class=Exact)
    add = router.add_api_route
    add("/runs/query", list_runs, methods=["POST"], response_model=shapes.LangSmithRuns, responses=_NOT_SERVED)
    add("/runs/{run_id}", read_run, methods=["GET"], response_model=shapes.LangSmithRun, responses=_PAGE_OF_RUN)
    add("/sessions", list_sessions, methods=["GET"], response_model=list[shapes.LangSmithProject])
    add("/sessions/{session}", read_session, methods=["GET"], response_model=shapes.LangSmithProject)
    return router


def _selected(span: Json, names: list[str] | None) -> Json:
    if not names:
        return span
    # What the client cannot do without comes in any case.
    always = ("id", "name", "run_type", "start_time", "trace_id", "dotted_order", "parent_run_id", "session_id")
    return {name: span[name] for name in dict.fromkeys((*always, *names)) if name in span}


def _cursor_text(run: Run, number: int) -> str:
    said = codec.dumps([format_time(run.started_at), str(run.id), number])
    return base64.urlsafe_b64encode(said).decode()


def _cursor(text: str) -> tuple[datetime, str, int]:
    try:
        said: Any = codec.loads(base64.urlsafe_b64decode(text.encode()))
        at, run_id, number = cast("list[Any]", said)
        return parse_time(str(at)), str(run_id), int(number)
    except (ValueError, TypeError, OverflowError, binascii.Error) as exc:
        raise Problem(422, "Refused", "This cursor was not made here.") from exc


def _later(moment: datetime, by: timedelta) -> datetime:
    """Another time, or the same where there is none beyond it."""
    try:
        return moment + by
    except OverflowError:
        return moment


def _aware(moment: datetime) -> datetime:
    """LangSmith's client sends times without a zone; they are in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
