"""Matching of tool spans to the requests they answer, among all known spans of a trace.

Spans with a call id come first: each takes a request with that id. Spans without a call id take the remaining requests
with their names. Agents of a team run at the same time and may use the same ids and names. So a span first takes a
request whose response has the nearest common ancestor. Of several such requests it takes the last one before it. The
result does not depend on which spans arrived and which were stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any, Final
from uuid import UUID

from lockstitch.integrations.spans.rows import SpanRow, at_of, part
from lockstitch.integrations.spans.span import SpanData, SpanFacts
from lockstitch.model import Json, Stitch, format_time, parse_time, tool_uses
from lockstitch.model.record import new_dict

NAMELESS: Final = "tool"

Parents = Mapping[UUID, UUID]
"""The parent of each known row of a trace. The run is the parent of rows without a parent span, or is not a row."""

FindParents = Callable[[], Parents]
"""Returns the parents. Only calls with a choice need them."""


@dataclass(frozen=True, slots=True)
class SpanTree:
    """The structure of the stored rows of a trace."""

    parents: Parents = field(default_factory=new_dict)
    responses: Mapping[int, UUID] = field(default_factory=new_dict)
    """The rows of model calls, by position."""


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
    asked_under: str = ""
    """The row of the parent span of the response."""
    parent_id: UUID | None = None
    """The row of the response, or of its parent span. None if both are unknown."""

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
    parent_id: UUID | None = None
    """The row of the parent span."""

    @property
    def turn(self) -> tuple[datetime, str]:
        return self.at, self.data["id"]


def match(requests: Sequence[Request], spans: Sequence[Span], parents: FindParents) -> None:
    """Match the spans and the requests of one call id. If clocks differ, a span takes the first free request."""
    requests = sorted(requests, key=lambda request: request.turn)
    spans = sorted(spans, key=lambda span: span.turn)
    _match(requests, spans, parents)
    free = [request for request in requests if request.span is None]
    for request, span in zip(free, [span for span in spans if span.request is None], strict=False):
        request.span, span.request = span, request


def deal(requests: Sequence[Request], spans: Sequence[Span], parents: FindParents) -> list[Span]:
    """Match the spans and the requests of one name. Return the spans that got another call."""
    spans = sorted(spans, key=lambda span: span.turn)
    earlier = [span.request for span in spans]
    _match(sorted(requests, key=lambda request: request.turn_by_name), spans, parents)
    return [span for span, request in zip(spans, earlier, strict=True) if span.request is not request or _moves(span)]


def _moves(span: Span) -> bool:
    return span.call_id != (span.request.call_id if span.request is not None else without_call(span.data))


def _match(requests: Sequence[Request], spans: Sequence[Span], parents: FindParents) -> None:
    """Match each span with the last free request before it, among those with the nearest common ancestor.

    Both are sorted by time.
    """
    for request in requests:
        request.span = None
    for span in spans:
        span.request = None
    if len(requests) <= 1 and len(spans) <= 1:
        _last_before(requests, spans)
        return
    for some_requests, some_spans in _families(requests, spans, parents()):
        _last_before(some_requests, some_spans)


def _families(
    requests: Sequence[Request], spans: Sequence[Span], parents: Parents
) -> Iterator[tuple[list[Request], list[Span]]]:
    """Yield the free requests and spans below each of their common ancestors. The most distant one is the trace.

    An ancestor comes after all ancestors below it. Requests and spans keep their order.
    """
    places: dict[UUID | None, tuple[list[int], list[int]]] = {}
    for side, items in enumerate((requests, spans)):
        for number, item in enumerate(items):
            places.setdefault(item.parent_id, ([], []))[side].append(number)
    above = _chains(places, parents)
    queue = [(-depth, row) for row, (depth, _) in above.items() if row in places]
    heapify(queue)
    while queue:
        _, row = heappop(queue)
        below = places.pop(row)
        if all(below):
            yield [requests[number] for number in sorted(below[0])], [spans[number] for number in sorted(below[1])]
            below = (
                [number for number in below[0] if requests[number].span is None],
                [number for number in below[1] if spans[number].request is None],
            )
        if row is not None and any(below):
            parent = above[row][1]
            if parent in places:
                for numbers, others in zip(places[parent], below, strict=True):
                    numbers += others
            else:
                places[parent] = below
                heappush(queue, (-above[parent][0], parent))


def _chains(rows: Iterable[UUID | None], parents: Parents) -> dict[UUID | None, tuple[int, UUID | None]]:
    """Return the depth and the parent of these rows and of all their ancestors. None is the trace, at depth 0.

    A row without a known parent, and each row of a cycle, is directly below the trace.
    """
    chains: dict[UUID | None, tuple[int, UUID | None]] = {None: (0, None)}
    for row in rows:
        path: dict[UUID | None, int] = {}
        while row not in chains and row not in path:
            path[row] = len(path)
            row = parents.get(row) if row is not None else None
        first = path.get(row, len(path))
        upwards = list(path)
        for member in upwards[first:]:
            chains[member] = (1, None)
        for member in reversed(upwards[:first]):
            parent = parents.get(member) if member is not None else None
            chains[member] = (chains[parent][0] + 1, parent)
    return chains


def _last_before(requests: Sequence[Request], spans: Sequence[Span]) -> None:
    """Match each span with the last free request before it. Both are sorted by time."""
    before: list[Request] = []
    requested = 0
    for span in spans:
        at = format_time(span.at)
        while requested < len(requests) and requests[requested].requested_at <= at:
            before.append(requests[requested])
            requested += 1
        if before:
            span.request = before.pop()
            span.request.span = span


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
