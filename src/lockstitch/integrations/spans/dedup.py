"""`ModelCallDedup`: spans that describe the same model call count once.

Each such span stores a claim (`model_calls`), so that later batches find it. All spans of a call, new and stored ones,
decide which one counts. The result does not depend on the order in which they arrive.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lockstitch.integrations.spans.rows import MirrorIds, at_of, begun, part, piece_of
from lockstitch.integrations.spans.span import SpanData, SpanFacts, TraceSource
from lockstitch.integrations.spans.trace import NewSpan
from lockstitch.model import MirroredModelCall, Stitch, parse_time


@dataclass(slots=True, eq=False)
class ModelCallSpan:
    """A span that describes a model call, with its time."""

    stitch_id: UUID
    start: datetime
    end: datetime
    arrived: NewSpan | None = None
    row: Stitch | None = None
    """The stored row, if the span is stored and nothing new arrived for it."""

    def meets(self, other: "ModelCallSpan") -> bool:
        """True if both spans overlap in time, so that they may describe the same call."""
        return self.start <= other.end and other.start <= self.end and not (self.start == self.end == other.end)


class ModelCallDedup:
    """Finds duplicate spans of model calls in one batch."""

    def __init__(
        self, project: str, bridge: TraceSource, names: MirrorIds, homes: Mapping[str, UUID], now: datetime
    ) -> None:
        self._project = project
        self._bridge = bridge
        self._names = names
        self._homes = homes
        """The thread of each span."""
        self._now = now

    def told(self, spans: Iterable[Sequence[NewSpan]]) -> list[str]:
        """Return the ids of the responses that these spans describe."""
        return sorted(self._by_response(spans))

    def settle(
        self, spans: Iterable[Sequence[NewSpan]], stored: Iterable[tuple[str, Stitch]]
    ) -> tuple[list[MirroredModelCall], list[Stitch]]:
        """Mark the spans that duplicate another span of the same model call.

        `stored` are the stored rows of responses with these ids. Returns the new claims, and the stored rows with a
        changed result, which must be computed again.

        Duplicate spans overlap in time. The response id alone is not enough, because some servers give every response
        the same id.
        """
        spans = list(spans)
        arriving = {self._names.span(one.piece["id"]) for trace in spans for one in trace}
        known: dict[str, dict[UUID, Stitch]] = defaultdict(dict)
        for response_id, row in stored:
            known[response_id][row.id] = row
        claims: list[MirroredModelCall] = []
        revised: list[Stitch] = []
        for response_id, told in self._by_response(spans).items():
            rows = known[response_id]
            witnesses = [self._arrived(one) for one in told]
            claims += [self._claim(response_id, one) for one in witnesses if one.stitch_id not in rows]
            witnesses += [_stored(row) for row in rows.values() if row.id not in arriving]
            for group in _at_one_time(witnesses):
                if any(one.arrived for one in group):
                    revised += self._judge(response_id, group)
        return claims, revised

    def _judge(self, response_id: str, witnesses: Sequence[ModelCallSpan]) -> list[Stitch]:
        """Decide which overlapping spans count as model calls. Return the stored rows with a changed result."""
        ours: list[tuple[ModelCallSpan, SpanData, SpanFacts]] = []
        standing: list[ModelCallSpan] = []
        for one in witnesses:
            if one.arrived is not None:
                ours.append((one, one.arrived.piece, one.arrived.meaning))
            elif one.row is not None and self._names.span(str(one.row.data.get("id"))) != one.row.id:
                # A span of another integration keeps its state, because this one cannot compute its facts.
                standing += [one] if one.row.type == "llm_call" else []
            elif one.row is not None:
                piece = piece_of(one.row.data)
                meaning = self._bridge.facts(piece)
                if meaning.role == "llm" and part(meaning.response_id) == response_id:
                    ours.append((one, piece, meaning))
        spans = {piece["id"] for _, piece, _ in ours}
        revised: list[Stitch] = []
        for one, _, _ in sorted(ours, key=lambda told: _rank(*told, spans)):
            owner = next((other.stitch_id for other in standing if one.meets(other)), None)
            if owner is None:
                standing.append(one)
            if one.arrived is not None:
                one.arrived.duplicate_of = owner
            elif one.row is not None and one.row.data.get("duplicate_of") != (str(owner) if owner else None):
                revised.append(one.row)
        return revised

    def _arrived(self, one: NewSpan) -> ModelCallSpan:
        start = begun(one.piece, self._now)
        return ModelCallSpan(self._names.span(one.piece["id"]), start, _end(one.piece, start), arrived=one)

    def _claim(self, response_id: str, one: ModelCallSpan) -> MirroredModelCall:
        assert one.arrived is not None
        return MirroredModelCall(
            project=self._project,
            provider=one.arrived.meaning.provider or "",
            response_id=response_id,
            thread_id=self._homes[one.arrived.piece["id"]],
            stitch_id=one.stitch_id,
            at=self._now,
        )

    def _by_response(self, spans: Iterable[Sequence[NewSpan]]) -> dict[str, list[NewSpan]]:
        found: dict[str, list[NewSpan]] = defaultdict(list)
        for trace in spans:
            for one in trace:
                response_id = part(one.meaning.response_id)
                if one.meaning.role == "llm" and response_id:
                    found[response_id].append(one)
        return found


def _stored(row: Stitch) -> ModelCallSpan:
    start = at_of(row)
    return ModelCallSpan(row.id, start, _end(row.data, start), row=row)


def _end(piece: Mapping[str, object], start: datetime) -> datetime:
    ended = piece.get("end")
    return parse_time(str(ended)) if ended else start


def _at_one_time(witnesses: Sequence[ModelCallSpan]) -> Iterator[list[ModelCallSpan]]:
    """Yield groups of spans that overlap in time. Spans of different groups do not affect each other."""
    group: list[ModelCallSpan] = []
    until: datetime | None = None
    for one in sorted(witnesses, key=lambda one: one.start):
        if until is not None and one.start > until:
            yield group
            group, until = [], None
        group.append(one)
        until = max(until or one.end, one.start, one.end)
    if group:
        yield group


def _rank(one: ModelCallSpan, piece: SpanData, meaning: SpanFacts, spans: set[str]) -> tuple[bool, bool, datetime, str]:
    """Return the rank of a span: spans with content first, then outer spans, then earlier spans."""
    return not meaning.has_content, piece.get("parent_id") in spans, one.start, piece["id"]
