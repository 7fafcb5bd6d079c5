"""The responses of a server that are not records: rows of lists, results and events."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from lockstitch.model import Json, Stitch, parse_time


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread in a list, with the totals of its runs. Runs of child threads are not counted."""

    id: UUID
    key: str | None
    project: str
    kind: str
    status: str
    waiting_for: list[Json]
    agent: str | None
    version: int | None
    position: int
    runs: int
    usage: dict[str, int]
    total_cost: float | None
    error: str | None
    created_at: datetime
    updated_at: datetime
    title: str | None = None
    goal: str | None = None
    user_id: str | None = None
    parent_id: UUID | None = None
    tasks: list[Json] = field(default_factory=list[Json])
    children: "list[ThreadRow]" = field(default_factory=list["ThreadRow"])
    """The child threads. Only filled in a tree."""

    @classmethod
    def from_json(cls, row: Json) -> "ThreadRow":
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__ if name in row}
        values["id"] = UUID(row["id"])
        values["parent_id"] = UUID(row["parent_id"]) if row.get("parent_id") else None
        values |= {name: parse_time(row[name]) for name in ("created_at", "updated_at")}
        values["children"] = [cls.from_json(child) for child in row.get("children", [])]
        return cls(**values)


class History(NamedTuple):
    """Finished turns, newest first. `has_more` is True if older turns exist."""

    turns: list[Json]
    has_more: bool


class Hit(NamedTuple):
    """A search result: in the title of a thread (position None), an input or an answer."""

    thread_id: UUID
    position: int | None
    score: float
    key: str | None
    title: str | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, or its current state."""

    thread_id: UUID
    run_id: UUID
    status: str
    stop_reason: str | None
    output_text: str | None
    steps: int
    usage: dict[str, int]
    total_cost: float | None
    in_doubt: list[Json]
    waiting_for: list[Json]
    generated_files: list[Json]
    error: str | None
    partial: bool
    """True if a cancel stopped the run, and `output_text` is the text of its answer so far."""

    @classmethod
    def from_json(cls, row: Json) -> "RunResult":
        values: dict[str, Any] = {name: row.get(name) for name in cls.__slots__}
        values |= {name: UUID(row[name]) for name in ("thread_id", "run_id")}
        return cls(**values)


class StreamEvent(NamedTuple):
    """One event of a thread. `stitch` is set for stitch events. `position` is the position of the last stitch."""

    type: Literal["stitch", "delta", "status", "end"]
    data: Json
    position: int
    stitch: Stitch | None = None


Difference = Json
"""The difference of two runs: {a, b, same, changes, steps}."""
