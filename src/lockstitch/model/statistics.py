"""Figures: what is asked of many runs at once, and the rows that answer it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast
from uuid import UUID

from lockstitch.model.record import Json
from lockstitch.model.stitch import Stitch

Group = Literal["model", "day", "hour", "agent", "project", "user", "tree", "status"]
"""By what figures are put together. Day and hour are those in which a run began, in UTC; a tree is its root thread."""

Span = Literal["day", "hour"]
"""A group that time is cut into: `2026-03-05`, or `2026-03-05T14`."""

GROUPS: Final[tuple[Group, ...]] = ("model", "day", "hour", "agent", "project", "user", "tree", "status")

PARTS: Final = 10**10
"""Parts of a dollar that costs are added in: whole numbers, so that sums are equal in any order, everywhere."""

TOOL_ERRORS: Final = ("error", "failed", "in_doubt")
"""How a tool call can end that did not do what it was called for. Who was not let do it (denied, cancelled) is none."""


@dataclass(frozen=True, slots=True)
class StatsFilter:
    """Of which runs figures are wanted, and by what they are put together.

    Runs count by when they began: since then, and before `until`. `project` None means all. Of a model, only what it
    was used for counts. `threads` are the only ones that count, if given.
    """

    by: Sequence[Group] = ()
    project: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    model: str | None = None
    user: str | None = None
    status: str | None = None
    threads: Sequence[UUID] | None = None


class UsageRow(NamedTuple):
    """What the runs of one group used.

    A run and what failed counts under its own model, tokens and cost under that of each call. `cost` is None while none
    is known; `unpriced` are model calls that nobody knows the price of, so that they are not in it.
    """

    group: tuple[str | None, ...] = ()
    runs: int = 0
    failed_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    unpriced: int = 0

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        return self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens

    def as_json(self) -> Json:
        return {
            "runs": self.runs,
            "failed_runs": self.failed_runs,
            "usage": {
                "input_tokens": self.input_tokens,
                "output_tokens": self.output_tokens,
                "cache_creation_input_tokens": self.cache_write_tokens,
                "cache_read_input_tokens": self.cache_read_tokens,
            },
            "total_cost": self.cost,
            "unpriced": self.unpriced,
        }


class LatencyRow(NamedTuple):
    """How long the calls of one tool or model, or those of one day or hour, took in ms, and how many went wrong.

    Percentiles are by nearest rank: times that were measured. `timed` calls have one; without any they are None.
    """

    name: str | None
    calls: int
    errors: int
    timed: int = 0
    average_ms: float | None = None
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None

    @property
    def error_rate(self) -> float:
        return self.errors / self.calls if self.calls else 0.0

    def as_json(self) -> Json:
        return {**self._asdict(), "error_rate": self.error_rate}


class StitchOutline(NamedTuple):
    """A stitch without what it says: all that the shape of a run needs."""

    position: int
    id: UUID
    type: str
    parent_id: UUID | None
    child_id: UUID | None
    reply_to: int | None
    call_index: int | None
    calls: int | None
    step_number: int | None
    name: str | None
    call_id: str | None
    status: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    duration_ms: int | None
    at: datetime
    cost: float | None = None
    first_token_ms: int | None = None
    """When a response began to come, counted from when it was asked for."""
    purpose: str | None = None
    """What a model call beside the loop was for."""
    delay: float | None = None
    """Seconds that were waited after a call that failed."""


TOLD: Final = ("cost", "first_token_ms", "purpose", "delay")
"""What of the details of calls and retries belongs to their outline; backends read no more of them."""

TELLING: Final = frozenset({"llm_call", "api_retry"})
"""The types that have such details."""

STITCHED: Final = tuple(name for name in StitchOutline._fields if name not in TOLD)
"""The fields of an outline that a stitch has too."""


def outline(stitch: Stitch) -> StitchOutline:
    """The outline of a stitch that was read whole."""
    fields = (getattr(stitch, name) for name in STITCHED)
    return StitchOutline(
        *fields, *(outline_facts([stitch.data.get(name) for name in TOLD]) if stitch.type in TELLING else ())
    )


def outline_facts(values: Sequence[Any]) -> tuple[float | None, int | None, str | None, float | None]:
    """The details of an outline from what stands under their names: content of whoever wrote it, so anything."""
    cost, first, purpose, delay = values
    began = _number(first)
    return amount(cost), None if began is None else round(began), _word(purpose), _number(delay)


def amount(cost: Any) -> float | None:
    """The dollars of a cost, which stands as a number or in parts."""
    return _number(cast("Json", cost).get("total_cost") if isinstance(cost, dict) else cost)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def to_micro_parts(cost: float | None) -> int | None:
    """A cost in the whole parts that costs are added in."""
    return None if cost is None else round(min(cost, 1e15) * PARTS)


def sum_usage(figures: Iterable[UsageRow], group: tuple[str | None, ...] = ()) -> UsageRow:
    """The sum of figures, exact in any order."""
    rows = list(figures)
    costs = [part for row in rows if (part := to_micro_parts(row.cost)) is not None]
    return UsageRow(
        group,
        sum(row.runs for row in rows),
        sum(row.failed_runs for row in rows),
        *map(sum, zip(*(row.tokens for row in rows), strict=True)),
        cost=sum(costs) / PARTS if costs else None,
        unpriced=sum(row.unpriced for row in rows),
    )


def latency(name: str | None, durations: Iterable[int | None], errors: int) -> LatencyRow:
    """The latency of calls that took so long; None: nobody measured it."""
    every = list(durations)
    known = sorted(one for one in every if one is not None)
    if not known:
        return LatencyRow(name, len(every), errors)
    ranks = [known[-(-len(known) * percent // 100) - 1] for percent in (50, 95, 99)]
    return LatencyRow(name, len(every), errors, len(known), sum(known) / len(known), *ranks, max_ms=known[-1])
