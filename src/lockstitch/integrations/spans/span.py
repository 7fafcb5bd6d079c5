"""A foreign span, in the words that all bridges share.

It comes in two forms. A **piece** is what arrived of a span: plain JSON with the keys below and nothing left out.
Pieces of one span are merged field by field, whatever order they come in, and the merged piece is what the record
keeps as the stitch's `data`. Its **meaning** is worked out from the merged piece alone, by the bridge that it came
through: which model answered what, which tool was called, what it counted. So a piece that comes late changes the
meaning as if it had come in time, and importing twice changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, Required, TypedDict, cast

from lockstitch.model import Json, Message


class SpanData(TypedDict, total=False):
    """What arrived of a span. Only `id` and `trace_id` are sure; what is unknown is left out, never None."""

    id: Required[str]
    trace_id: Required[str]
    parent_id: str
    """The span that this one is part of; the root of a trace has none."""
    name: str
    kind: str
    """The source's own word: llm, tool, chain, retriever, embedding, prompt, parser, agent, …"""
    start: str
    """A time as `format_time` writes it: ISO 8601 in UTC with Z."""
    end: str
    order: str
    """What orders spans that began at the same time (LangSmith's dotted_order)."""
    inputs: Json
    outputs: Json
    error: str
    status: str
    tags: list[str]
    metadata: Json
    events: list[Any]
    extra: Json
    """Whatever else the source said, under its own names."""
    thread_id: str
    """The conversation that the trace belongs to, in the source's own words."""
    user_id: str
    session_id: str
    group: str
    """LangSmith's project, OpenTelemetry's service.name: an attribute, never a boundary."""
    total_tokens: int
    """What the source itself says about the whole, subspans included."""
    total_cost: float
    children: list[str]
    """All spans below this one, where the source lists them: the trace was given whole."""
    inferred: bool
    """True if the source does not name the trace. `trace_id` is then derived from the parent links."""


class Attachment(NamedTuple):
    """Bytes that belong to a span."""

    span_id: str
    name: str
    media_type: str | None
    content: bytes


class SpanFeedback(NamedTuple):
    """Feedback: what a person or a check said about a span."""

    id: str
    span_id: str | None
    trace_id: str | None
    key: str
    score: float | None = None
    value: Json | None = None
    comment: str | None = None
    at: str | None = None
    amends: bool = False
    """It changes an earlier one with the same id, and says no more than what is new."""


Item = SpanData | Attachment | SpanFeedback


class TokenCounts(NamedTuple):
    """What one model call counted; input includes what the cache had to do with."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class RequestedCall(NamedTuple):
    """A tool that a model asked for."""

    id: str | None
    name: str
    args: Any


class Result(NamedTuple):
    """What a tool gave back, wherever it was said."""

    call_id: str | None
    name: str | None
    content: Any
    """Text, or a list of blocks."""
    failed: bool | None
    """None: nobody said."""
    asked: bool = False
    """Of one that is mentioned: whether the message that asked for it is mentioned too, so that it is no news."""


class Generation(NamedTuple):
    """One answer of a model, as a message of ours: text, thinking and tool_use blocks. Most spans have one."""

    message: Message
    text: str
    id: str | None
    """The message's own id."""
    finish_reason: str | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """What a merged piece says. Whatever it does not say is empty."""

    role: Literal["llm", "tool", "span"]
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    """The provider's own id of its response: two spans that have the same one tell of the same model call."""
    has_content: bool = False
    """Whether it tells what was said, and not only that something was."""
    parameters: Json = field(default_factory=dict[str, Any])
    """Of the request: temperature, max_tokens, …"""
    generations: list[Generation] = field(default_factory=list[Generation])
    tokens: TokenCounts | None = None
    cost: float | None = None
    """USD of this call alone, where the source says it."""
    call: RequestedCall | None = None
    """Of a tool span: which call it is, as far as it knows."""
    result: Result | None = None
    """Of a tool span: what came out."""
    results: list[Result] = field(default_factory=list[Result])
    """Results of other calls that its inputs and outputs mention, in their order."""
    said: str | None = None
    """The last words of a user in its inputs."""
    answer: str | None = None
    """The last words of an assistant in its outputs."""
    missing: list[str] = field(default_factory=list[str])
    """Fields that one would expect of such a span and that are not there, for the report."""


class TraceSource(Protocol):
    """What one source knows about its own pieces."""

    source: str

    root_names_trace: bool
    """True if a trace has the id of its root span. Only then can the trace of a span be inferred from its parent."""

    def facts(self, piece: SpanData) -> SpanFacts:
        """What a merged piece says; never raises, whatever stands in it."""
        ...


def is_root(piece: SpanData) -> bool:
    """Whether a trace begins with this span. A piece that came before the one that names its parent does not say."""
    return not piece.get("parent_id") and (piece["id"] == piece["trace_id"] or "start" in piece)


def above(piece: SpanData) -> str | None:
    """Return the id that decides the trace of a span: the trace that the source names, else the parent.

    None if the span is the root of its trace. In a source whose traces have the id of their root span, both are ids of
    spans, so following these links from span to span leads to the root.
    """
    link = piece.get("parent_id") if piece.get("inferred") else piece["trace_id"]
    return link if link and link != piece["id"] else None


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> SpanData:
    """Both pieces of one span as one: the new one's values, where it has any.

    Nothing is unsaid: None, "", {} and [] never stand over what is there, since a post carries empty outputs and may
    come after the patch that filled them. Bags are merged key by key. A beginning that comes after the end only fills
    gaps: it knows less. A trace that the source names replaces one that was inferred.
    """
    if "end" in old and "start" in new and "end" not in new:
        old, new = new, old
    merged: dict[str, Any] = dict(old)
    for key, value in new.items():
        if value is None or value == "" or value == {} or value == []:
            merged.setdefault(key, value)
        elif key in _BAGS and isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = value
    named = [piece["trace_id"] for piece in (old, new) if "trace_id" in piece and not piece.get("inferred")]
    if named and "inferred" in merged:
        merged["trace_id"] = named[-1]
        del merged["inferred"]
    return cast("SpanData", merged)


_BAGS = frozenset({"metadata", "extra"})
