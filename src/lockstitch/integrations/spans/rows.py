"""`SpanRow`: the row of one span of a trace. `MirrorIds`: the ids of imported records."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.integrations.spans.span import Generation, SpanData, SpanFacts, TokenCounts
from lockstitch.model import Json, Run, Stitch, columns, new_id, parse_time, text_of, tool_uses
from lockstitch.model.ids import foreign_id

TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SPAN_FIELDS: Final = frozenset(SpanData.__annotations__)
_EMPTY: Final[Json] = {column.name: None for column in columns(Stitch)}


class MirrorIds:
    """The ids of imported traces of one project and source. The same name always gives the same id."""

    def __init__(self, project: str, source: str) -> None:
        self._project = project
        self._source = source
        # The id of a span is needed for its own row and for the rows of its children.
        self._span = lru_cache(maxsize=20_000)(partial(foreign_id, project, source))

    def thread(self, name: str) -> UUID:
        return foreign_id(self._project, self._source, f"thread:{name}")

    def run(self, trace_id: str) -> UUID:
        return foreign_id(self._project, self._source, f"run:{trace_id}")

    def span(self, span_id: str, part: str = "") -> UUID:
        """Return the row id of a span, or of a part of it: a further generation, or a requested call."""
        return self._span(f"span:{span_id}{part}")

    def feedback(self, feedback_id: str) -> UUID:
        return foreign_id(self._project, self._source, f"feedback:{feedback_id}")


class SpanRow:
    """A row in progress: the new values, and the stored row that it replaces."""

    __slots__ = ("old", "order", "requested_by", "values")

    def __init__(self, values: Json, order: tuple[Any, ...], old: Stitch | None) -> None:
        self.values = values
        self.order = order
        self.old = old
        self.requested_by: SpanRow | None = None
        """The response that requested a tool call."""

    @property
    def id(self) -> UUID:
        return self.values["id"]

    @property
    def at(self) -> datetime:
        return self.values["at"]

    @property
    def position(self) -> int | None:
        return self.values["position"]

    def stitch(self) -> Stitch:
        return Stitch.unchecked(self.values)

    def differs(self) -> bool:
        """True if the row must be written."""
        return self.old is None or self.values != dict(self.old.__dict__)


def stored_span_data(data: Mapping[str, Any]) -> SpanData:
    """Return the span data from the `data` of a stored row."""
    return cast("SpanData", {key: value for key, value in data.items() if key in _SPAN_FIELDS})


def at_of(stitch: Stitch) -> datetime:
    """Return the start time of a stored row. Every row has a time."""
    assert stitch.at is not None
    return stitch.at


def order_of(piece: Mapping[str, Any], at: datetime) -> tuple[Any, ...]:
    """Return the sort key of a span in its trace."""
    get = piece.get
    return at, str(get("order") or ""), str(get("id") or get("of") or ""), int(get("generation") or 0)


def start_time(piece: Mapping[str, Any], now: datetime) -> datetime:
    """Return the start time of a span, else its end time, else `now`."""
    text = piece.get("start") or piece.get("end")
    return _parsed(text) if text else now


@lru_cache(maxsize=4_000)
def _parsed(text: str) -> datetime:
    """Cached, because the start of a span is needed several times."""
    return parse_time(text)


def _lasted(piece: Mapping[str, Any], at: datetime) -> int | None:
    """Return the duration in milliseconds, or None if the start or the end is unknown."""
    end = piece.get("end")
    if not end or not piece.get("start"):
        return None
    return max(0, round((parse_time(end) - at).total_seconds() * 1000))


def new_row(
    piece: Mapping[str, Any],
    row_id: UUID,
    run: Run,
    parent_id: UUID,
    old: Stitch | None,
    at: datetime,
    order: tuple[Any, ...] | None = None,
) -> SpanRow:
    """Return a row with the values that all kinds share. It keeps the position of the old row."""
    values = _EMPTY.copy()
    values["id"] = row_id
    values["thread_id"] = run.thread_id
    values["run_id"] = run.id
    values["parent_id"] = parent_id
    values["name"] = part(piece.get("name"))
    values["status"] = _status(piece)
    values["data"] = dict(piece)
    values["duration_ms"] = _lasted(piece, at)
    values["at"] = at
    if old is None:
        values["fence"] = 0
    else:
        values["fence"], values["position"], values["log_id"] = old.fence, old.position, old.log_id
    return SpanRow(values, order or order_of(piece, at), old)


def as_span(row: SpanRow, duplicate_of: UUID | None = None) -> None:
    """Make the row a plain span: neither a model call nor a tool call, or a duplicate of a model call."""
    row.values["type"] = "span"
    row.values["model"] = None
    if duplicate_of is not None:
        row.values["data"]["duplicate_of"] = str(duplicate_of)


def as_counted_span(row: SpanRow, facts: SpanFacts, cost: Json | None) -> None:
    """Make the row a span with token counts and a cost that is not a model call: an embedding."""
    as_span(row)
    values = row.values
    values["name"] = part(facts.model or values["name"] or "")
    if facts.tokens is not None:
        values |= dict(zip(TOKENS, _storable(facts.tokens), strict=True))
    details = {"model": facts.model, "provider": facts.provider, "cost": cost}
    values["data"] |= {key: value for key, value in details.items() if value is not None}


def as_model_call(
    row: SpanRow, facts: SpanFacts, generation: Generation | None, first: bool, cost: Json | None
) -> None:
    """Make the row a model call. The first generation of a span has the tokens and the cost of the whole call.

    If a call has several generations with counts, `usage` has those of each generation.
    """
    values, data = row.values, row.values["data"]
    message = generation.message if generation else None
    calls = len(tool_uses(message))
    values["type"] = "llm_call"
    model = (generation and generation.model) or facts.model
    values["name"] = values["model"] = part(model or values["name"] or "")
    values["message"] = message
    values["calls"] = calls or None
    values["call_id"] = part(generation.id) if generation and generation.id else None
    values["status"] = _stop(values["status"], generation, calls)
    if first and facts.tokens is not None:
        values |= dict(zip(TOKENS, _storable(facts.tokens), strict=True))
    details: Json = {
        "model": model,
        "provider": (generation and generation.provider) or facts.provider,
        "response_id": facts.response_id,
        "finish_reason": generation.finish_reason if generation else None,
        "parameters": facts.parameters or None,
        "failed": True if (generation and generation.failed) or values["status"] == "error" else None,
        "cost": cost if first else None,
        "usage": _usage(facts, generation),
        # Usually the text of the message.
        "text": generation.text if generation and generation.text not in ("", text_of(message)) else None,
    }
    data |= {key: value for key, value in details.items() if value is not None}


def _usage(facts: SpanFacts, generation: Generation | None) -> Json | None:
    """Return the counts of one of several generations: {} if it has none, None if no generation has counts."""
    if generation is None or len(facts.generations) < 2 or not any(each.tokens for each in facts.generations):
        return None
    if generation.tokens is None:
        return {}
    read, written, *_ = _storable(generation.tokens)
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


def part(text: str | None, longest: int = 255) -> str | None:
    """Return a name that fits a column. A name that is too long ends in its hash, so that names stay distinct."""
    if text is None or len(text) <= longest:
        return text or None
    return f"{text[: longest - 17]}~{sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def removed(old: Stitch) -> Json:
    """Return the values of a removed row. Its position stays, and its id becomes free."""
    keep = {"thread_id", "run_id", "parent_id", "at", "fence", "position", "log_id"}
    values = {name: value if name in keep else None for name, value in old.__dict__.items()}
    return {**values, "id": new_id(), "type": "removed", "data": {}}


def _status(piece: Mapping[str, Any]) -> str | None:
    value = (piece.get("status") or "").lower()
    if piece.get("error") or value in _FAILED:
        return "error"
    return "ok" if piece.get("end") or value in _SUCCEEDED else None


_FAILED: Final = frozenset({"error", "failed", "interrupted", "cancelled"})
_SUCCEEDED: Final = frozenset({"success", "ok", "completed"})


_STOPS: Final = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "completed": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
    "safety": "refusal",
    "guardrail_intervened": "refusal",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    # Without content the requested calls are unknown, but not the reason.
    "tool_calls": "tool_use",
    "tool_call": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
}


def _stop(status: str | None, generation: Generation | None, calls: int) -> str | None:
    """Return the stop reason of the record. The reason of the source is in data.finish_reason."""
    if status == "error" or generation is None:
        return status
    if calls:
        return "tool_use"
    return _STOPS.get((generation.finish_reason or "stop").lower().replace("-", "_"), "end_turn")


def _storable(tokens: TokenCounts) -> list[int]:
    return [min(max(int(count), 0), 2**62) for count in tokens]
