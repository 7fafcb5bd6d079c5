"""`TraceBuilder`: one trace as a run and rows, and prices of foreign model calls.

Pure: the caller reads the stored data and writes the result. A trace can arrive in any number of parts and in any
order. The result is the same, except for the positions in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from lockstitch.engine import usage as costs
from lockstitch.engine.ports.provider import Usage
from lockstitch.integrations.spans.rows import (
    TOKENS,
    MirrorIds,
    SpanRow,
    as_counted_span,
    as_model_call,
    as_span,
    at_of,
    new_row,
    order_of,
    part,
    removed,
)
from lockstitch.integrations.spans.span import Generation, NewSpan, SpanData, SpanFacts, TraceSource, is_root
from lockstitch.integrations.spans.tool_calls import MentionedResult, ToolCallIndex
from lockstitch.integrations.spans.tool_matches import SpanTree
from lockstitch.integrations.spans.turn import turn_of
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Stitch, answer_of, format_time, new_id, parse_time
from lockstitch.model.record import new_dict
from lockstitch.model.run import RunStatus

Price = Callable[[SpanFacts, datetime], Json | None]
"""Returns the cost of a model call: {} if it is unknown, None if the call has no token counts."""


@dataclass(slots=True)
class StoredTrace:
    """The stored data of a trace that the new spans can affect."""

    run: Run
    is_new: bool
    rows: dict[UUID, Stitch] = field(default_factory=new_dict)
    """Stored rows of the new spans, by id."""
    tools: Sequence[Stitch] = ()
    """Tool calls that the new spans can affect."""
    later: Sequence[Stitch] = ()
    """Model calls that started with or after the first new span."""
    mentions: Sequence[MentionedResult] = ()
    """Results mentioned by stored spans that started then or later and have no new data."""
    recompute: frozenset[str] = frozenset()
    """Ids of calls with mentioned results to assign again. `mentions` contains all their mentions."""
    relinked: frozenset[str] = frozenset()
    """Ids of calls whose spans have a new ancestor, so that they can match other requests."""
    tree: SpanTree = field(default_factory=SpanTree)
    """The structure of the stored rows. Empty if it does not matter."""
    calls: Sequence[Stitch] | None = None
    """All model calls and other counted spans of the trace, if the totals must be computed again."""


class TraceBuilder:
    """Computes the rows and the run to write for the new spans of one trace."""

    def __init__(
        self, trace_source: TraceSource, names: MirrorIds, stored_trace: StoredTrace, price: Price, now: datetime
    ) -> None:
        self._source = trace_source
        self._names = names
        self._known = stored_trace
        self._price = price
        self._now = now
        self._rows: list[SpanRow] = []
        self._calls = ToolCallIndex(
            names,
            stored_trace.run,
            now,
            stored_trace.tools,
            trace_source.facts,
            stored_trace.recompute,
            stored_trace.relinked,
            stored_trace.tree,
        )
        self._root: NewSpan | None = None
        """The span with new data that the run shows as its root."""

    def assemble(self, arrived: Sequence[NewSpan], vanished: Sequence[Stitch] = ()) -> tuple[Run, list[SpanRow]]:
        """Return the run, and the rows that are new or changed. `place` sets their positions later."""
        ordered = sorted(arrived, key=attrgetter("order"))
        for new_span in ordered:
            self._take(new_span)
        self._root = self._root or self._substitute(ordered)
        rows = [*self._rows, *self._calls.rows(ordered, self._known.mentions)]
        places = {stitch.position for stitch in vanished}
        rows += [SpanRow(_remaining_values(stitch, places), (), stitch) for stitch in vanished]
        rows += self._unrequested({stitch.position for stitch in vanished if stitch.type == "llm_call"})
        self._number(rows)
        return self._run(rows, ordered), [row for row in rows if row.differs() or row.requested_by is not None]

    def _take(self, new_span: NewSpan) -> None:
        span, facts = new_span.data, new_span.facts
        if facts.role == "tool":
            self._calls.run_span(new_span, self._known.rows.get(new_span.row_id))
        elif facts.role == "llm" and new_span.duplicate_of is None:
            self._take_model_call(new_span)
        else:
            row = self._row(new_span)
            if facts.role == "span" and facts.tokens is not None:
                as_counted_span(row, facts, self._price(facts, row.at))
            else:
                as_span(row, new_span.duplicate_of)
            self._rows.append(row)
            self._withdraw(row, facts)
        if facts.results:
            self._calls.mention(MentionedResult(new_span.at, span["id"], facts.results))
        if self._is_root(span):
            self._root = new_span

    def _is_root(self, span: SpanData) -> bool:
        """True if a span is the root of this trace. Other spans may lack a parent until more data arrives."""
        if self._source.root_names_trace:
            return span["id"] == trace_of(self._known.run)
        return is_root(span)

    def _substitute(self, ordered: Sequence[NewSpan]) -> NewSpan | None:
        """Return the span with new data that the run shows until the root of the trace arrives: the first span.

        More data of a span only makes its start earlier, so it is compared with the stored substitute alone. A source
        whose root does not name the trace sends spans when they end. There the root arrives last, and the trace runs.
        """
        run, substitute = self._known.run, self._known.run.state.get("substitute")
        if not ordered or not self._source.root_names_trace or not (self._known.is_new or substitute):
            return None
        if substitute is None or _order_key(ordered[0]) < substitute["order"]:
            return ordered[0]
        return next((new_span for new_span in ordered if new_span.data["id"] == run.foreign_id), None)

    def _take_model_call(self, new_span: NewSpan) -> None:
        rows: list[SpanRow] = []
        facts = new_span.facts
        generations: Sequence[Generation | None] = facts.generations or (None,)
        for number, generation in enumerate(generations):
            row = self._row(new_span, number)
            cost = None if number else self._price(facts, row.at)
            as_model_call(row, facts, generation, number == 0, cost)
            rows.append(row)
            self._calls.ask(row)
        self._rows += rows

    def _withdraw(self, row: SpanRow, facts: SpanFacts) -> None:
        """Drop the requests and further generations of a span that no longer counts as a model call."""
        if row.old is None or row.old.type != "llm_call":
            return
        self._calls.remove_request(row.old)
        for number in range(1, len(facts.generations)):
            further = self._known.rows.get(self._names.span(row.values["data"]["id"], f"#{number}"))
            if further is not None:
                self._calls.remove_request(further)
                self._rows.append(SpanRow(removed(further), (), further))

    def _unrequested(self, places: set[int]) -> list[SpanRow]:
        """Return the tool calls that stay although their responses, at these positions, are removed."""
        return [
            SpanRow({**stitch.__dict__, "reply_to": None, "call_index": None}, (), stitch)
            for stitch in self._known.tools
            if stitch.reply_to in places and "id" in stitch.data
        ]

    def _row(self, new_span: NewSpan, number: int = 0) -> SpanRow:
        span, row_id = new_span.data, new_span.row_id
        fields: Mapping[str, Any] = span
        order: tuple[Any, ...] | None = new_span.order
        if number:
            # A further generation of one call. The first generation has the span data.
            row_id, order = self._names.span(span["id"], f"#{number}"), None
            fields = {key: value for key, value in span.items() if key in ("trace_id", "start", "end", "order")}
            fields = {**fields, "of": span["id"], "generation": number}
        old = self._known.rows.get(row_id) if self._known.rows else None
        return new_row(fields, row_id, self._known.run, new_span.parent_id, old, new_span.at, order)

    def _number(self, rows: list[SpanRow]) -> None:
        """Number the model calls in the order of their start: the new ones, and those that come after them."""
        span_rows = {row.id: row for row in rows if row.values["type"] == "llm_call"}
        removed = {row.old.id for row in rows if row.old is not None and row.old.type == "llm_call"} - span_rows.keys()
        if not span_rows and not removed:
            return
        has_all_calls = self._known.calls is not None
        stored = self._known.calls if self._known.calls is not None else self._known.later
        others = [
            SpanRow(dict(stitch.__dict__), order_of(stitch.data, at_of(stitch)), stitch)
            for stitch in stored
            if stitch.type == "llm_call" and stitch.id not in span_rows and stitch.id not in removed
        ]
        before = 0 if has_all_calls else self._known.run.steps - len(self._known.later)
        ordered = sorted([*span_rows.values(), *others], key=lambda row: row.order)
        for number, row in enumerate(ordered, start=before + 1):
            row.values["step_number"] = number
        rows += [row for row in others if row.differs()]

    def _run(self, rows: Sequence[SpanRow], ordered: Sequence[NewSpan]) -> Run:
        run = self._known.run
        values = self._figures(run, rows)
        values |= self._first_call(rows) if values["steps"] else {"model": None, "provider": None}
        values["started_at"] = min([run.started_at, *(row.at for row in rows if row.values["data"].get("start"))])
        root = self._root
        if root is not None:
            values |= self._of_root(root)
        run = run.changed(**values)
        # A substitute may have a root above it that has other values.
        is_own = root is not None and (self._is_root(root.data) or not self._source.root_names_trace)
        agent, state = turn_of(run, root, is_own, ordered)
        return run.changed(agent=agent, state=state)

    def _figures(self, run: Run, rows: Sequence[SpanRow]) -> dict[str, Any]:
        """Return tokens, cost and number of model calls: the stored totals plus the changes of these rows."""
        steps = run.steps
        tokens = {name: getattr(run, name) for name in TOKENS}
        cost = run.cost
        for row in rows:
            if row.old is None and row.values["type"] != "llm_call" and row.values["input_tokens"] is None:
                continue
            was = row.old is not None and row.old.type == "llm_call"
            steps += (row.values["type"] == "llm_call") - was
            for name in TOKENS:
                tokens[name] += (row.values[name] or 0) - ((getattr(row.old, name) or 0) if row.old else 0)
            before, after = _cost(row.old.data if row.old else {}), _cost(row.values["data"])
            if before is None and after is not None:
                cost = costs.add(cost, after)
        if self._known.calls is not None:
            changed = {row.old.id for row in rows if row.old is not None}
            remaining = [stitch.data for stitch in self._known.calls if stitch.id not in changed]
            remaining += [row.values["data"] for row in rows if row.values["type"] in ("llm_call", "span")]
            cost = {}
            for data in remaining:
                if (item := _cost(data)) is not None:
                    cost = costs.add(cost, item)
        return {**tokens, "steps": steps, "cost": cost, "total_cost": costs.total(cost)}

    def _first_call(self, rows: Sequence[SpanRow]) -> dict[str, Any]:
        first = next((row for row in rows if row.values["step_number"] == 1), None)
        if first is None:
            return {}
        data = first.values["data"]
        return {"model": part(data.get("model"), 100), "provider": part(data.get("provider"), 100)}

    def _of_root(self, root: NewSpan) -> dict[str, Any]:
        """Return the values that the run takes from its root, or from the substitute of its root."""
        span = root.data
        status = _status(span)
        end = span.get("end")
        state: Json = {key: value for key, value in self._known.run.state.items() if key not in _ROOT_STATE}
        state |= {key: value for key, value in span.items() if key in _ROOT_STATE}
        if not self._is_root(span) and self._source.root_names_trace:
            state["substitute"] = {"trace_id": trace_of(self._known.run), "order": _order_key(root)}
        error = span.get("error") or (span.get("status") if status == "failed" else None)
        return {
            "foreign_id": span["id"] if "substitute" in state else trace_of(self._known.run),
            "status": status,
            "stop_reason": {"completed": "end_turn", "failed": "error"}.get(status),
            "error": error,
            "tags": [str(tag) for tag in span.get("tags") or []],
            "metadata": span.get("metadata") or {},
            "state": state,
            "completed_at": parse_time(end) if end and status in TERMINAL_STATUSES else None,
        }

    @property
    def root_id(self) -> UUID | None:
        """The row id of the root or of its substitute, if it has new data."""
        return self._root.row_id if self._root else None


def _order_key(new_span: NewSpan) -> list[str]:
    """Return the place of a span in its trace, in a form that can be stored and compared."""
    at, order, name, _ = new_span.order
    return [format_time(at), order, name]


_PREVIEW: Final = 200
"""Characters of an answer in the state of its run, for lists. A model call has the whole text."""
_ROOT_STATE: Final = frozenset(
    {"thread_id", "user_id", "session_id", "group", "total_tokens", "total_cost", "substitute"}
)
"""Keys of the state of a run that come from its root. `turn_of` adds the texts, and `place` adds `answered_at`."""


def trace_of(run: Run) -> str:
    """Return the id of the trace of a run. Until the root arrives, `foreign_id` is the id of its substitute."""
    substitute: Json = run.state.get("substitute") or {}
    return str(substitute.get("trace_id") or run.foreign_id)


def place(
    stored_trace: StoredTrace, run: Run, rows: Sequence[SpanRow], position: int, fence: int, root_id: UUID | None
) -> Run:
    """Set the positions of the new rows of a trace after `position`. Return the run with these positions."""
    new = sorted([row for row in rows if row.old is None], key=attrgetter("order"))
    first = position + 1
    for row in new:
        position += 1
        row.values["position"], row.values["fence"] = position, fence
    for row in rows:
        if row.requested_by is not None:
            row.values["reply_to"] = row.requested_by.position
    changes: dict[str, Any] = {"first_position": min(run.first_position or first, first)} if new else {}
    root = next((row for row in rows if row.id == root_id), None) if root_id else None
    if root is not None:
        changes["input_position"] = root.position
    answer = _last_answer(stored_trace, run, rows)
    if answer is not None:
        changes["output_position"] = answer.position
        preview = answer_of(answer.values["message"])[:_PREVIEW]
        changes["state"] = {**run.state, "answered_at": format_time(answer.at), "answer": preview}
    elif stored_trace.calls is not None:
        changes["output_position"] = None
        gone = ("answered_at", "answer") if run.output_position is not None else ("answered_at",)
        changes["state"] = {key: value for key, value in run.state.items() if key not in gone}
    return run.changed(**changes)


def _last_answer(stored_trace: StoredTrace, run: Run, rows: Sequence[SpanRow]) -> SpanRow | None:
    """Return the last model call with text and without tool calls, or None if it is not known to be the last."""
    calls = list(rows)
    if stored_trace.calls is not None:
        ours = {row.old.id for row in rows if row.old is not None}
        others = (stitch for stitch in stored_trace.calls if stitch.id not in ours)
        calls += (SpanRow(dict(stitch.__dict__), order_of(stitch.data, at_of(stitch)), stitch) for stitch in others)
    answers = [row for row in calls if row.values["type"] == "llm_call" and not row.values["calls"]]
    answers.sort(key=lambda row: row.order, reverse=True)
    last = next((row for row in answers if answer_of(row.values["message"])), None)
    if last is None or stored_trace.calls is not None:
        return last
    return last if format_time(last.at) >= str(run.state.get("answered_at") or "") else None


def _remaining_values(stitch: Stitch, places: set[int]) -> Json:
    """Return the values that stay of a removed row. A requested tool call stays if its response stays."""
    if stitch.type != "tool_call" or stitch.reply_to is None or stitch.reply_to in places:
        return removed(stitch)
    asked = {name: stitch.data.get(name) for name in ("asked_at", "asked_under")}
    unanswered = {"message": None, "status": None, "duration_ms": None, "data": asked}
    return {**stitch.__dict__, **unanswered, "id": new_id()}


def needs_all_calls(stored_trace: StoredTrace, rows: Sequence[SpanRow]) -> bool:
    """True if a counted span no longer counts or has another cost, so that the totals must be computed again."""
    return stored_trace.calls is None and any(
        row.old is not None
        and (
            (row.old.type == "llm_call" and row.values["type"] != "llm_call")
            or _cost(row.old.data) not in (None, _cost(row.values["data"]))
        )
        for row in rows
    )


def _cost(data: Json) -> Json | None:
    """Return the cost of a counted span, {} if its price is unknown, None if it has no token counts."""
    return data.get("cost")


def _status(span: SpanData) -> RunStatus:
    text = (span.get("status") or "").lower()
    if span.get("error") or text in ("error", "failed", "interrupted"):
        return "failed"
    if text == "cancelled":
        return "cancelled"
    return "completed" if span.get("end") or text in ("success", "ok", "completed") else "running"


_NO_PARTS: Final = ("input_cost", "output_cost", "cache_write_cost", "cache_read_cost")
_ABSURD: Final = 1e9
"""Dollars above which a given cost is ignored, so that sums stay finite."""


def price(facts: SpanFacts, at: datetime) -> Json | None:
    """Return the cost of a call, {} if it is unknown, None if it has no token counts."""
    tokens = facts.tokens
    if tokens is None:
        return None
    if facts.cost is not None and 0 <= facts.cost < _ABSURD:
        return {
            **dict.fromkeys(_NO_PARTS, 0.0),
            "total_cost": facts.cost,
            "total_input_tokens": tokens.input,
            "total_output_tokens": tokens.output,
            "total_cache_creation_tokens": tokens.cache_write,
            "total_cache_read_tokens": tokens.cache_read,
            "model_id": facts.model,
            "long_context_applied": False,
            "currency": "USD",
            "source": "given",
            "version": None,
        }
    if not facts.model:
        return {}
    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    return costs.price(facts.provider or "", facts.model or "", usage, at)
