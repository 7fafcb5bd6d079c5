"""`RunQuery`: which spans a LangSmith client asks for. `find_spans` reads them, newest traces first."""

import base64
import binascii
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from lockstitch.errors import NotFound
from lockstitch.integrations.langsmith.filters import FilterError, RunFilter
from lockstitch.integrations.spans.rows import part
from lockstitch.model import Json, Run, codec, format_time, parse_time
from lockstitch.server.ingest.langsmith.feedback import feedback_on
from lockstitch.server.ingest.langsmith.spans import (
    Span,
    read_span,
    roots_of,
    run_of_span,
    session_id,
    session_names,
    session_of,
    traces_of,
)
from lockstitch.server.problems import Problem
from lockstitch.store import Store

_RUNS: Final = 50
"""Number of traces per read."""
_MANY: Final = 1_000
"""Number of runs per read if their spans are not read."""
_MOST: Final = 20_000
"""Maximum number of traces of a query in ascending order."""
_MOMENT: Final = timedelta(microseconds=1)
_SOURCES: Final = ("langsmith", "otel")


def parsed_filter(text: str | None, name: str = "filter") -> RunFilter | None:
    """Return a parsed filter expression, or None without one. Raises a problem 400."""
    if not text or not text.strip():
        return None
    try:
        return RunFilter.parse(text)
    except FilterError as exc:
        raise Problem(400, "Wrong filter", f"The {name} is not valid. {exc}") from exc


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Conditions on spans. None means any."""

    sessions: frozenset[str] | None = None
    ids: Sequence[str] | None = None
    trace: str | None = None
    traces: Sequence[str] | None = None
    parent: str | None = None
    run_type: str | None = None
    is_root: bool | None = None
    error: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Latest start time, included."""
    examples: frozenset[str] | None = None
    """Ids of examples that the root spans were run with."""
    filter: RunFilter | None = None
    trace_filter: RunFilter | None = None
    tree_filter: RunFilter | None = None
    thread_id: str | None = None
    ascending: bool = False
    feedback_since: datetime | None = None
    feedback_until: datetime | None = None

    @property
    def roots_are_enough(self) -> bool:
        """True if only the root spans of traces must be read."""
        bounded = any(each is not None and each.bounds.root_only for each in (self.filter,))
        return bool(self.is_root or bounded) and self.tree_filter is None

    @property
    def needs_feedback(self) -> bool:
        filters = (self.filter, self.trace_filter, self.tree_filter)
        return any(each is not None and each.needs_feedback for each in filters)

    def starts(self) -> tuple[datetime | None, datetime | None]:
        """Return the first and the last start time of all matches, as far as they are known."""
        since, until = self.since, self.until
        if self.filter is not None:
            bounds = self.filter.bounds
            since = max(filter(None, (since, bounds.since)), default=None)
            until = min(filter(None, (until, bounds.until)), default=None)
        return since, until

    def wants(self, span: Json) -> bool:
        """True if a span meets the conditions without expressions."""
        if self.is_root is not None and self.is_root != (span["parent_run_id"] is None):
            return False
        if self.error is not None and self.error != bool(span["error"]):
            return False
        if self.run_type is not None and span["run_type"] != self.run_type:
            return False
        if self.parent is not None and span["parent_run_id"] != self.parent:
            return False
        if self.trace is not None and span["trace_id"] != self.trace:
            return False
        if self.examples is not None and str(span["reference_example_id"]) not in self.examples:
            return False
        began = parse_time(span["start_time"])
        if self.since is not None and began < self.since:
            return False
        return self.until is None or began <= self.until


class Found(NamedTuple):
    """A matching span, and the cursor at which a query continues with it."""

    span: Span
    cursor: str


@dataclass(slots=True)
class Page:
    """Matching spans, and the cursor of the next page."""

    spans: list[Span] = field(default_factory=list[Span])
    next: str | None = None


async def find_page(store: Store, query: RunQuery, most: int, cursor: str | None) -> Page:
    """Return at most `most` spans from a cursor on."""
    page = Page()
    async for found in find_spans(store, query, cursor):
        if len(page.spans) == most:
            page.next = found.cursor
            break
        page.spans.append(found.span)
    return page


async def find_spans(store: Store, query: RunQuery, cursor: str | None = None) -> AsyncIterator[Found]:
    """Yield the matching spans: newest traces first, the spans of a trace together."""
    if query.ids is not None:
        number = _position(cursor)[2] if cursor else 0
        for index, ref in enumerate(query.ids):
            with suppress(NotFound):
                if index >= number:
                    span = await read_span(store, codec.check_text(ref, "The id"))
                    if query.sessions is None or span.value["session_id"] in query.sessions:
                        yield Found(span, _cursor(span.run, index))
        return
    async for runs in _batches(store, query, cursor):
        traces = await _traces(store, query, [run for run, _ in runs])
        feedback = await _feedback(store, query, traces)
        for (run, skip), spans in zip(runs, traces, strict=True):
            for number, span in _matches(query, spans, feedback):
                if number >= skip:
                    yield Found(span, _cursor(run, number))


async def _traces(store: Store, query: RunQuery, runs: Sequence[Run]) -> list[list[Span]]:
    """Return the spans of each run that must be read."""
    if query.roots_are_enough:
        roots = {root.run.id: root for root in await roots_of(store, runs)}
        return [[roots[run.id]] if run.id in roots else [] for run in runs]
    return await traces_of(store, runs)


async def _feedback(store: Store, query: RunQuery, traces: Iterable[Sequence[Span]]) -> dict[str, list[Json]]:
    if not query.needs_feedback:
        return {}
    feedback = await feedback_on(store, [span for spans in traces for span in spans])
    since, until = query.feedback_since, query.feedback_until
    if since is None and until is None:
        return feedback

    def in_time(item: Json) -> bool:
        at = parse_time(item["modified_at"])
        return (since is None or at >= since) and (until is None or at < until)

    return {span_id: list(filter(in_time, items)) for span_id, items in feedback.items()}


def _matches(query: RunQuery, spans: Sequence[Span], feedback: dict[str, list[Json]]) -> Iterable[tuple[int, Span]]:
    """Yield the matching spans of one trace with their numbers."""

    def holds(expression: RunFilter, span: Span) -> bool:
        return expression.matches(span.value, feedback.get(span.id, ()))

    if query.trace_filter is not None:
        roots = [span for span in spans if span.value["parent_run_id"] is None]
        if not any(holds(query.trace_filter, root) for root in roots):
            return
    if query.tree_filter is not None and not any(holds(query.tree_filter, span) for span in spans):
        return
    for number, span in enumerate(spans):
        if query.wants(span.value) and (query.filter is None or holds(query.filter, span)):
            yield number, span


Batch = list[tuple[Run, int]]
"""Runs with the number of spans to skip."""


async def _batches(store: Store, query: RunQuery, cursor: str | None) -> AsyncIterator[Batch]:
    at, run_id, skip = _position(cursor) if cursor else (None, "", 0)
    listed = await _named_runs(store, query)
    if listed is None and query.ascending:
        listed = [run async for run in _newest(store, query, None)]
        if len(listed) > _MOST:
            raise Problem(400, "Too many runs", f"Ascending order needs a start_time with at most {_MOST:,} traces.")
    if listed is not None:
        listed.sort(key=lambda run: (run.started_at, str(run.id)), reverse=not query.ascending)
        places = [number for number, run in enumerate(listed) if str(run.id) == run_id]
        remaining = listed[places[0] :] if places else listed
        wanted = [run for run in remaining if _in_session(store, query, run)]
        for start in range(0, len(wanted), _RUNS):
            yield [(run, skip if str(run.id) == run_id else 0) for run in wanted[start : start + _RUNS]]
        return
    batch: Batch = []
    reached = at is None
    async for run in _newest(store, query, at):
        if not reached and at is not None:
            reached = str(run.id) == run_id or run.started_at < at
            if not reached:
                continue
        batch.append((run, skip if str(run.id) == run_id else 0))
        if len(batch) == _RUNS:
            yield batch
            batch = []
    if batch:
        yield batch


async def _named_runs(store: Store, query: RunQuery) -> list[Run] | None:
    """Return the runs of the traces or the conversation that the query names, or None if it names none."""
    bounds = query.filter.bounds if query.filter else None
    trace = query.trace or (bounds.trace_id if bounds else None)
    refs = [trace] if trace else query.traces
    if refs is None and bounds is not None and bounds.run_id is not None:
        refs = [bounds.run_id]
    if refs is None and query.parent is not None:
        refs = [query.parent]
    if refs is not None:
        runs: dict[UUID, Run] = {}
        for ref in refs:
            with suppress(NotFound):
                run = await run_of_span(store, codec.check_text(ref, "The id"))
                runs[run.id] = run
        return list(runs.values())
    thread_id = query.thread_id or (bounds.thread_id if bounds else None)
    return await runs_of_thread(store, thread_id) if thread_id is not None else None


async def runs_of_thread(store: Store, name: str) -> list[Run]:
    """Return the traces of a conversation, by the name that its client gave it, or by the id of a native thread."""
    name = codec.check_text(name, "The thread")
    ids = set(
        (await store.mirrors.keys(store.project, [part(f"{source}:{name}") or "" for source in _SOURCES])).values()
    )
    with suppress(NotFound):
        ids.add((await store.thread(name)).id)
    runs = await store.find_runs(ids, order=("started_at", "sequence")) if ids else []
    return [run for run in runs if run.parent_run_id is None]


def runs_of_session(store: Store, session: str) -> AsyncIterator[Run]:
    """Yield all runs of a LangSmith project, newest first. It reads all runs of the store's project."""
    return _newest(store, RunQuery(sessions=frozenset({session})), None, page=_MANY)


async def _newest(store: Store, query: RunQuery, at: datetime | None, page: int = _RUNS) -> AsyncIterator[Run]:
    """Yield the runs of the requested projects that can have matches, newest first."""
    since, last = query.starts()
    # A span can start long after its trace.
    since = _later(since, timedelta(days=-1)) if since else None
    until = min((_later(moment, _MOMENT) for moment in (at, last) if moment is not None), default=None)
    groups = None if query.sessions is None else session_names(query.sessions)
    seen: set[str] = set()
    while True:
        # Read additional runs with the same start time as the last one, so none is skipped.
        runs = await store.statistics.runs(limit=page + len(seen), since=since, until=until, groups=groups)
        fresh = [run for run in runs if str(run.id) not in seen]
        for run in fresh:
            if run.parent_run_id is None and _in_session(store, query, run):
                yield run
        if len(fresh) < page:
            return
        until = _later(fresh[-1].started_at, _MOMENT)
        seen = {str(run.id) for run in runs if run.started_at == fresh[-1].started_at}


def _in_session(store: Store, query: RunQuery, run: Run) -> bool:
    return query.sessions is None or session_id(store.project, session_of(store, run)) in query.sessions


def _cursor(run: Run, number: int) -> str:
    value = codec.dumps([format_time(run.started_at), str(run.id), number])
    return base64.urlsafe_b64encode(value).decode()


def _position(text: str) -> tuple[datetime, str, int]:
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


def aware(moment: datetime | None) -> datetime | None:
    """Return the time in UTC. LangSmith's client sends times without a time zone."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
