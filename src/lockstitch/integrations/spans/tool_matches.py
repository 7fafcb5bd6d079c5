"""Matching of tool spans to the requests they answer, among all known spans of a trace.

Spans with a call id come first: each takes the last request with that id before it. Spans without a call id take the
remaining requests: each takes the last request with its name before it. Agents of a team run at the same time and may
use the same ids and names. So a span first takes a request whose response has the same parent span. Otherwise only
times decide, so the result does not depend on which spans arrived and which were stored.
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
    """A tool call that a response requests."""

    response: SpanRow | int
    """The response, or its position if only that is known."""
    index: int
    call_id: str
    name: str
    requested_at: str
    order: tuple[Any, ...]
    """The place of the call's row in the log."""
    row: Stitch | None = None
    span: "Span | None" = None
    parent_id: str = ""
    """The row of the parent span of the response. "" if it is unknown."""

    @property
    def turn(self) -> tuple[str, int, str]:
        """The sort key by time. It is the same for arrived and for stored requests."""
        return self.requested_at, self.index, self.call_id

    @property
    def turn_by_name(self) -> tuple[str, int, str]:
        """The sort key for spans without a call id. Of one response, the first request is taken first."""
        return self.requested_at, -self.index, self.call_id

    @property
    def own_row(self) -> Stitch | None:
        """The row of the request alone. A row with span data belongs to its span."""
        return self.row if self.row is not None and "id" not in self.row.data else None


@dataclass(slots=True, eq=False)
class Span:
    """A tool call that has its own span."""

    data: SpanData
    at: datetime
    row: Stitch | None
    call_id: str
    name: str | None = None
    """The name of the tool, if the span has no call id."""
    request: Request | None = None
    parent_id: str = ""
    """The row of the parent span."""

    @property
    def turn(self) -> tuple[datetime, str]:
        return self.at, self.data["id"]


def match(requests: Sequence[Request], spans: Sequence[Span]) -> None:
    """Match each span with the last free request before it. If clocks differ, take the first free request."""
    requests = sorted(requests, key=lambda request: request.turn)
    for request in requests:
        request.span = None
    remaining = sorted(spans, key=lambda span: span.turn)
    for span in remaining:
        span.request = None
    for near in (True, False):
        for span in [span for span in remaining if span.request is None]:
            free = [request for request in requests if request.span is None and (not near or _is_near(request, span))]
            before = [request for request in free if request.requested_at <= format_time(span.at)]
            if before or (free and not near):
                chosen = before[-1] if before else free[0]
                chosen.span, span.request = span, chosen


def deal(requests: Sequence[Request], spans: Sequence[Span]) -> list[Span]:
    """Match each span with the last free request before it. Return the spans that got another call."""
    requests = sorted(requests, key=lambda request: request.turn_by_name)
    for request in requests:
        request.span = None
    ordered = sorted(spans, key=lambda span: span.turn)
    chosen: dict[int, Request] = {}
    by_parent: dict[str, tuple[list[Request], list[Span]]] = {}
    for request in requests:
        by_parent.setdefault(request.parent_id, ([], []))[0].append(request)
    for span in ordered:
        if span.parent_id in by_parent:
            by_parent[span.parent_id][1].append(span)
    for parent_id, (near, below) in by_parent.items():
        if parent_id:
            chosen |= _last_before(near, below)
    taken = {id(request) for request in chosen.values()}
    rest = [request for request in requests if id(request) not in taken]
    chosen |= _last_before(rest, [span for span in ordered if id(span) not in chosen])
    moved: list[Span] = []
    for span in ordered:
        request = chosen.get(id(span))
        if request is not None:
            request.span = span
        call_id = request.call_id if request is not None else without_call(span.data)
        if request is not span.request or call_id != span.call_id:
            span.request = request
            moved.append(span)
    return moved


def _is_near(request: Request, span: Span) -> bool:
    return bool(span.parent_id) and request.parent_id == span.parent_id


def _last_before(requests: Sequence[Request], spans: Sequence[Span]) -> dict[int, Request]:
    """Return the last free request before each span, by the identity of the span. Both are sorted by time."""
    before: list[Request] = []
    requested = 0
    chosen: dict[int, Request] = {}
    for span in spans:
        at = format_time(span.at)
        while requested < len(requests) and requests[requested].requested_at <= at:
            before.append(requests[requested])
            requested += 1
        if before:
            chosen[id(span)] = before.pop()
    return chosen


def requested_calls(message: Json | None, response_id: UUID) -> list[tuple[str, str]]:
    """Return the id and the name of each tool call that a response requests, in order."""
    return [
        (part(str(block.get("id") or "")) or f"{response_id}/{index}", part(str(block.get("name") or "")) or NAMELESS)
        for index, block in enumerate(tool_uses(message))
    ]


def requested_at(stitch: Stitch) -> datetime:
    """Return the time of the request of a stored tool call, or its start time without a request."""
    text = stitch.data.get("asked_at")
    return parse_time(str(text)) if text else at_of(stitch)


def stated_call_id(facts: SpanFacts) -> str | None:
    """Return the call id that a tool span contains, or None."""
    return part(facts.call.id) if facts.call else None


def name_of(span: SpanData, facts: SpanFacts) -> str:
    """Return the tool name of a tool span."""
    return part((facts.call.name if facts.call else None) or span.get("name")) or NAMELESS


def is_guessed(stitch: Stitch) -> bool:
    """True if a row belongs to a span without a call id."""
    return bool(stitch.data.get("by_name")) or ("id" in stitch.data and stitch.call_id == without_call(stitch.data))


def without_call(piece: Mapping[str, Any]) -> str:
    """Return the substitute call id of a span that has no call id."""
    return part(f"span-{piece['id']}") or ""
