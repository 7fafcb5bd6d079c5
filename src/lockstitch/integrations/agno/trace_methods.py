"""`TraceMethods`: the methods of Agno's databases about traces, spans and metrics."""

# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from agno.db.in_memory.utils import (
    calculate_date_metrics,
    fetch_all_sessions_data,
    get_dates_to_calculate_metrics_for,
)
from agno.db.utils import metrics_starting_date_from_records

from lockstitch.integrations.agno.objects import plain
from lockstitch.integrations.agno.records import StoredRun, StoredSession
from lockstitch.integrations.agno.rows import Rows, equal, page_of
from lockstitch.model import Json
from lockstitch.store import Condition, Store, Where

if TYPE_CHECKING:
    from agno.tracing.schemas import Span, Trace

_CONTEXT: Final = ("run_id", "session_id", "user_id", "agent_id", "team_id", "workflow_id")
_COMPONENTS: Final = ("agent", "team", "workflow")
_FILTERED: Final = (*_CONTEXT, "trace_id", "name", "status", "start_time", "end_time", "duration_ms", "created_at")
_DEEPEST: Final = 10
"""Maximum depth of a filter expression, as in Agno."""

_REFRESH: Final = 60.0
"""Seconds after which `get_metrics` calculates the metrics again, as in Agno."""


class TraceMethods:
    """Traces, spans and metrics."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._traces = Rows(store, "trace")
        self._spans = Rows(store, "span")
        self._metrics = Rows(store, "metric")
        self._refreshed_at: datetime | None = None

    # Traces

    async def upsert_trace(self, trace: "Trace") -> None:
        """Store a trace. A stored one keeps its context and its name, unless the new one is of a larger component."""
        new: Json = plain(_in_utc(trace.to_dict()))
        for derived in ("total_spans", "error_count"):
            new.pop(derived, None)

        def changed(row: Json | None) -> tuple[Json, Json]:
            merged = new if row is None else _merged(row, new)
            fields = {"parent_id": merged["session_id"], "user_id": merged["user_id"]}
            return merged, {**fields, "created_at": merged["start_time"]}

        await self._traces.change(trace.trace_id, changed)

    async def get_trace(self, trace_id: str | None = None, run_id: str | None = None) -> Any:
        """Return the trace with an id, or the latest one of a run, or None."""
        if trace_id:
            row = await self._traces.get(trace_id)
        else:
            where = equal(run_id=run_id) if run_id else [Where("id", "in", [])]
            rows = await self._traces.find(*where, order=("-created_at",), limit=1)
            row = rows[0] if rows else None
        return None if row is None else await self._trace(row)

    async def get_traces(
        self,
        run_id: str | None = None,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        status: str | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        limit: int | None = 20,
        page: int | None = 1,
        filter_expr: Json | None = None,
    ) -> tuple[list[Any], int]:
        """Return a page of the traces that meet all conditions, the latest first, and their number."""
        where = _of_traces(run_id, user_id, agent_id, team_id, workflow_id, status, start_time, end_time)
        where += [] if session_id is None else [Where("parent_id", "=", session_id)]
        order = ("-created_at", "-id")
        if filter_expr is None:
            rows = await self._traces.find(*where, order=order, limit=limit, page=page)
            total = await self._traces.count(*where)
        else:
            accept = _filter(filter_expr)
            matches = [row for row in await self._traces.find(*where, order=order) if accept(row)]
            rows, total = page_of(matches, limit, page), len(matches)
        return [await self._trace(row) for row in rows], total

    async def get_trace_stats(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        limit: int | None = 20,
        page: int | None = 1,
        filter_expr: Json | None = None,
        group_by: str = "session",
    ) -> tuple[list[Json], int]:
        """Return the number of traces of each session, component or endpoint, and the number of groups."""
        if group_by not in ("session", *_COMPONENTS, "endpoint"):
            raise ValueError(f"Invalid group_by value: {group_by!r}. Allowed: session, agent, team, workflow, endpoint")
        accept = (lambda _: True) if filter_expr is None else _filter(filter_expr)
        first = "" if start_time is None else _utc(start_time)
        last = "9" if end_time is None else _utc(end_time)
        where = _of_traces(None, user_id, agent_id, team_id, workflow_id, None, None, None)
        groups: dict[str, list[Json]] = {}
        for row in await self._traces.find(*where):
            is_endpoint = not any(row[f"{kind}_id"] for kind in _COMPONENTS)
            field = "name" if group_by == "endpoint" else f"{group_by}_id"
            is_wanted = group_by != "endpoint" or is_endpoint
            if is_wanted and row[field] is not None and first <= row["created_at"] <= last and accept(row):
                groups.setdefault(row[field], []).append(row)
        stats = [_stats(group_by, key, rows) for key, rows in groups.items()]
        stats.sort(key=lambda row: row["last_trace_at" if group_by == "session" else "total_traces"], reverse=True)
        return page_of(stats, limit, page), len(stats)

    async def _trace(self, row: Json) -> Any:
        from agno.tracing.schemas import Trace

        of_trace = Where("parent_id", "=", row["trace_id"])
        spans = await self._spans.count(of_trace)
        errors = await self._spans.count(of_trace, *equal(status_code="ERROR")) if spans else 0
        return Trace.from_dict({**row, "total_spans": spans, "error_count": errors})

    # Spans

    async def create_span(self, span: "Span") -> None:
        """Store a span."""
        await self.create_spans([span])

    async def create_spans(self, spans: Sequence["Span"]) -> None:
        """Store spans in one transaction."""
        rows: list[Json] = [plain(_in_utc(span.to_dict())) for span in spans]
        await self._spans.put(
            [(row["span_id"], row, {"parent_id": row["trace_id"], "created_at": row["start_time"]}) for row in rows]
        )

    async def get_span(self, span_id: str) -> Any:
        """Return a span, or None."""
        row = await self._spans.get(span_id)
        return None if row is None else _span(row)

    async def get_spans(
        self, trace_id: str | None = None, parent_span_id: str | None = None, limit: int | None = 1000
    ) -> list[Any]:
        """Return the spans of a trace or below a span, the first ones first."""
        where = [] if trace_id is None else [Where("parent_id", "=", trace_id)]
        where += equal(parent_span_id=parent_span_id)
        return [_span(row) for row in await self._spans.find(*where, order=("created_at", "id"), limit=limit)]

    # Metrics

    async def calculate_metrics(self) -> list[Json] | None:
        """Calculate the metrics of the days since the last complete one. Return them, or None if there is nothing."""
        self._refreshed_at = self._store.clock.now()
        first = metrics_starting_date_from_records(await self._metrics.find()) or await self._first_day()
        days = [] if first is None else get_dates_to_calculate_metrics_for(first)
        if not days:
            return None
        start, end = _midnight(days[0]), _midnight(days[-1] + timedelta(days=1))
        sessions = await self._sessions_of_days(start, end)
        by_day = fetch_all_sessions_data(sessions=sessions, dates_to_process=days, start_timestamp=start) or {}
        results: list[Json] = []
        for day in days:
            of_day = by_day.get(day.isoformat(), {})
            if any(of_day.values()):
                results += calculate_date_metrics(day, of_day)
        stored = {row["id"]: row for row in await self._metrics.find(Where("id", "in", [row["id"] for row in results]))}
        for row in results:
            row["created_at"] = stored.get(row["id"], row)["created_at"]
        await self._metrics.put([(row["id"], row, {"created_at": str(row["date"])}) for row in results])
        return results or None

    async def get_metrics(
        self, starting_date: date | None = None, ending_date: date | None = None, user_id: str | None = None
    ) -> tuple[list[Json], int | None]:
        """Return the metrics of days, and the time of the last calculation. They are calculated once per minute."""
        now = self._store.clock.now()
        if self._refreshed_at is None or (now - self._refreshed_at).total_seconds() >= _REFRESH:
            await self.calculate_metrics()
        where: list[Condition] = [] if starting_date is None else [Where("created_at", ">=", starting_date.isoformat())]
        where += [] if ending_date is None else [Where("created_at", "<=", ending_date.isoformat())]
        rows = await self._metrics.find(*where, *equal(user_id=user_id), order=("created_at", "id"))
        last = max((row["updated_at"] for row in rows), default=None)
        shown = {"user_id": lambda row: row["user_id"] or None, "date": lambda row: date.fromisoformat(row["date"])}
        return [{**row, **{name: value(row) for name, value in shown.items()}} for row in rows], last

    async def _first_day(self) -> date | None:
        of_project = Where("project", "=", self._store.project)
        first = await self._store.table(StoredSession).first(of_project, order=("created_at",))
        return None if first is None else datetime.fromtimestamp(first.created_at, UTC).date()

    async def _sessions_of_days(self, start: int, end: int) -> list[Json]:
        """Return the sessions that were created between two times, with the models of their runs."""
        of_project = Where("project", "=", self._store.project)
        created = (Where("created_at", ">=", start), Where("created_at", "<=", end))
        sessions = await self._store.table(StoredSession).find(of_project, *created)
        rows: list[Json] = []
        for session in sessions:
            runs = await self._store.table(StoredRun).find(Where("thread_id", "=", session.thread_id))
            models = [{"model": run.model, "model_provider": run.model_provider or ""} for run in runs]
            own = {name: getattr(session, name) for name in ("session_id", "session_type", "user_id", "created_at")}
            rows.append({**own, "session_data": session.content.get("session_data"), "runs": models})
        return rows


def _of_traces(
    run_id: str | None,
    user_id: str | None,
    agent_id: str | None,
    team_id: str | None,
    workflow_id: str | None,
    status: str | None,
    start_time: datetime | None,
    end_time: datetime | None,
) -> list[Condition]:
    components = {"agent_id": agent_id, "team_id": team_id, "workflow_id": workflow_id}
    where = equal(run_id=run_id, status=status, **{name: value or None for name, value in components.items()})
    if user_id is not None:
        where.append(Where("user_id", "=", user_id))
    if start_time is not None:
        where.append(Where("created_at", ">=", _utc(start_time)))
    if end_time is not None:
        where.append(Where("content", "<=", _utc(end_time), path=("end_time",)))
    return where


def _merged(row: Json, new: Json) -> Json:
    """Return a stored trace after a further part of it has arrived."""
    start, end = min(row["start_time"], new["start_time"]), max(row["end_time"], new["end_time"])
    duration = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return {
        **row,
        **{name: new[name] if row[name] is None else row[name] for name in _CONTEXT},
        "name": new["name"] if _level(new) > _level(row) else row["name"],
        "status": new["status"],
        "start_time": start,
        "end_time": end,
        "duration_ms": round(duration.total_seconds() * 1000),
    }


def _level(trace: Json) -> int:
    """Return the rank of the component of a trace: workflow, team, agent, or a part of one."""
    is_root = ".run" in trace["name"] or ".arun" in trace["name"]
    ranks = {"workflow_id": 3, "team_id": 2, "agent_id": 1}
    return next((rank for field, rank in ranks.items() if trace[field] is not None), 0) if is_root else 0


def _stats(group_by: str, key: str, rows: list[Json]) -> Json:
    times = {
        "first_trace_at": datetime.fromisoformat(min(row["created_at"] for row in rows)),
        "last_trace_at": datetime.fromisoformat(max(row["created_at"] for row in rows)),
    }
    if group_by == "session":
        context = {
            name: max((row[name] for row in rows if row[name] is not None), default=None)
            for name in ("user_id", "agent_id", "team_id", "workflow_id")
        }
        return {"session_id": key, **context, "total_traces": len(rows), **times}
    durations = sorted(row["duration_ms"] for row in rows)
    return {
        "name" if group_by == "endpoint" else f"{group_by}_id": key,
        "total_traces": len(rows),
        "total_sessions": len({row["session_id"] for row in rows if row["session_id"] is not None}),
        "avg_duration_ms": round(sum(durations) / len(durations), 1),
        "p95_duration_ms": durations[min(len(durations) - 1, round(0.95 * (len(durations) - 1)))],
        "max_duration_ms": durations[-1],
        "error_traces": sum(row["status"] == "ERROR" for row in rows),
        **times,
    }


def _filter(expression: Json, depth: int = 0) -> Callable[[Json], bool]:
    """Return the function of a filter expression. Raises `ValueError` if it is not valid."""
    if depth > _DEEPEST:
        raise ValueError(f"Filter expression exceeds maximum nesting depth of {_DEEPEST}")
    operator = expression.get("op") if isinstance(expression, dict) else None
    if operator in ("AND", "OR"):
        parts = [_filter(part, depth + 1) for part in expression.get("conditions") or ()]
        if not parts:
            raise ValueError(f"{operator} filter requires 'conditions' field. Got: {expression}")
        combine = all if operator == "AND" else any
        return lambda row: combine(part(row) for part in parts)
    if operator == "NOT":
        inner = _filter(expression.get("condition") or {}, depth + 1)
        return lambda row: not inner(row)
    compare = _COMPARISONS.get(str(operator))
    key, value = expression.get("key"), expression.get("values" if operator == "IN" else "value")
    if compare is None or key is None or value is None:
        raise ValueError(f"Invalid filter: {expression}")
    if key not in _FILTERED:
        raise ValueError(f"Invalid filter field: '{key}'. Allowed: {sorted(_FILTERED)}")
    if key in ("start_time", "end_time", "created_at") and isinstance(value, str):
        value = _utc(datetime.fromisoformat(value))
    return lambda row: row[key] is not None and compare(row[key], value)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EQ": lambda own, value: own == value,
    "NEQ": lambda own, value: own != value,
    "GT": lambda own, value: own > value,
    "GTE": lambda own, value: own >= value,
    "LT": lambda own, value: own < value,
    "LTE": lambda own, value: own <= value,
    "IN": lambda own, value: own in value,
    "CONTAINS": lambda own, value: str(value).lower() in str(own).lower(),
    "STARTSWITH": lambda own, value: str(own).lower().startswith(str(value).lower()),
}


def _in_utc(row: Json) -> Json:
    """Return a trace or a span with its times in UTC, so that their texts sort by time."""
    times = ("start_time", "end_time", "created_at")
    return {**row, **{name: _utc(datetime.fromisoformat(row[name])) for name in times}}


def _utc(time: datetime) -> str:
    """Return a time as text, always with microseconds. A time without a zone is in UTC."""
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="microseconds")


def _span(row: Json) -> Any:
    from agno.tracing.schemas import Span

    return Span.from_dict(row)


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
