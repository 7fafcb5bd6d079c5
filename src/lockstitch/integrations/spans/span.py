"""`SpanData` and `SpanFacts`: a foreign span in the form that all integrations share.

`SpanData` is the data that arrived of a span: plain JSON with the keys below. Data of one span is merged field by
field, in any order, and the merged data is stored as the `data` of the stitch. `SpanFacts` are computed from the merged
data alone, by the integration of the source: the model and its answer, the tool call, the token counts. So late data
has the same effect as data in time, and a second import changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, Required, TypedDict, cast
from uuid import UUID

import orjson

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, Message, codec
from lockstitch.model.record import new_dict, new_list


class SpanData(TypedDict, total=False):
    """The data of a span. Only `id` and `trace_id` are required. Unknown values are omitted, never None."""

    id: Required[str]
    trace_id: Required[str]
    parent_id: str
    """The parent span. The root of a trace has none."""
    name: str
    kind: str
    """The kind in the words of the source: llm, tool, chain, retriever, embedding, prompt, parser, agent, …"""
    start: str
    """A time as `format_time` writes it: ISO 8601 in UTC with Z."""
    end: str
    order: str
    """Sort key for spans with the same start time (LangSmith's dotted_order)."""
    inputs: Json
    outputs: Json
    error: str
    status: str
    tags: list[str]
    metadata: Json
    events: list[Any]
    extra: Json
    """All other values of the source, under their own names."""
    thread_id: str
    """The conversation of the trace, as the source names it."""
    user_id: str
    session_id: str
    trace_name: str
    """The name of the trace, if the source gives it another name than its root span."""
    group: str
    """LangSmith's project or OpenTelemetry's service.name. An attribute, never a boundary."""
    total_tokens: int
    """The total that the source gives for the span, including its descendants."""
    total_cost: float
    children: list[str]
    """All descendants, if the source lists them. The trace is complete then."""
    inferred: bool
    """True if the source does not name the trace. `trace_id` is then derived from the parent links."""


class Attachment(NamedTuple):
    """A file that belongs to a span."""

    span_id: str
    name: str
    media_type: str | None
    content: bytes


class SpanFeedback(NamedTuple):
    """Feedback of a person or a check on a span."""

    id: str
    span_id: str | None
    trace_id: str | None
    key: str
    score: float | None = None
    value: Json | None = None
    comment: str | None = None
    at: str | None = None
    amends: bool = False
    """True if it changes earlier feedback with the same id and contains only the new values."""
    group_id: str | None = None
    """The id of the experiment, for feedback on all its runs. It has no span then."""
    about: Json | None = None
    """All other values of the source: its own ids, a correction, the evaluator."""


Item = SpanData | Attachment | SpanFeedback


def size_of(item: Item) -> int:
    """Return the estimated size of an item in bytes."""
    if isinstance(item, Attachment):
        return len(item.content)
    if isinstance(item, SpanFeedback):
        return 200
    try:
        return len(orjson.dumps(item))
    except TypeError:
        pass
    try:
        return len(codec.dumps(item))
    except (LockstitchError, RecursionError):
        return 0


class TokenCounts(NamedTuple):
    """The token counts of one model call. `input` includes cached tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class RequestedCall(NamedTuple):
    """A tool call that a model requested."""

    id: str | None
    name: str
    args: Any


class Result(NamedTuple):
    """The result of a tool call, from a tool span or from a message."""

    call_id: str | None
    name: str | None
    content: Any
    """Text, or a list of blocks."""
    failed: bool | None
    """None if it is unknown."""
    requested: bool = False
    """For a mentioned result: True if its request is mentioned too, so that it is not new."""


class Generation(NamedTuple):
    """One answer of a model as a message with text, thinking and tool_use blocks. Most spans have one."""

    message: Message
    text: str
    id: str | None
    """The id of the message."""
    finish_reason: str | None
    failed: bool = False
    tokens: TokenCounts | None = None
    """The counts of this answer, if the source gives them per answer."""
    model: str | None = None
    """The model and the provider of this answer, if the source gives them per answer."""
    provider: str | None = None


def _no_text() -> None:
    return None


@dataclass(slots=True, eq=False)
class SpanFacts:
    """The facts of a span, computed from its merged data. Unknown values are empty.

    Several spans can share one object, so it is never changed. It is not frozen, because creating a frozen one takes
    three times as long.
    """

    role: Literal["llm", "tool", "span"]
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    """The provider's id of the response. Two spans with the same id may describe the same model call."""
    has_content: bool = False
    """True if the span contains the messages of the call."""
    parameters: Json = field(default_factory=new_dict)
    """Parameters of the request: temperature, max_tokens, …"""
    generations: list[Generation] = field(default_factory=new_list)
    tokens: TokenCounts | None = None
    """The token counts of a model call, or of a span that is an embedding."""
    cost: float | None = None
    """Cost of this call in USD, if the source gives it."""
    call: RequestedCall | None = None
    """For a tool span: the call, as far as it is known."""
    result: Result | None = None
    """For a tool span: the result."""
    results: list[Result] = field(default_factory=new_list)
    """Results of other calls that its inputs and outputs mention, in order."""
    find_input: Callable[[], str | None] = _no_text
    find_answer: Callable[[], str | None] = _no_text
    missing: list[str] = field(default_factory=new_list)
    """Expected fields that the span lacks, for the report."""

    @property
    def input_text(self) -> str | None:
        """The last user text in its inputs. It is searched when it is read, because only that of a root is needed."""
        return self.find_input()

    @property
    def answer(self) -> str | None:
        """The last assistant text in its outputs, searched when it is read."""
        return self.find_answer()


@dataclass(slots=True)
class NewSpan:
    """A span with new data, merged with the stored data. Its ids and its time are computed once for all rules."""

    data: SpanData
    facts: SpanFacts
    row_id: UUID
    parent_id: UUID
    """The row of the parent span, or the run of a span without a parent."""
    at: datetime
    """The start time."""
    order: tuple[Any, ...]
    """The sort key in its trace."""
    duplicate_of: UUID | None = None


class TraceSource(Protocol):
    """An integration with one source of traces."""

    source: str

    root_names_trace: bool
    """True if a trace has the id of its root span. Only then can the trace of a span be inferred from its parent."""

    def facts(self, span: SpanData) -> SpanFacts:
        """Compute the facts of merged span data. Never raises, for any data."""
        ...


def is_root(span: SpanData) -> bool:
    """True if the span is the root of its trace. False as long as the data does not decide it."""
    return not span.get("parent_id") and (span["id"] == span["trace_id"] or "start" in span)


def above(span: SpanData) -> str | None:
    """Return the id that decides the trace of a span: the trace that the source names, else the parent.

    None if the span is the root of its trace. In a source whose traces have the id of their root span, both are ids of
    spans, so following these links from span to span leads to the root.
    """
    link = span.get("parent_id") if span.get("inferred") else span["trace_id"]
    return link if link and link != span["id"] else None


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> SpanData:
    """Merge two sets of data of one span. Values of `new` win, with these exceptions.

    None, "", {} and [] never replace a value, because a post has empty outputs and may arrive after the patch that
    filled them. `metadata` and `extra` are merged key by key. Start data that arrives after the end only fills gaps. A
    trace that the source names replaces an inferred one.
    """
    if "end" in old and "start" in new and "end" not in new:
        old, new = new, old
    merged: dict[str, Any] = dict(old)
    for key, value in new.items():
        if value is None or value == "" or value == {} or value == []:
            merged.setdefault(key, value)
        elif key in _BAGS and isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        elif key in _LOGGED and merged.get(key):
            merged[key] = _with_logged(merged[key], value)
        else:
            merged[key] = value
    named = [piece["trace_id"] for piece in (old, new) if "trace_id" in piece and not piece.get("inferred")]
    if named and "inferred" in merged:
        merged["trace_id"] = named[-1]
        del merged["inferred"]
    return cast("SpanData", merged)


_BAGS = frozenset({"metadata", "extra"})
_LOGGED = frozenset({"inputs", "outputs", "events"})

LOG = "otel.log"
"""The member of a message or an event that came from a log record. It sorts by time and identifies the record."""


def _with_logged(old: Any, new: Any) -> Any:
    """Merge messages or events of which some came from log records, one record each. Otherwise the new value wins.

    Own messages of a span win over those of log records, which repeat them. Own events and those of log records are
    both stored.
    """
    sides: list[Any] = [old, new]
    if all(isinstance(side, dict) for side in sides):
        entries = [side.get("messages") for side in sides]
        logged = [_is_logged(messages) for messages in entries]
        return {"messages": _united(*entries)} if all(logged) else sides[0] if logged[1] else sides[1]
    if all(isinstance(side, list) for side in sides) and any(map(_is_logged, sides)):
        return _united(*sides)
    return sides[1]


def _is_logged(entries: Any) -> bool:
    """True if a list ends with an entry of a log record. Own entries come before."""
    last = cast("list[Any]", entries)[-1] if isinstance(entries, list) and entries else None
    return isinstance(last, dict) and LOG in last


def _united(old: Any, new: Any) -> list[Any]:
    """Return the own entries of the newer list that has some, and the entries of log records in their order."""
    own = [item for item in new if LOG not in item] or [item for item in old if LOG not in item]
    logged = {item[LOG]: item for item in (*old, *new) if LOG in item}
    return [*own, *(logged[key] for key in sorted(logged))]
