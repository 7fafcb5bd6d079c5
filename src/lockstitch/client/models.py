"""The responses of a server that are not records: rows of lists, results and events."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from lockstitch.model import Json, Run, Stitch, Thread, parse_time


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread in a list, with the totals of its runs. Runs of child threads are not counted."""

    id: UUID
    """Id of the thread."""
    key: str | None
    """Key of the thread."""
    project: str
    """Project of the thread."""
    kind: str
    """`chat`, `goal`, `task` or `trace`."""
    status: str
    """Status of the thread."""
    waiting_for: list[Json]
    """The waits of the thread, as JSON."""
    agent: str | None
    """Name of the agent."""
    version: int | None
    """Version of the agent's definition."""
    position: int
    """Position of the last stitch."""
    runs: int
    """Number of runs."""
    usage: dict[str, int]
    """Tokens of all runs, by kind."""
    total_cost: float | None
    """US dollars of all runs with a known price; None if there is none."""
    error: str | None
    """Message of the last error, if the thread failed."""
    created_at: datetime
    """Creation time."""
    updated_at: datetime
    """Time of the last change."""
    title: str | None = None
    """Title of the thread."""
    goal: str | None = None
    """Goal of the thread, in words."""
    user_id: str | None = None
    """Id of the user."""
    parent_id: UUID | None = None
    """Id of the parent thread."""
    scores: dict[str, Json] = field(default_factory=dict[str, Json])
    """Average and number of the scores of feedback, by name."""
    tasks: list[Json] = field(default_factory=list[Json])
    """Task list of a goal."""
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


class Matches(NamedTuple):
    """Threads and runs that a part of an id matches."""

    exact: Thread | None
    """The thread whose id or key is the whole text, or None."""
    threads: list[Thread]
    """Threads whose id matches, the latest first."""
    runs: list[Run]
    """Runs whose id matches, the latest first."""


class WaitingThread(NamedTuple):
    """A thread that waits for a person."""

    thread: Thread
    """The thread."""
    replies: list[Json]
    """The calls that wait for a reply: {kind, call_id, call_key, tool, input, question, member, since}."""


class Inbox(NamedTuple):
    """Threads that wait for a person, the longest wait first."""

    threads: list[WaitingThread]
    """The first threads."""
    total: int
    """Number of all threads that wait for a person."""


class History(NamedTuple):
    """Finished turns, newest first. `has_more` is True if older turns exist."""

    turns: list[Json]
    """The turns as JSON."""
    has_more: bool
    """True if older turns exist."""


class Hit(NamedTuple):
    """A search result: in the title of a thread (position None), or in a stitch."""

    thread_id: UUID
    """Id of the thread."""
    position: int | None
    """Position of the stitch; None if the title matches."""
    score: float
    """Relevance; higher is better."""
    key: str | None
    """Key of the thread."""
    title: str | None
    """Title of the thread."""
    run_id: UUID | None = None
    """Id of the run of the stitch."""
    snippet: str = ""
    """Text around the first matching word."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, or its current state."""

    thread_id: UUID
    """The thread of the run."""
    run_id: UUID
    """The run."""
    status: str
    """`pending`, `running`, `waiting`, `completed`, `failed` or `cancelled`."""
    stop_reason: str | None
    """Why the run ended or paused, for example `end_turn` or `awaiting_approval`."""
    output_text: str | None
    """The text of the last answer."""
    steps: int
    """Number of model calls of the loop."""
    usage: dict[str, int]
    """Tokens of all model calls, by kind."""
    total_cost: float | None
    """US dollars of all calls with a known price; None if there is none."""
    in_doubt: list[Json]
    """Calls with an unknown outcome."""
    waiting_for: list[Json]
    """The waits of the run, as JSON."""
    generated_files: list[Json]
    """Files that the run created."""
    error: str | None
    """Message of the error, if the run failed."""
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
    """Kind of the event."""
    data: Json
    """Data of the event."""
    position: int
    """Position of the last stitch so far."""
    stitch: Stitch | None = None
    """The stitch of a `stitch` event."""


Difference = Json
"""The difference of two runs: {a, b, same, changes, steps}."""
