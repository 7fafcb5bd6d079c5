"""Runs of LangSmith's API v1: read, list, statistics."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from lockstitch.model import Json, codec
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.ingest.langsmith.aggregates import Aggregate
from lockstitch.server.ingest.langsmith.attachments import UrlSigner, attachments_of
from lockstitch.server.ingest.langsmith.feedback import feedback_on, feedback_stats
from lockstitch.server.ingest.langsmith.query import RunQuery, aware, find_page, find_spans, parsed_filter
from lockstitch.server.ingest.langsmith.spans import Span, read_span
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.problems import Problem

_PAGE: Final = 100
SETTLING: Final = 5.0
"""Seconds to wait for queued bodies before a read."""
_ALWAYS: Final = ("id", "name", "run_type", "start_time", "trace_id", "dotted_order", "parent_run_id", "session_id")
"""Fields that the client requires."""

_PAGE_OF_RUN: Final[dict[int | str, dict[str, Any]]] = {303: {"description": "The page of the run, for a browser"}}
_WRONG_FILTER: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "A filter that is not valid"},
    501: {"description": "A query in natural language"},
}


class RunConditions(BaseModel):
    """The conditions of a LangSmith query of runs."""

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
    reference_example: list[str] | None = Field(default=None, max_length=1000)
    filter: str | None = None
    trace_filter: str | None = None
    tree_filter: str | None = None

    def query(self, order: str | None = None) -> RunQuery:
        """Return the conditions in the form that `find_spans` takes. Raises a problem for a wrong filter."""
        if (self.model_extra or {}).get("query"):
            raise Problem(
                501,
                "Not supported",
                "This server does not implement queries in natural language. Use filter, for example "
                "filter='search(\"refund\")'.",
            )
        return RunQuery(
            sessions=None if self.session is None else frozenset(self.session),
            ids=self.id,
            trace=self.trace,
            parent=self.parent_run,
            run_type=self.run_type,
            is_root=self.is_root,
            error=self.error,
            since=aware(self.start_time),
            until=aware(self.end_time),
            examples=None if self.reference_example is None else frozenset(self.reference_example),
            filter=parsed_filter(self.filter),
            trace_filter=parsed_filter(self.trace_filter, "trace_filter"),
            tree_filter=parsed_filter(self.tree_filter, "tree_filter"),
            ascending=order == "asc",
        )


class RunPage(RunConditions):
    """A LangSmith query of runs: conditions, and the page to return."""

    limit: int | None = Field(default=None, ge=1)
    cursor: str | None = None
    select: list[str] | None = None
    order: str | None = None


async def read_run(request: Request, caller: Reader, run_id: str) -> Response:
    """Return a run (a span) by its LangSmith id or its own id. Browsers are redirected to its page."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    at_root = request.url.path.removeprefix(base).startswith("/runs/")
    if at_root and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{base}/run/{quote(run_id, safe='')}", 303)
    await caller.state.intake.settled(SETTLING)
    span = await read_span(caller.store, codec.check_text(run_id, "The id"))
    add_log_fields(run=span.id)
    (value,) = await shown(request, caller, [span])
    return ExactJSON(value)


async def list_runs(request: Request, caller: Reader, run_query: RunPage) -> ExactJSON:
    """List runs (spans): newest traces first, the spans of a trace together."""
    query = run_query.query(run_query.order)
    await caller.state.intake.settled(SETTLING)
    page = await find_page(caller.store, query, min(run_query.limit or _PAGE, _PAGE), run_query.cursor)
    return ExactJSON(
        {"runs": await shown(request, caller, page.spans, run_query.select), "cursors": {"next": page.next}}
    )


async def run_stats(caller: Reader, run_query: RunConditions) -> ExactJSON:
    """Return statistics of the runs (spans) that meet the conditions."""
    query = run_query.query()
    await caller.state.intake.settled(SETTLING)
    total = Aggregate()
    feedback: list[Json] = []
    spans: list[Span] = []
    async for found in find_spans(caller.store, query):
        total.add(found.span.value)
        spans.append(found.span)
        if len(spans) == _PAGE:
            feedback += [item for items in (await feedback_on(caller.store, spans)).values() for item in items]
            spans = []
    feedback += [item for items in (await feedback_on(caller.store, spans)).values() for item in items]
    return ExactJSON(total.as_json(feedback_stats(feedback)))


async def shown(
    request: Request, caller: Caller, spans: Sequence[Span], select: Collection[str] | None = None
) -> list[Json]:
    """Return spans with their feedback and attachments, and only with the selected fields."""
    if not spans:
        return []
    feedback = await feedback_on(caller.store, spans) if not select or "feedback_stats" in select else {}
    files: dict[str, Json] = {}
    if not select or "s3_urls" in select or "attachments" in select:
        files = await attachments_of(caller.store, spans, await UrlSigner.of(request, caller))
    values: list[Json] = []
    for span in spans:
        stats = feedback_stats(feedback[span.id]) if span.id in feedback else None
        value = {**span.value, "feedback_stats": stats, "s3_urls": files.get(span.id)}
        if select:
            value = {name: value[name] for name in dict.fromkeys((*_ALWAYS, *select)) if name in value}
        values.append(value)
    return values


def add_routes(router: APIRouter) -> None:
    add = router.add_api_route
    add("/runs/query", list_runs, methods=["POST"], response_model=responses.LangSmithRuns, responses=_WRONG_FILTER)
    add("/runs/stats", run_stats, methods=["POST"], response_model=responses.LangSmithStats, responses=_WRONG_FILTER)
    add("/runs/{run_id}", read_run, methods=["GET"], response_model=responses.LangSmithRun, responses=_PAGE_OF_RUN)
