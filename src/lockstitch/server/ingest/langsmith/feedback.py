"""Feedback in the format of LangSmith: on spans and on projects, with its statistics."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, cast
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from lockstitch.errors import NotFound
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.model import Feedback, Json, as_id, codec, format_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Reader, Writer
from lockstitch.server.ingest.langsmith.spans import Span, session_id, session_of
from lockstitch.store import Store, Where

_PAGE = 100
_SETTLING = 5.0


async def feedback_on(store: Store, spans: Sequence[Span]) -> dict[str, list[Json]]:
    """Return the feedback on each of these spans, oldest first, by the id of the span."""
    names = MirrorIds(store.project, "langsmith")
    rows = {row_id: span for span in spans for row_id in (span.row_id, names.span(span.id))}
    roots = {span.run.id: span for span in spans if span.value["parent_run_id"] is None}
    records = await _records(store, {span.run.thread_id for span in spans}, rows)
    found: dict[str, list[Json]] = {}
    for record in records:
        span = rows.get(record.stitch_id) if record.stitch_id else roots.get(record.run_id) if record.run_id else None
        if span is not None:
            found.setdefault(span.id, []).append(feedback_json(store, record, span))
    return found


async def _records(store: Store, threads: Iterable[UUID], rows: Iterable[UUID]) -> list[Feedback]:
    """Return the feedback of threads, and feedback on these rows that has no thread."""
    ids = sorted(set(threads))
    found = (
        await store.feedback.find(Where("thread_id", "in", ids), Where("project", "=", store.project)) if ids else []
    )
    found = [*found, *await store.mirrors.early_feedback(store.project, rows)]
    return sorted({record.id: record for record in found}.values(), key=lambda record: (record.created_at, record.id))


def feedback_json(store: Store, record: Feedback, span: Span | None = None) -> Json:
    """Return feedback in the format of LangSmith."""
    about = record.metadata
    value: Any = record.value
    if record.value is not None and set(record.value) == {"value"}:
        value = record.value["value"]
    session = about.get("session_id") or (str(record.experiment_id) if record.experiment_id else None)
    known = {"run_id": about.get("run_id"), "trace_id": about.get("trace_id"), "session_id": session}
    if span is not None:
        known = {
            "run_id": span.id,
            "trace_id": span.value["trace_id"],
            "session_id": session_id(store.project, session_of(store, span.run)),
        }
    elif record.run_id is not None:
        known["run_id"] = known["run_id"] or str(record.stitch_id or record.run_id)
    return {
        "id": about.get("id") if as_id(str(about.get("id"))) else str(record.id),
        "created_at": format_time(record.created_at),
        "modified_at": format_time(record.updated_at),
        "key": record.name,
        "score": record.score,
        "value": value,
        "comment": record.comment,
        **{name: str(each) if each and as_id(str(each)) else None for name, each in known.items()},
        "correction": about.get("correction"),
        "feedback_source": about.get("feedback_source") or {"type": "api", "metadata": {}},
        "feedback_group_id": about.get("feedback_group_id"),
        "comparative_experiment_id": about.get("comparative_experiment_id"),
        "extra": about.get("extra"),
    }


def feedback_stats(feedback: Iterable[Json]) -> dict[str, Json]:
    """Return the statistics of feedback by key."""
    by_key: dict[str, list[Json]] = {}
    for item in feedback:
        by_key.setdefault(str(item["key"]), []).append(item)
    return {key: _stats(items) for key, items in by_key.items()}


def _stats(items: Sequence[Json]) -> Json:
    scores = [item["score"] for item in items if item["score"] is not None]
    values: dict[str, int] = {}
    for item in items:
        if isinstance(item["value"], str):
            values[item["value"]] = values.get(item["value"], 0) + 1
    sources = {str(_object(item["feedback_source"]).get("type")): True for item in items}
    return {
        "n": len(items),
        "avg": statistics.fmean(scores) if scores else None,
        "stdev": statistics.stdev(scores) if len(scores) > 1 else 0.0 if scores else None,
        "min": min(scores, default=None),
        "max": max(scores, default=None),
        "errors": sum(1 for item in items if _object(item["extra"]).get("error")),
        "values": values,
        "comments": [item["comment"] for item in items if item["comment"]][:10],
        "sources": list(sources),
        "contains_thread_feedback": False,
    }


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


async def project_feedback(store: Store, session: str) -> list[Json]:
    """Return the feedback on all runs of a LangSmith project."""
    experiment = as_id(session)
    if experiment is None:
        return []
    where = (Where("experiment_id", "=", experiment), Where("project", "=", store.project))
    return [feedback_json(store, record) for record in await store.feedback.find(*where, order=("created_at", "id"))]


async def list_feedback(
    caller: Reader,
    run: Annotated[list[str] | None, Query(max_length=1000)] = None,
    key: Annotated[list[str] | None, Query(max_length=100)] = None,
    session: Annotated[list[str] | None, Query(max_length=100)] = None,
    source: Annotated[list[str] | None, Query(max_length=10)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> ExactJSON:
    """List feedback, newest first: on runs, on projects, or all."""
    await caller.state.intake.settled(_SETTLING)
    store = caller.store
    if run is not None:
        found = await _on_runs(store, [codec.check_text(ref, "The id") for ref in run])
    elif session is not None:
        found = [item for each in session for item in await project_feedback(store, codec.check_text(each, "The id"))]
    else:
        newest = await store.feedback.find(
            Where("project", "=", store.project),
            order=("-created_at", "-id"),
            limit=None if key or source else offset + limit,
        )
        found = [feedback_json(store, record) for record in newest]
    found.sort(key=lambda item: (item["created_at"], item["id"]), reverse=True)
    found = [
        item
        for item in found
        if (not key or item["key"] in key) and (not source or item["feedback_source"].get("type") in source)
    ]
    return ExactJSON(found[offset : offset + limit])


async def _on_runs(store: Store, refs: Sequence[str]) -> list[Json]:
    names = MirrorIds(store.project, "langsmith")
    wanted = {names.span(ref): ref for ref in refs}
    # The root span of a trace has the id of the trace. Feedback of Lockstitch on its run has no span.
    wanted |= {names.run(ref): ref for ref in refs}
    wanted |= {own: ref for ref in refs if (own := as_id(ref)) is not None}
    stitches = await store.mirrors.stitches(wanted)
    runs = await store.mirrors.runs(own for ref in refs if (own := as_id(ref)) is not None)
    threads = {stitch.thread_id for stitch in stitches.values()} | {run.thread_id for run in runs.values()}
    found: list[Json] = []
    for record in await _records(store, threads, wanted):
        ref = wanted.get(record.stitch_id) if record.stitch_id else wanted.get(record.run_id) if record.run_id else None
        if ref is not None and record.project == store.project:
            value = feedback_json(store, record)
            found.append({**value, "run_id": ref if as_id(ref) else value["run_id"]})
    return found


async def _find(store: Store, ref: str) -> Feedback:
    own = as_id(ref)
    ids = [MirrorIds(store.project, "langsmith").feedback(ref), *([own] if own else [])]
    records = await store.mirrors.feedback(ids)
    for id in ids:
        if id in records and records[id].project == store.project:
            return records[id]
    raise NotFound(f"Feedback {ref} not found in project {store.project}.")


async def read_feedback(caller: Reader, feedback_id: str) -> ExactJSON:
    """Return feedback by its LangSmith id or its own id."""
    await caller.state.intake.settled(_SETTLING)
    record = await _find(caller.store, codec.check_text(feedback_id, "The id"))
    return ExactJSON(feedback_json(caller.store, record))


async def delete_feedback(caller: Writer, feedback_id: str) -> Response:
    """Delete feedback."""
    await caller.state.intake.settled(_SETTLING)
    record = await _find(caller.store, codec.check_text(feedback_id, "The id"))
    await caller.store.feedback.delete(id=record.id)
    await caller.store.audits.record(caller.actor, "delete feedback", str(record.id))
    return Response(status_code=204)


def add_routes(router: APIRouter) -> None:
    add = router.add_api_route
    add("/feedback", list_feedback, methods=["GET"], response_model=list[responses.LangSmithFeedback])
    add("/feedback/{feedback_id}", read_feedback, methods=["GET"], response_model=responses.LangSmithFeedback)
    add("/feedback/{feedback_id}", delete_feedback, methods=["DELETE"], status_code=204, response_class=Response)
