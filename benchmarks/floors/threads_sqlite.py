"""The baseline of a worker on SQLite: one connection, one transaction per claim and per append, slots in turn."""

import random
import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from benchmarks.floors.plan import TEMPLATE, Append, Row, plan
from lockstitch.model import CHAIN_TYPES, current_process, format_time, new_id
from lockstitch.model.clock import SystemClock

_REGISTER = """INSERT INTO workers (id, host, boot_id, pid, process_started, lease_seconds, started_at, beat_at, dead,
    doing) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, '{}')"""
_CLAIM = """UPDATE threads SET status = 'running', fence = fence + 1, worker_id = ?1, crashes = crashes + 1,
    updated_at = ?2
WHERE id IN (
    SELECT id FROM threads INDEXED BY threads_ready
    WHERE status = 'pending' AND wake_at <= ?2 AND agent IN (?3)
    ORDER BY priority DESC, wake_at, id LIMIT 1)
  AND EXISTS (SELECT 1 FROM workers WHERE id = ?1 AND NOT dead)
RETURNING no, id, fence"""
_USE = "INSERT INTO blob_uses (thread_id, sha256) VALUES (?, ?)"


class SqliteThreads:
    """Executes every ready thread, `concurrency` of them in turn."""

    def __init__(self, path: str, concurrency: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        # The same settings as the store.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._concurrency = concurrency
        self._planned, self._texts, self._agent = _template(self._connection)

    def work(self) -> None:
        worker = current_process(SystemClock().now())
        values = (worker.host, worker.boot_id, worker.pid, worker.process_started, worker.lease_seconds)
        times = (format_time(worker.started_at), format_time(worker.beat_at))
        worker_id = str(worker.id)
        self._begin()
        self._connection.execute(_REGISTER, (worker_id, *values, *times))
        self._connection.execute("COMMIT")
        places: deque[Iterator[None]] = deque()
        for _ in range(self._concurrency):
            places.append(self._place(worker_id))
        while places:
            place = places.popleft()
            if next(place, self) is not self:
                places.append(place)

    def close(self) -> None:
        self._connection.close()

    def _place(self, worker_id: str) -> Iterator[None]:
        """Execute one thread after the other, until none is ready. Other slots run after each commit."""
        execute = self._connection.execute
        while True:
            self._begin()
            now = format_time(SystemClock().now())
            claimed = execute(_CLAIM, (worker_id, now, self._agent)).fetchall()
            execute("COMMIT")
            if not claimed:
                return
            yield
            number, thread_id, fence = claimed[0]
            yield from self._execute(number, thread_id, fence, worker_id)

    def _execute(self, number: int, thread_id: str, fence: int, worker_id: str) -> Iterator[None]:
        execute = self._connection.execute
        position, tip, run_no = 0, (None, None), None
        for append in self._planned:
            self._begin()
            now = format_time(SystemClock().now())
            rows: list[Row] = []
            for stitch in append.stitches:
                entry: Row = {"id": str(new_id()), "previous": None}
                if stitch["type"] in CHAIN_TYPES:
                    entry["previous"], tip = tip[1], (entry["id"], stitch["position"])
                rows.append({**stitch, **entry, "fence": fence, "at": now})
            head = {**append.head, "tip_id": tip[0], "updated_at": now, "position": position + len(rows), "crashes": 0}
            if append.last:
                head["worker_id"] = None
            where = (number, fence, position, worker_id)
            if execute(_head(tuple(head)), (*head.values(), *where)).rowcount != 1:
                raise RuntimeError("another writer changed the thread of the baseline")
            if append.new_run:
                run = {**append.new_run, "id": str(new_id()), "thread_no": number}
                run_no = execute(_insert("run_rows", tuple(run)), tuple(run.values())).lastrowid
                for text in self._texts:
                    execute(_USE, (thread_id, text))
            elif append.run:
                execute(_run(tuple(append.run)), (*append.run.values(), run_no))
            for row in rows:
                row |= {"thread_no": number, "run_no": run_no}
                execute(_insert("stitch_rows", tuple(row)), tuple(row.values()))
            execute("COMMIT")
            position += len(rows)
            yield

    def _begin(self) -> None:
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            # Random pauses like those of the store. SQLite's own pauses let one process monopolise the file.
            time.sleep(random.uniform(0.0005, 0.005))


@cache
def _insert(table: str, names: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@cache
def _head(names: Sequence[str]) -> str:
    changes = ", ".join(f"{name} = ?" for name in names)
    return f"UPDATE threads SET {changes} WHERE no = ? AND fence = ? AND position = ? AND worker_id IS ?"


@cache
def _run(names: Sequence[str]) -> str:
    return f"UPDATE run_rows SET {', '.join(f'{name} = ?' for name in names)} WHERE no = ?"


def _template(connection: sqlite3.Connection) -> tuple[list[Append], list[str], str]:
    def rows(sql: str, *values: Any) -> list[Row]:
        cursor = connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    heads = rows("SELECT * FROM threads WHERE key = ?", TEMPLATE)
    if not heads:
        raise RuntimeError("no template thread found")
    head = heads[0]
    (run,) = rows("SELECT * FROM run_rows WHERE thread_no = ?", head["no"])
    # The database sets the number, and computes the duration and the id under which a lens shows the run.
    del run["no"], run["elapsed"], run["shown_id"]
    stitches = rows("SELECT * FROM stitch_rows WHERE thread_no = ? ORDER BY position", head["no"])
    for stitch in stitches:
        del stitch["log_id"], stitch["llm_call_id"]
    texts = [row["sha256"] for row in rows("SELECT sha256 FROM blob_uses WHERE thread_id = ?", head["id"])]
    return plan(head, run, stitches), texts, head["agent"]
