"""Statistics over many runs: `StatsFilter` selects runs, the rows contain the results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast
from uuid import UUID

from lockstitch.model.record import Json
from lockstitch.model.run import Run
from lockstitch.model.stitch import Stitch

Group = Literal["model", "day", "hour", "agent", "project", "user", "tree", "status", "version", "tag"]
"""Groupings of statistics. `day` and `hour` are those of a run's start in UTC; `tree` is the root thread.

A `version` is an agent with its version, for example `helper v3`. A run with several tags belongs to several groups.
"""

Span = Literal["day", "hour"]
"""Groupings by time: `2026-03-05` or `2026-03-05T14`."""

GROUPS: Final[tuple[Group, ...]] = (
    *("model", "day", "hour", "agent", "project", "user", "tree", "status", "version", "tag"),
)

PARTS: Final = 10**10
"""Parts of a dollar in which costs are added. Whole numbers have the same sum in any order, on every backend."""

TOOL_ERRORS: Final = ("error", "failed", "in_doubt")
"""Statuses of a tool call that failed. Calls that were denied or cancelled are not failures."""


@dataclass(frozen=True, slots=True)
class StatsFilter:
    """Select runs and group their statistics.

    `since` (inclusive) and `until` (exclusive) apply to the start of a run. `project` None selects all projects. With
    `model`, only the usage of that model counts. With `threads`, only runs of these threads count.
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
    groups: Sequence[str] | None = None
    """Names of groups of runs, see `run_group`."""
    most: int | None = None
    """Maximum number of rows: those with the highest cost. None: all. Backends may return more."""
    largest: int | None = None
    """With the groups of a period and `user`: the number of users with their own rows, those with the highest cost.

    Rows of all other users together have a third value in their group. None: all. Backends may return more.
    """


def run_group(run: Run, project: str) -> str:
    """Return the name of the group of a run: of its experiment, or of its project in another system.

    A run without a group belongs to the group with the name of its project, and an imported one to `default`.

    Args:
        run: The run.
        project: Project of its thread.
    """
    group = run.state.get("group")
    return str(group) if group else project if run.source == "native" else "default"


class UsageRow(NamedTuple):
    """Usage of the runs of one group.

    Runs and failures count under the model of the run, tokens and cost under the model of each call. `cost` is None if
    no cost is known. `unpriced` is the number of model calls without a known price; `cost` does not include them.
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
        """Return input, output, cache read and cache write tokens."""
        return self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens

    def as_json(self) -> Json:
        """Return the row as JSON, without its group."""
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
    """Latency in milliseconds and errors of the calls of one tool or model, or of one day or hour.

    Percentiles are by nearest rank, so they are measured values. `timed` is the number of calls with a duration. If
    there are none, the latencies are None.
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
        """Return the share of calls that failed, from 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0

    def as_json(self) -> Json:
        return {**self._asdict(), "error_rate": self.error_rate}


class StitchOutline(NamedTuple):
    """A stitch without its content: the fields that the structure of a run needs."""

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
    """Milliseconds from the request to the first token of the response."""
    purpose: str | None = None
    """Purpose of a model call outside the agent loop."""
    delay: float | None = None
    """Seconds of delay after a failed call."""


DATA_FIELDS: Final = ("cost", "first_token_ms", "purpose", "delay")
"""Keys in the `data` of calls and retries that belong to the outline. Backends read only these."""

TYPES_WITH_DATA: Final = frozenset({"llm_call", "api_retry"})
"""Types that have these keys. A stitch of another type has them if it has token counts: an embedding."""

COLUMN_FIELDS: Final = tuple(name for name in StitchOutline._fields if name not in DATA_FIELDS)
"""Fields that an outline and a stitch have in common."""


def outline(stitch: Stitch) -> StitchOutline:
    """Return the outline of a complete stitch."""
    fields = (getattr(stitch, name) for name in COLUMN_FIELDS)
    return StitchOutline(
        *fields,
        *(outline_facts([stitch.data.get(name) for name in DATA_FIELDS]) if _has_details(stitch) else ()),
    )


def _has_details(stitch: Stitch) -> bool:
    return stitch.type in TYPES_WITH_DATA or stitch.input_tokens is not None


def outline_facts(values: Sequence[Any]) -> tuple[float | None, int | None, str | None, float | None]:
    """Return the outline's details from the values of these keys.

    Any writer may have stored them, so they can have any type.
    """
    cost, first, purpose, delay = values
    began = _number(first)
    return amount(cost), None if began is None else round(began), _word(purpose), _number(delay)


def amount(cost: Any) -> float | None:
    """Return a cost in dollars. It is stored as a number or as an object with `total_cost`."""
    return _number(cast("Json", cost).get("total_cost") if isinstance(cost, dict) else cost)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def to_micro_parts(cost: float | None) -> int | None:
    """Return a cost as a whole number of `PARTS` of a dollar."""
    return None if cost is None else round(min(cost, 1e15) * PARTS)


def sum_usage(figures: Iterable[UsageRow], group: tuple[str | None, ...] = ()) -> UsageRow:
    """Return the sum of usage rows. It does not depend on their order."""
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
    """Return the latency row of calls with these durations. None is a call without a duration."""
    every = list(durations)
    known = sorted(number for number in every if number is not None)
    if not known:
        return LatencyRow(name, len(every), errors)
    ranks = [known[-(-len(known) * percent // 100) - 1] for percent in (50, 95, 99)]
    return LatencyRow(name, len(every), errors, len(known), sum(known) / len(known), *ranks, max_ms=known[-1])
