"""The baseline on SQLite: one connection, one transaction per append, values serialised before the clock starts."""

import sqlite3
import time
from collections.abc import Iterator

from benchmarks.workload import Agent, run_fields, steps
from lockstitch.model import CHAIN_TYPES, format_time, new_id
from lockstitch.model.clock import SystemClock

_HEAD = """UPDATE threads SET position = ?, crashes = 0, tip_id = ?, updated_at = ?
WHERE no = ? AND fence = ? AND position = ? AND worker_id IS ?"""
_RUN = "UPDATE run_rows SET steps = ?, input_tokens = ?, output_tokens = ? WHERE no = ?"
_STITCH = """INSERT INTO stitch_rows (
    thread_no, position, id, run_no, lane, previous, previous_id, reply_to, call_index, calls, parent_id, child_id,
    fence, step_number, type, name, call_id, status, message, data, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, duration_ms, messages_count, estimated_tokens, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

Parameters = tuple[object, ...]


class SqliteFloor:
    """Writes the rows of the store to the threads of `agents`. Their store must not write to them any longer."""

    def __init__(self, path: str, agents: list[Agent]) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        # The same settings as the store.
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        self._connection = connection
        self._threads = [_Thread(connection, agent) for agent in agents]

    def append(self, number: int) -> float:
        """Make appends, one thread after the other. Return appends per second."""
        pending = [self._threads[turn % len(self._threads)].next() for turn in range(number)]
        execute = self._connection.execute
        started = time.perf_counter()
        for head, stitch, run in pending:
            execute("BEGIN IMMEDIATE")
            if execute(_HEAD, head).rowcount != 1:
                raise RuntimeError("another writer changed the thread of the baseline")
            execute(_STITCH, stitch)
            execute(_RUN, run)
            execute("COMMIT")
        return number / (time.perf_counter() - started)

    def close(self) -> None:
        self._connection.close()


class _Thread:
    """One thread of the baseline: its numbers and its position."""

    def __init__(self, connection: sqlite3.Connection, agent: Agent) -> None:
        self._no, self._fence, self._worker_id, self._position = connection.execute(
            "SELECT no, fence, worker_id, position FROM threads WHERE id = ?", (str(agent.head.id),)
        ).fetchone()
        (self._run_no,) = connection.execute("SELECT no FROM run_rows WHERE id = ?", (str(agent.run.id),)).fetchone()
        self._pending = self._appends()

    def next(self) -> tuple[Parameters, Parameters, Parameters]:
        """Return the parameters of the next append: head, stitch, run."""
        return next(self._pending)

    def _appends(self) -> Iterator[tuple[Parameters, Parameters, Parameters]]:
        bodies = steps()
        previous: int | None = None
        while True:
            position = self._position + 1
            step = bodies[(position - 1) % len(bodies)]
            answers = step.type == "tool_call"
            stitch_id, now = str(new_id()), format_time(SystemClock().now())
            head = (position, stitch_id, now, self._no, self._fence, self._position, self._worker_id)
            stitch = (
                *(self._no, position, stitch_id, self._run_no, None, previous, None),
                *((position - 1, 0) if answers else (None, None)),
                *(None if answers else 1, None, None),
                *(self._fence, (position + 1) // 2, step.type, step.name, step.call_id, step.status),
                *(step.text, "{}", step.input_tokens, step.output_tokens, None, None),
                *(step.duration_ms, None, None, now),
            )
            run = (*run_fields(position).values(), self._run_no)
            yield head, stitch, run
            self._position = position
            previous = position if step.type in CHAIN_TYPES else previous
