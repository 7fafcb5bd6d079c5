"""`ModelCallDedup`: spans that describe the same model call count once.

Each such span stores a claim (`mirrored_model_calls`), so that later batches find it. All spans of a call, new and
stored ones, decide which one counts. The result does not depend on the order in which they arrive.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lockstitch.integrations.spans.rows import MirrorIds, at_of, part, stored_span_data
from lockstitch.integrations.spans.span import NewSpan, SpanData, SpanFacts, TraceSource
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
        self,
        project: str,
        trace_source: TraceSource,
        names: MirrorIds,
        arrived: Iterable[tuple[UUID, Sequence[NewSpan]]],
        now: datetime,
    ) -> None:
        """`arrived` are the new spans of each trace, with the thread of the trace."""
        self._project = project
        self._source = trace_source
        self._names = names
        self._now = now
        self._arrived = list(arrived)
        self._by_response: dict[str, list[tuple[UUID, NewSpan]]] = defaultdict(list)
        """The spans of model calls with their threads, by the id of the response."""
        for thread_id, spans in self._arrived:
            for new_span in spans:
                facts = new_span.facts
                if facts.role == "llm" and (response_id := part(facts.response_id)):
                    self._by_response[response_id].append((thread_id, new_span))

    def response_ids(self) -> list[str]:
        """Return the ids of the responses that the new spans describe."""
        return sorted(self._by_response)

    def mark_duplicates(self, stored: Sequence[tuple[str, Stitch]]) -> tuple[list[MirroredModelCall], list[Stitch]]:
        """Mark the spans that duplicate another span of the same model call.

        `stored` are the stored rows of responses with these ids. Returns the new claims, and the stored rows with a
        changed result, which must be computed again.

        Duplicate spans overlap in time. The response id alone is not enough, because some servers give every response
        the same id.
        """
        arriving = {new_span.row_id for _, spans in self._arrived for new_span in spans} if stored else set[UUID]()
        stitches: dict[str, dict[UUID, Stitch]] = defaultdict(dict)
        for response_id, row in stored:
            stitches[response_id][row.id] = row
        claims: list[MirroredModelCall] = []
        revised: list[Stitch] = []
        for response_id, new_spans in self._by_response.items():
            rows = stitches.get(response_id, {})
            claims += [
                self._claim(response_id, thread_id, new_span)
                for thread_id, new_span in new_spans
                if new_span.row_id not in rows
            ]
            if len(new_spans) == 1 and not rows:
                # Nothing to compare with.
                continue
            call_spans = [_arrived(new_span) for _, new_span in new_spans]
            call_spans += [_stored(row) for row in rows.values() if row.id not in arriving]
            for group in _overlapping(call_spans):
                if any(model_call_span.arrived for model_call_span in group):
                    revised += self._choose(response_id, group)
        return claims, revised

    def _choose(self, response_id: str, call_spans: Sequence[ModelCallSpan]) -> list[Stitch]:
        """Decide which overlapping spans count as model calls. Return the stored rows with a changed result."""
        candidates: list[tuple[ModelCallSpan, SpanData, SpanFacts]] = []
        counted: list[ModelCallSpan] = []
        for call_span in call_spans:
            if call_span.arrived is not None:
                candidates.append((call_span, call_span.arrived.data, call_span.arrived.facts))
            elif call_span.row is not None and self._names.span(str(call_span.row.data.get("id"))) != call_span.row.id:
                # A span of another integration keeps its state, because this one cannot compute its facts.
                counted += [call_span] if call_span.row.type == "llm_call" else []
            elif call_span.row is not None:
                span = stored_span_data(call_span.row.data)
                facts = self._source.facts(span)
                if facts.role == "llm" and part(facts.response_id) == response_id:
                    candidates.append((call_span, span, facts))
        spans = {span["id"] for _, span, _ in candidates}
        revised: list[Stitch] = []
        for call_span, _, _ in sorted(candidates, key=lambda messages: _rank(*messages, spans)):
            owner = next((other.stitch_id for other in counted if call_span.meets(other)), None)
            if owner is None:
                counted.append(call_span)
            if call_span.arrived is not None:
                call_span.arrived.duplicate_of = owner
            elif call_span.row is not None and call_span.row.data.get("duplicate_of") != (
                str(owner) if owner else None
            ):
                revised.append(call_span.row)
        return revised

    def _claim(self, response_id: str, thread_id: UUID, new_span: NewSpan) -> MirroredModelCall:
        # The texts are storable. Validating a claim takes longer than all its other steps.
        values = {
            "project": self._project,
            "provider": new_span.facts.provider or "",
            "response_id": response_id,
            "thread_id": thread_id,
            "stitch_id": new_span.row_id,
            "at": self._now,
        }
        return MirroredModelCall.unchecked(values)


def _arrived(new_span: NewSpan) -> ModelCallSpan:
    return ModelCallSpan(new_span.row_id, new_span.at, _end(new_span.data, new_span.at), arrived=new_span)


def _stored(row: Stitch) -> ModelCallSpan:
    start = at_of(row)
    return ModelCallSpan(row.id, start, _end(row.data, start), row=row)


def _end(piece: Mapping[str, object], start: datetime) -> datetime:
    end = piece.get("end")
    return parse_time(str(end)) if end else start


def _overlapping(call_spans: Sequence[ModelCallSpan]) -> Iterator[list[ModelCallSpan]]:
    """Yield groups of spans that overlap in time. Spans of different groups do not affect each other."""
    group: list[ModelCallSpan] = []
    until: datetime | None = None
    for call_span in sorted(call_spans, key=lambda model_call_span: model_call_span.start):
        if until is not None and call_span.start > until:
            yield group
            group, until = [], None
        group.append(call_span)
        until = max(until or call_span.end, call_span.start, call_span.end)
    if group:
        yield group


def _rank(
    model_call_span: ModelCallSpan, span: SpanData, facts: SpanFacts, spans: set[str]
) -> tuple[bool, bool, datetime, str]:
    """Return the rank of a span: spans with content first, then outer spans, then earlier spans."""
    return not facts.has_content, span.get("parent_id") in spans, model_call_span.start, span["id"]
