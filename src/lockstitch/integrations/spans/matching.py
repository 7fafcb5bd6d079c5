"""Matching: which span of a tool answers which request for it, among all that are known of a trace.

Spans that say which call they are come first: of the requests with that id each has the last one before it. Those that
do not say have what is left: of the requests with their name the last one before them. Both go by times alone, so that
it does not matter what of it arrived and what stood in the record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.integrations.spans.rows import SpanRow, at_of, part
from lockstitch.integrations.spans.span import SpanData, SpanFacts
from lockstitch.model import Json, Stitch, format_time, parse_time, tool_uses

NAMELESS: Final = "tool"


@dataclass(slots=True, eq=False)
class Request:
    """A call that a response asks for."""

    response: SpanRow | int
    """The response, or its place where only that is known."""
    index: int
    call_id: str
    name: str
    asked_at: str
    order: tuple[Any, ...]
    """Where a row of its own comes in the log."""
    row: Stitch | None = None
    span: "Span | None" = None

    @property
    def turn(self) -> tuple[str, int, str]:
        """When it was asked for, among others: the same whether it arrived or stands in the record."""
        return self.asked_at, self.index, self.call_id

    @property
    def turn_by_name(self) -> tuple[str, int, str]:
        """The same, for spans that take the last one: of what one response asks for they take the first one first."""
        return self.asked_at, -self.index, self.call_id

    @property
    def own_row(self) -> Stitch | None:
        """The row that stands for it alone. One with a piece in it is its span's, wherever that stands now."""
        return self.row if self.row is not None and "id" not in self.row.data else None


@dataclass(slots=True, eq=False)
class Span:
    """A call that a span of its own tells of."""

    piece: SpanData
    at: datetime
    row: Stitch | None
    call_id: str
    name: str | None = None
    """What it is called, where it does not say which call it is."""
    request: Request | None = None

    @property
    def turn(self) -> tuple[datetime, str]:
        return self.at, self.piece["id"]


def match(requests: Sequence[Request], spans: Sequence[Span]) -> None:
    """Join each span with the last free request before it, or, where clocks differ, with the first free one."""
    requests = sorted(requests, key=lambda request: request.turn)
    for request in requests:
        request.span = None
    for span in sorted(spans, key=lambda span: span.turn):
        span.request = None
        free = [request for request in requests if request.span is None]
        if not free:
            continue
        before = [request for request in free if request.asked_at <= format_time(span.at)]
        chosen = before[-1] if before else free[0]
        chosen.span, span.request = span, chosen


def deal(requests: Sequence[Request], spans: Sequence[Span]) -> list[Span]:
    """Join each span with the last free request before it, if there is one; the spans that this gives another call."""
    requests = sorted(requests, key=lambda request: request.turn_by_name)
    for request in requests:
        request.span = None
    before: list[Request] = []
    asked = 0
    moved: list[Span] = []
    for span in sorted(spans, key=lambda span: span.turn):
        at = format_time(span.at)
        while asked < len(requests) and requests[asked].asked_at <= at:
            before.append(requests[asked])
            asked += 1
        request = before.pop() if before else None
        if request is not None:
            request.span = span
        call_id = request.call_id if request is not None else without_call(span.piece)
        if request is not span.request or call_id != span.call_id:
            span.request = request
            moved.append(span)
    return moved


def asked(message: Json | None, response_id: UUID) -> list[tuple[str, str]]:
    """The calls that a response asks for, in their order: the id and the name of each."""
    return [
        (part(str(block.get("id") or "")) or f"{response_id}/{index}", part(str(block.get("name") or "")) or NAMELESS)
        for index, block in enumerate(tool_uses(message))
    ]


def asked_at(stitch: Stitch) -> datetime:
    """When a tool call of the record was asked for, or began where nobody did."""
    text = stitch.data.get("asked_at")
    return parse_time(str(text)) if text else at_of(stitch)


def given_id(meaning: SpanFacts) -> str | None:
    """Which call a tool's own span says that it is."""
    return part(meaning.call.id) if meaning.call else None


def name_of(piece: SpanData, meaning: SpanFacts) -> str:
    """What a tool's own span is called."""
    return part((meaning.call.name if meaning.call else None) or piece.get("name")) or NAMELESS


def is_guessed(stitch: Stitch) -> bool:
    """Whether a row stands for a span that does not say which call it is."""
    return bool(stitch.data.get("by_name")) or ("id" in stitch.data and stitch.call_id == without_call(stitch.data))


def without_call(piece: Mapping[str, Any]) -> str:
    """What stands for the id of a call, where a span does not know which call it is."""
    return part(f"span-{piece['id']}") or ""
