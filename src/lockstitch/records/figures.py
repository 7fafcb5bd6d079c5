"""Figures: what is asked of many runs at once, and the rows that answer it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple
from uuid import UUID

from lockstitch.records.record import Json
from lockstitch.records.stitch import Stitch

Group = Literal["model", "day", "agent", "project", "user", "tree", "status"]
"""By what figures are put together. A day is that on which a run began, in UTC; a tree is its root thread."""

GROUPS: Final[tuple[Group, ...]] = ("model", "day", "agent", "project", "user", "tree", "status")

PARTS: Final = 10**10
"""Parts of a dollar that costs are added in: whole numbers, so that sums are equal in any order, everywhere."""

TOOL_ERRORS: Final = ("error", "failed", "in_doubt")
"""How a tool call can end that did not do what it was called for. Who was not let do it (denied, cancelled) is none."""


@dataclass(frozen=True, slots=True)
class Asked:
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


class Figures(NamedTuple):
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


class Latency(NamedTuple):
    """How long the calls of one tool or model took, in ms, and how many went wrong.

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


class Outline(NamedTuple):
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


def outline(stitch: Stitch) -> Outline:
    """The outline of a stitch that was read whole."""
    return Outline(*(getattr(stitch, name) for name in Outline._fields))


def in_parts(cost: float | None) -> int | None:
    """A cost in the whole parts that costs are added in."""
    return None if cost is None else round(min(cost, 1e15) * PARTS)


def added(figures: Iterable[Figures], group: tuple[str | None, ...] = ()) -> Figures:
    """The sum of figures, exact in any order."""
    rows = list(figures)
    costs = [part for row in rows if (part := in_parts(row.cost)) is not None]
    return Figures(
        group,
        sum(row.runs for row in rows),
        sum(row.failed_runs for row in rows),
        *map(sum, zip(*(row.tokens for row in rows), strict=True)),
        cost=sum(costs) / PARTS if costs else None,
        unpriced=sum(row.unpriced for row in rows),
    )


def latency(name: str | None, durations: Iterable[int | None], errors: int) -> Latency:
    """The latency of calls that took so long; None: nobody measured it."""
    every = list(durations)
    known = sorted(one for one in every if one is not None)
    if not known:
        return Latency(name, len(every), errors)
    ranks = [known[-(-len(known) * percent // 100) - 1] for percent in (50, 95, 99)]
    return Latency(name, len(every), errors, len(known), sum(known) / len(known), *ranks, max_ms=known[-1])
