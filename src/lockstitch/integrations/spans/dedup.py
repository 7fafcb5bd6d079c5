"""Witnesses: spans that tell of the same model call. It is counted once, whoever told of it first or tells more.

Every one of them leaves a claim (`model_calls`), so that those of the record are found again. Who is believed is
decided among all of them, those that arrived and those of the record: it is the same in whatever parts they come.
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
    """A span that tells of a model call, and its time."""

    stitch_id: UUID
    start: datetime
    end: datetime
    arrived: NewSpan | None = None
    row: Stitch | None = None
    """Of one that stands in the record, and of which nothing arrived."""

    def meets(self, other: "ModelCallSpan") -> bool:
        """Whether it may tell of what the other, which is believed, tells of."""
        return self.start <= other.end and other.start <= self.end and not (self.start == self.end == other.end)


class ModelCallDedup:
    """Who tells of the model calls of one batch."""

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
        """The ids of the responses that these spans tell of."""
        return sorted(self._by_response(spans))

    def settle(
        self, spans: Iterable[Sequence[NewSpan]], stored: Iterable[tuple[str, Stitch]]
    ) -> tuple[list[MirroredModelCall], list[Stitch]]:
        """Mark those that tell of a call for which another span stands.

        `stored` are the rows that tell of responses with these ids. What comes out: the claims of those that had none,
        and the rows for which this decides otherwise than the record has it, which are to be worked out anew.

        Whoever tells of the same call tells of the same time: ids alone do not do, since servers exist that give every
        response the same one.
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
        """Decide who of these, which all tell of one time, stand for model calls; the rows that do otherwise so far."""
        ours: list[tuple[ModelCallSpan, SpanData, SpanFacts]] = []
        standing: list[ModelCallSpan] = []
        for one in witnesses:
            if one.arrived is not None:
                ours.append((one, one.arrived.piece, one.arrived.meaning))
            elif one.row is not None and self._names.span(str(one.row.data.get("id"))) != one.row.id:
                # What came through another bridge is not ours to judge: where it stands it stays.
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
    """Groups of which none goes on while another does: nothing that arrives in one has a bearing on another."""
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
    """Who of several is believed: who tells what was said, then who stands outside, then who began first."""
    return not meaning.has_content, piece.get("parent_id") in spans, one.start, piece["id"]
