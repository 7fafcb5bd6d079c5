"""Witnesses: spans that tell of the same model call. It is counted once, whoever told of it first or tells more."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from lockstitch.bridges.rows import Names, at_of, begun, part
from lockstitch.bridges.trace import Arrived
from lockstitch.records import ModelCall, Stitch, parse_time

Told = tuple[str, str]
"""A provider and its own id of a response."""


class _Standing(NamedTuple):
    """A row that stands for a model call, and its time."""

    stitch_id: UUID
    start: datetime
    end: datetime

    def meets(self, start: datetime, end: datetime) -> bool:
        return start <= self.end and self.start <= end and (start, end) != (self.end, self.end)


class Witnesses:
    """Who tells of the model calls of one batch."""

    def __init__(self, project: str, names: Names, homes: Mapping[str, UUID], now: datetime) -> None:
        self._project = project
        self._names = names
        self._homes = homes
        self._now = now

    def told(self, spans: Iterable[Sequence[Arrived]]) -> list[str]:
        """The ids of the responses that these spans tell of."""
        return sorted({response_id for _, response_id in self._by_call(spans)})

    def settle(self, spans: Iterable[Sequence[Arrived]], owners: Sequence[Stitch]) -> list[ModelCall]:
        """Mark those that tell of a call for which another span stands already; the claims of those that stand now.

        `owners` are the rows that stand for responses of these ids. Whoever tells of the same call tells of the same
        time: ids alone do not do, since servers exist that give every response the same one.
        """
        standing: dict[str, list[_Standing]] = defaultdict(list)
        for row in owners:
            start = at_of(row)
            end = start + timedelta(milliseconds=row.duration_ms or 0)
            standing[str(row.data.get("response_id"))].append(_Standing(row.id, start, end))
        new: list[ModelCall] = []
        for (provider, response_id), witnesses in self._by_call(spans).items():
            known = standing[response_id]
            for one in sorted(witnesses, key=lambda one: self._rank(one, witnesses)):
                stitch_id = self._names.span(one.piece["id"])
                start = begun(one.piece, self._now)
                end = parse_time(ended) if (ended := one.piece.get("end")) else start
                if any(owner.stitch_id == stitch_id for owner in known):
                    continue
                one.duplicate_of = next((owner.stitch_id for owner in known if owner.meets(start, end)), None)
                if one.duplicate_of is None:
                    known.append(_Standing(stitch_id, start, end))
                    new.append(self._claim(provider, response_id, stitch_id, self._homes[one.piece["trace_id"]]))
        return new

    def _claim(self, provider: str, response_id: str, stitch_id: UUID, thread_id: UUID) -> ModelCall:
        return ModelCall(
            project=self._project,
            provider=provider,
            response_id=response_id,
            thread_id=thread_id,
            stitch_id=stitch_id,
            at=self._now,
        )

    def _by_call(self, spans: Iterable[Sequence[Arrived]]) -> dict[Told, list[Arrived]]:
        found: dict[Told, list[Arrived]] = defaultdict(list)
        for trace in spans:
            for one in trace:
                response_id = part(one.meaning.response_id)
                if one.meaning.role == "llm" and response_id:
                    found[one.meaning.provider or "", response_id].append(one)
        return found

    def _rank(self, one: Arrived, others: Sequence[Arrived]) -> tuple[bool, bool, datetime, str]:
        """Who of several is believed: who tells what was said, then who stands outside, then who began first."""
        inside = one.piece.get("parent_id") in {other.piece["id"] for other in others}
        return not one.meaning.has_content, inside, begun(one.piece, self._now), one.piece["id"]
