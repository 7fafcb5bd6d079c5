"""LangSmith's API v2: runs, traces, threads, and shared traces."""

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lockstitch.errors import NotFound
from lockstitch.integrations.langsmith.filters import metadata_of, seconds_between
from lockstitch.model import Json, codec, format_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.ingest.langsmith.aggregates import Aggregate, aggregate, percentile
from lockstitch.server.ingest.langsmith.datasets import example_json
from lockstitch.server.ingest.langsmith.experiments import (
    examples_page,
    experiment_ids,
    refuse_unserved,
    runs_by_example,
)
from lockstitch.server.ingest.langsmith.feedback import feedback_on, feedback_stats
from lockstitch.server.ingest.langsmith.query import (
    RunQuery,
    aware,
    find_page,
    find_spans,
    parsed_filter,
    runs_of_thread,
)
from lockstitch.server.ingest.langsmith.runs import SETTLING, shown
from lockstitch.server.ingest.langsmith.shares import (
    NOT_FOUND,
    create_link,
    delete_link,
    link_of,
    public,
    shared_spans,
)
from lockstitch.server.ingest.langsmith.spans import Span, read_span
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.store import Store
from lockstitch.store.datasets import get_dataset

PREFIX: Final = "/api/v2"
_DAY: Final = timedelta(days=1)
_PREVIEW: Final = 200
_EVENTS: Final = "text/event-stream"

_WRONG: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "A filter that is not valid"},
    501: {"description": "A condition that this server does not implement"},
}
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {_EVENTS: {"schema": {"type": "string", "description": "One JSON patch with the whole page"}}}}
}


class RunQueryV2(BaseModel):
    """Conditions on runs (spans), and the page to return."""

    model_config = ConfigDict(extra="allow")

    cursor: str | None = None
    filter: str | None = None
    has_error: bool | None = None
    ids: list[str] | None = Field(default=None, max_length=1000)
    is_root: bool | None = None
    max_feedback_modified_at: datetime | None = None
    max_start_time: datetime | None = None
    min_feedback_modified_at: datetime | None = None
    min_start_time: datetime | None = None
    page_size: int = Field(default=100, ge=1, le=1000)
    project_ids: list[str] | None = None
    reference_dataset_id: UUID | None = None
    reference_examples: list[str] | None = Field(default=None, max_length=1000)
    run_type: str | None = None
    selects: list[str] | None = None
    trace_filter: str | None = None
    trace_id: str | None = None
    tree_filter: str | None = None


class TraceQueryV2(BaseModel):
    """Conditions on traces, and the page to return."""

    model_config = ConfigDict(extra="allow")

    cursor: str | None = None
    max_feedback_modified_at: datetime | None = None
    max_start_time: datetime | None = None
    min_feedback_modified_at: datetime | None = None
    min_start_time: datetime | None = None
    page_size: int = Field(default=100, ge=1, le=1000)
    project_id: str | None = None
    selects: list[str] | None = None
    trace_filter: str | None = None
    trace_ids: list[str] | None = Field(default=None, max_length=1000)
    tree_filter: str | None = None


class ThreadQueryV2(BaseModel):
    """Conditions on threads, and the page to return."""

    model_config = ConfigDict(extra="allow")

    cursor: str | None = None
    filter: str | None = None
    max_start_time: datetime | None = None
    min_start_time: datetime | None = None
    page_size: int = Field(default=20, ge=1, le=100)
    project_id: str | None = None
    trace_filter: str | None = None
    tree_filter: str | None = None


class ThreadStatsQuery(ThreadQueryV2):
    """Conditions on threads, and the statistics to return."""

    select: list[str] | None = None


class ExperimentRunsQuery(BaseModel):
    """Examples of a dataset with their runs in experiments."""

    model_config = ConfigDict(extra="allow")

    cursor: str | None = None
    example_ids: list[UUID] | None = Field(default=None, max_length=1000)
    experiment_ids: list[str] | None = Field(default=None, max_length=100)
    page_size: int = Field(default=20, ge=1, le=100)
    selects: list[str] | None = None


class ShareRequest(BaseModel):
    """The trace to share."""

    model_config = ConfigDict(extra="allow")

    trace_id: str | None = None


class SharedSelects(BaseModel):
    """The fields of the runs of a shared trace."""

    model_config = ConfigDict(extra="allow")

    selects: list[str] | None = None


def refuse(body: BaseModel, *names: str) -> None:
    """Raise a problem 501 if a request has one of these conditions."""
    for name in names:
        if (body.model_extra or {}).get(name):
            raise Problem(
                501, "Not supported", f"This server does not implement {name}. Use filter, or another filter."
            )


def run_v2(value: Json, selects: Collection[str] | None, share_url: str | None = None) -> Json:
    """Return a run object of the API v1 in the form of the API v2, with the selected fields."""
    files = cast("Json", value.get("s3_urls") or {})
    error = value["error"]
    fields: Json = {
        "id": value["id"],
        "name": value["name"],
        "run_type": str(value["run_type"]).upper(),
        "status": str(value["status"]).upper(),
        "start_time": value["start_time"],
        "end_time": value["end_time"],
        "latency_seconds": seconds_between(value["start_time"], value["end_time"]),
        "first_token_time": value["first_token_time"],
        "error": error,
        "error_preview": str(error)[:_PREVIEW] if error else None,
        "extra": value["extra"],
        "metadata": metadata_of(value),
        "events": value["events"],
        "inputs": value["inputs"],
        "inputs_preview": preview(value["inputs"]),
        "outputs": value["outputs"],
        "outputs_preview": preview(value["outputs"]),
        "manifest": None,
        "parent_run_ids": value["parent_run_ids"],
        "project_id": value["session_id"],
        "trace_id": value["trace_id"],
        "thread_id": value["thread_id"],
        "dotted_order": value["dotted_order"],
        "is_root": value["parent_run_id"] is None,
        "reference_example_id": value["reference_example_id"],
        "reference_dataset_id": value.get("reference_dataset_id"),
        **{f"{part}_{what}": value[f"{part}_{what}"] for part in _PARTS for what in ("tokens", "cost")},
        **{f"{part}_details": _raw(value.get(f"{part}_details")) for part in _DETAILED},
        "price_model_id": None,
        "tags": value["tags"],
        "app_path": value["app_path"],
        "attachments": {name.removeprefix("attachment."): file["presigned_url"] for name, file in files.items()},
        "thread_evaluation_time": None,
        "is_in_dataset": None,
        "last_queued_at": None,
        "share_url": share_url,
        "feedback_stats": value["feedback_stats"] or {},
        "ls_user_id": value.get("user_id"),
    }
    wanted = {name.lower() for name in selects} if selects else set[str]()
    return {name: each for name, each in fields.items() if name in wanted or name == "id"}


_PARTS: Final = ("total", "prompt", "completion")
_DETAILED: Final = ("prompt_token", "completion_token", "prompt_cost", "completion_cost")


def _raw(details: Json | None) -> Json | None:
    return {"raw": details} if details else None


def preview(value: Any) -> str | None:
    """Return the start of inputs or outputs as a text."""
    if not value:
        return None
    if isinstance(value, dict) and len(cast("Json", value)) == 1:
        (only,) = cast("Json", value).values()
        value = only if isinstance(only, str) else cast("Json", value)
    text = value if isinstance(value, str) else codec.dumps(value).decode(errors="replace")
    return text[:_PREVIEW]


def _window(store: Store, query: Any) -> tuple[datetime, datetime | None]:
    """Return the time range of a query. It starts one day ago if the client gives no start, as in LangSmith."""
    since = aware(query.min_start_time)
    return since or store.clock.now() - _DAY, aware(query.max_start_time)


def _answer(request: Request, items: list[Json], next_cursor: str | None) -> Response:
    """Return a page: as JSON, or as one server-sent event if the client streams."""
    page = {"items": items, "next_cursor": next_cursor}
    if _EVENTS not in request.headers.get("accept", ""):
        return ExactJSON(page)
    patch = codec.dumps([{"op": "add", "path": "", "value": page}])
    return Response(b"data: " + patch + b"\n\n", media_type=_EVENTS)


# Runs


async def query_runs(request: Request, caller: Reader, body: RunQueryV2) -> Response:
    """List runs (spans), newest traces first."""
    refuse(body, "ai_search")
    store = caller.store
    sessions = None if body.project_ids is None else frozenset(body.project_ids)
    if body.reference_dataset_id is not None:
        dataset = await get_dataset(store, body.reference_dataset_id)
        sessions = frozenset(await experiment_ids(store, dataset))
    since, until = _window(store, body)
    named = body.ids or body.trace_id or body.reference_dataset_id
    query = RunQuery(
        sessions=sessions,
        ids=body.ids,
        trace=body.trace_id,
        run_type=body.run_type.lower() if body.run_type else None,
        is_root=body.is_root,
        error=body.has_error,
        since=None if named and body.min_start_time is None else since,
        until=until,
        examples=None if body.reference_examples is None else frozenset(body.reference_examples),
        filter=parsed_filter(body.filter),
        trace_filter=parsed_filter(body.trace_filter, "trace_filter"),
        tree_filter=parsed_filter(body.tree_filter, "tree_filter"),
        feedback_since=aware(body.min_feedback_modified_at),
        feedback_until=aware(body.max_feedback_modified_at),
    )
    await caller.state.intake.settled(SETTLING)
    page = await find_page(store, query, body.page_size, body.cursor)
    return _answer(request, await _runs(request, caller, page.spans, body.selects), page.next)


async def _runs(request: Request, caller: Caller, spans: Sequence[Span], selects: Collection[str] | None) -> list[Json]:
    urls: dict[str, str | None] = {}
    if selects and "SHARE_URL" in selects:
        for span in spans:
            link = await link_of(caller.store, span.run)
            urls[span.id] = f"{str(request.base_url).rstrip('/')}/public/{link.token}/r" if link else None
    return [run_v2(value, selects, urls.get(value["id"])) for value in await shown(request, caller, spans)]


Selects = Annotated[list[str] | None, Query(max_length=100)]


async def read_run(
    request: Request, caller: Reader, run_id: str, project_id: str | None = None, selects: Selects = None
) -> ExactJSON:
    """Return a run (a span) of a project."""
    await caller.state.intake.settled(SETTLING)
    span = await read_span(caller.store, codec.check_text(run_id, "The id"))
    if project_id not in (None, span.value["session_id"]):
        raise NotFound(f"Run {run_id} not found in LangSmith project {project_id}.")
    (value,) = await _runs(request, caller, [span], selects)
    return ExactJSON(value)


async def run_url(request: Request, caller: Reader, run_id: str) -> ExactJSON:
    """Return the URL of the page of a run."""
    await caller.state.intake.settled(SETTLING)
    span = await read_span(caller.store, codec.check_text(run_id, "The id"))
    return ExactJSON({"url": f"{str(request.base_url).rstrip('/')}{span.value['app_path']}"})


async def share_run(caller: Writer, run_id: str, body: ShareRequest) -> ExactJSON:
    """Create the share link of the trace of a run, or return the existing one."""
    return ExactJSON({"share_token": str((await create_link(caller, run_id)).token)})


async def unshare_run(caller: Writer, run_id: str) -> Response:
    """Delete the share link of the trace of a run."""
    await delete_link(caller, run_id)
    return Response(status_code=204)


async def read_shared(request: Request, token: UUID, run_id: str, selects: Selects = None) -> ExactJSON:
    """Return a run (a span) of a shared trace."""
    for span in await shared_spans(request, token):
        if span.id == run_id:
            return ExactJSON(run_v2(public(span), selects))
    raise NotFound(f"Run {run_id} is not in the shared trace.")


async def query_shared(request: Request, token: UUID, body: SharedSelects) -> ExactJSON:
    """List the runs (spans) of a shared trace."""
    spans = await shared_spans(request, token)
    return ExactJSON({"items": [run_v2(public(span), body.selects) for span in spans]})


# Traces


async def query_traces(request: Request, caller: Reader, body: TraceQueryV2) -> Response:
    """List traces, newest first."""
    refuse(body, "ai_search")
    since, until = _window(caller.store, body)
    query = RunQuery(
        sessions=None if body.project_id is None else frozenset({body.project_id}),
        traces=body.trace_ids,
        is_root=True,
        since=None if body.trace_ids and body.min_start_time is None else since,
        until=until,
        trace_filter=parsed_filter(body.trace_filter, "trace_filter"),
        tree_filter=parsed_filter(body.tree_filter, "tree_filter"),
        feedback_since=aware(body.min_feedback_modified_at),
        feedback_until=aware(body.max_feedback_modified_at),
    )
    await caller.state.intake.settled(SETTLING)
    page = await find_page(caller.store, query, body.page_size, body.cursor)
    runs = await _runs(request, caller, page.spans, body.selects)
    items: list[Json] = [
        {
            "root_run": run,
            "trace_aggregates": {name: span.value[name] for name in ("first_token_time", "total_cost", "total_tokens")},
        }
        for run, span in zip(runs, page.spans, strict=True)
    ]
    return _answer(request, items, page.next)


async def list_trace_runs(
    request: Request,
    caller: Reader,
    trace_id: str,
    project_id: str | None = None,
    filter: str | None = None,
    min_start_time: datetime | None = None,
    max_start_time: datetime | None = None,
    selects: Selects = None,
) -> ExactJSON:
    """List the runs (spans) of a trace, root first."""
    query = RunQuery(
        sessions=None if project_id is None else frozenset({project_id}),
        trace=trace_id,
        since=aware(min_start_time),
        until=aware(max_start_time),
        filter=parsed_filter(filter),
    )
    await caller.state.intake.settled(SETTLING)
    spans = [found.span async for found in find_spans(caller.store, query)]
    return ExactJSON({"items": await _runs(request, caller, spans, selects)})


# Threads


async def _thread_roots(store: Store, body: ThreadQueryV2) -> dict[str, list[Span]]:
    """Return the root spans of the matching threads by thread, newest first. A thread matches if one trace does."""
    since, until = _window(store, body)
    sessions = None if body.project_id is None else frozenset({body.project_id})
    every = RunQuery(sessions=sessions, is_root=True, since=since, until=until)
    wanted: set[str] | None = None
    if body.filter or body.trace_filter or body.tree_filter:
        query = RunQuery(
            sessions=sessions,
            is_root=True,
            since=since,
            until=until,
            filter=parsed_filter(body.filter),
            trace_filter=parsed_filter(body.trace_filter, "trace_filter"),
            tree_filter=parsed_filter(body.tree_filter, "tree_filter"),
        )
        wanted = {str(found.span.value["thread_id"]) async for found in find_spans(store, query)}
    threads: dict[str, list[Span]] = {}
    async for found in find_spans(store, every):
        thread = found.span.value["thread_id"]
        if thread is not None and (wanted is None or str(thread) in wanted):
            threads.setdefault(str(thread), []).append(found.span)
    return threads


async def query_threads(request: Request, caller: Reader, body: ThreadQueryV2) -> Response:
    """List threads (conversations), most recently active first."""
    refuse(body, "ai_search", "thread_filter")
    await caller.state.intake.settled(SETTLING)
    threads = list((await _thread_roots(caller.store, body)).items())
    first = _offset(body.cursor)
    page = threads[first : first + body.page_size]
    feedback = await feedback_on(caller.store, [span for _, spans in page for span in spans])
    items = [_thread(name, spans, feedback) for name, spans in page]
    more = len(threads) > first + body.page_size
    return _answer(request, items, _offset_cursor(first + body.page_size) if more else None)


def _thread(name: str, spans: Sequence[Span], feedback: Mapping[str, list[Json]]) -> Json:
    """Return the summary of a thread. The spans are its roots, newest first."""
    last, first = spans[0].value, spans[-1].value
    total = aggregate(span.value for span in spans)
    return {
        "thread_id": name,
        "count": total.count,
        "first_inputs": preview(first["inputs"]),
        "first_trace_id": first["trace_id"],
        "last_error": last["error"],
        "last_outputs": preview(last["outputs"]),
        "last_trace_id": last["trace_id"],
        "latency_p50": percentile(total.latencies, 50),
        "latency_p99": percentile(total.latencies, 99),
        "max_start_time": last["start_time"],
        "min_start_time": first["start_time"],
        "num_errored_turns": total.errors,
        "start_time": first["start_time"],
        "total_cost": total.sum("total_cost"),
        "total_tokens": total.sum("total_tokens"),
        "trace_id": last["trace_id"],
        "feedback_stats": feedback_stats(item for span in spans for item in feedback.get(span.id, ())),
    }


async def list_thread_traces(
    request: Request,
    caller: Reader,
    thread_id: str,
    project_id: str | None = None,
    cursor: str | None = None,
    filter: str | None = None,
    trace_filter: str | None = None,
    tree_filter: str | None = None,
    page_size: Annotated[int, Query(ge=1, le=100)] = 20,
    selects: Selects = None,
) -> ExactJSON:
    """List the traces of a thread in the order of their start."""
    query = RunQuery(
        sessions=None if project_id is None else frozenset({project_id}),
        thread_id=thread_id,
        is_root=True,
        ascending=True,
        filter=parsed_filter(filter),
        trace_filter=parsed_filter(trace_filter, "trace_filter"),
        tree_filter=parsed_filter(tree_filter, "tree_filter"),
    )
    await caller.state.intake.settled(SETTLING)
    page = await find_page(caller.store, query, page_size, cursor)
    turns = {run.id: number for number, run in enumerate(await runs_of_thread(caller.store, thread_id), start=1)}
    wanted = {name.lower() for name in selects or ()} | {"trace_id"}
    items: list[Json] = []
    for span in page.spans:
        value = run_v2({**span.value, "feedback_stats": None}, _THREAD_TRACE)
        value |= {"latency": value["latency_seconds"], "turn_number": turns.get(span.run.id), "thread_id": thread_id}
        items.append({name: each for name, each in value.items() if name in wanted})
    return ExactJSON({"items": items, "next_cursor": page.next})


_THREAD_TRACE: Final = (
    *("TRACE_ID", "NAME", "START_TIME", "END_TIME", "LATENCY_SECONDS", "FIRST_TOKEN_TIME", "ERROR", "ERROR_PREVIEW"),
    *("INPUTS", "INPUTS_PREVIEW", "OUTPUTS", "OUTPUTS_PREVIEW", "TOTAL_TOKENS", "PROMPT_TOKENS", "COMPLETION_TOKENS"),
    *("TOTAL_COST", "PROMPT_COST", "COMPLETION_COST", "PROMPT_TOKEN_DETAILS", "COMPLETION_TOKEN_DETAILS"),
    *("PROMPT_COST_DETAILS", "COMPLETION_COST_DETAILS"),
)


async def thread_stats(
    caller: Reader,
    thread_id: str,
    selects: Selects = None,
    session_id: str | None = None,
    filter: str | None = None,
) -> ExactJSON:
    """Return statistics of a thread."""
    query = RunQuery(
        sessions=None if session_id is None else frozenset({session_id}),
        thread_id=thread_id,
        is_root=True,
        filter=parsed_filter(filter),
    )
    await caller.state.intake.settled(SETTLING)
    spans = [found.span async for found in find_spans(caller.store, query)]
    if not spans and filter is None:
        raise NotFound(f"Thread {thread_id} not found.")
    total = aggregate(span.value for span in spans)
    feedback = await feedback_on(caller.store, spans)
    values = {
        **_figures(total),
        "turns": total.count,
        "first_start_time": format_time(total.first) if total.first else None,
        "last_start_time": format_time(total.last) if total.last else None,
        "last_end_time": format_time(total.ended) if total.ended else None,
        "feedback_stats": feedback_stats(item for items in feedback.values() for item in items),
    }
    return ExactJSON(_selected_stats(values, selects))


async def all_thread_stats(caller: Reader, body: ThreadStatsQuery) -> ExactJSON:
    """Return statistics of the threads of a project."""
    refuse(body, "thread_filter")
    await caller.state.intake.settled(SETTLING)
    threads = await _thread_roots(caller.store, body)
    spans = [span for roots in threads.values() for span in roots]
    total = aggregate(span.value for span in spans)
    feedback = await feedback_on(caller.store, spans)
    median = percentile(total.tokens, 50)
    values = {
        **_figures(total),
        "thread_count": len(threads),
        "trace_count": total.count,
        "error_rate": total.error_rate,
        "streaming_rate": total.streaming_rate,
        "median_tokens": None if median is None else round(median),
        "first_token_p50_seconds": percentile(total.first_tokens, 50),
        "first_token_p99_seconds": percentile(total.first_tokens, 99),
        "thread_feedback_stats": feedback_stats(item for items in feedback.values() for item in items),
    }
    return ExactJSON(_selected_stats(values, body.select))


def _figures(total: Aggregate) -> Json:
    return {
        **{f"{part}_{what}": total.sum(f"{part}_{what}") for part in _PARTS for what in ("tokens", "cost")},
        "latency_p50_seconds": percentile(total.latencies, 50),
        "latency_p99_seconds": percentile(total.latencies, 99),
    }


def _selected_stats(values: Json, selects: Collection[str] | None) -> Json:
    if not selects:
        return values
    wanted = {name.lower() for name in selects}
    return {name: value for name, value in values.items() if name.removesuffix("_seconds") in wanted or name in wanted}


# Experiments


async def query_experiment_runs(
    request: Request, caller: Reader, dataset_id: UUID, body: ExperimentRunsQuery
) -> ExactJSON:
    """List examples of a dataset, each with its runs in the experiments."""
    await caller.state.intake.settled(SETTLING)
    store = caller.store
    dataset = await get_dataset(store, dataset_id)
    refuse_unserved(**{name: (body.model_extra or {}).get(name) for name in ("filters", "sort")})
    sessions = body.experiment_ids if body.experiment_ids is not None else await experiment_ids(store, dataset)
    by_example = await runs_by_example(store, sessions)
    first = _offset(body.cursor)
    examples = await examples_page(store, dataset, first, body.page_size + 1, body.example_ids)
    items: list[Json] = []
    for example in examples[: body.page_size]:
        spans = by_example.get(str(example.id), [])
        items.append({**example_json(example), "runs": await _runs(request, caller, spans, body.selects)})
    more = len(examples) > body.page_size
    return ExactJSON({"items": items, "next_cursor": _offset_cursor(first + body.page_size) if more else None})


def _offset_cursor(number: int) -> str:
    return base64.urlsafe_b64encode(codec.dumps({"offset": number})).decode()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        number = int(codec.loads(base64.urlsafe_b64decode(cursor.encode()))["offset"])
        if 0 <= number <= 1_000_000:
            return number
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error):
        pass
    raise Problem(422, "Refused", "The cursor is not valid.")


@cache
def router() -> APIRouter:
    router = LazyRouter(prefix=PREFIX, tags=["langsmith"], default_response_class=ExactJSON)
    add = router.add_api_route
    items, value = responses.LangSmithItems, responses.LangSmithObject
    paged: dict[str, Any] = {"methods": ["POST"], "response_model": items, "responses": {**_WRONG, **_STREAM}}
    add("/runs/query", query_runs, **paged)
    add("/runs/{run_id}", read_run, methods=["GET"], response_model=value)
    add("/runs/{run_id}/url", run_url, methods=["GET"], response_model=value)
    add("/runs/{run_id}/share", share_run, methods=["POST"], response_model=value)
    add("/runs/{run_id}/share", unshare_run, methods=["DELETE"], status_code=204, response_class=Response)
    add("/traces/query", query_traces, **paged)
    add("/traces/{trace_id}/runs", list_trace_runs, methods=["GET"], response_model=items, responses=_WRONG)
    add("/threads/query", query_threads, **paged)
    add("/threads/stats", all_thread_stats, methods=["POST"], response_model=value, responses=_WRONG)
    add("/threads/{thread_id}/traces", list_thread_traces, methods=["GET"], response_model=items, responses=_WRONG)
    add("/threads/{thread_id}/stats", thread_stats, methods=["GET"], response_model=value, responses=_WRONG)
    add(
        "/datasets/{dataset_id}/experiment-runs",
        query_experiment_runs,
        methods=["POST"],
        response_model=items,
        responses=_WRONG,
    )
    add("/public/{token}/run/{run_id}", read_shared, methods=["GET"], response_model=value, responses=NOT_FOUND)
    add("/public/{token}/runs/query", query_shared, methods=["POST"], response_model=items, responses=NOT_FOUND)
    return router
