"""Counts of durable commits by the database, and of processor time by the operating system."""

import os
import struct
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psycopg

from benchmarks.places import sqlite_path


class Commits(AbstractContextManager["Commits"]):
    """Count the commits with writes of all clients of a store. The store must be open already.

    On PostgreSQL each of them takes a transaction number. A statement that only reads does not; one that found no rows
    to write may. The count is per server, so no other client may write there at the same time. On SQLite each raises
    the change counter in the head of the shared WAL index, which exists while the file is open.
    """

    def __init__(self, url: str) -> None:
        self._index: Path | None = None
        self._server: psycopg.Connection | None = None
        if url.startswith("sqlite"):
            self._index = Path(f"{sqlite_path(url)}-shm")
        else:
            self._server = psycopg.connect(url, autocommit=True)
        self._before = self._count()

    @property
    def number(self) -> int:
        """Commits since the start."""
        return self._count() - self._before

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def _count(self) -> int:
        if self._index is not None:
            with self._index.open("rb") as index:
                return struct.unpack_from("=I", index.read(12), 8)[0]
        assert self._server is not None
        row = self._server.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
        return int(row[0]) if row else 0


class Processor(AbstractContextManager["Processor"]):
    """The processor time of a process and, on PostgreSQL, of the database server on this machine."""

    def __init__(self, pid: int, url: str) -> None:
        self._pid = pid
        self._server: psycopg.Connection | None = None
        if url.startswith("postgres"):
            self._server = psycopg.connect(url, autocommit=True)

    @property
    def milliseconds(self) -> float:
        """Milliseconds since the processes started."""
        return sum(map(_task_milliseconds, [self._pid, *self._backends()])) + self._ended_milliseconds()

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def _backends(self) -> list[int]:
        if self._server is None:
            return []
        text = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return [pid for (pid,) in self._server.execute(text)]

    def _ended_milliseconds(self) -> float:
        """Return the time of the ended children of the database server: processes of parallel queries."""
        if self._server is None:
            return 0
        own = Path(f"/proc/{self._server.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
        parent = Path(f"/proc/{own[1]}/stat").read_text().rpartition(")")[2].split()
        return (int(parent[13]) + int(parent[14])) / os.sysconf("SC_CLK_TCK") * 1000


def _task_milliseconds(pid: int) -> float:
    """Return the processor time of the threads of a process. The accounting of threads is finer than ticks."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(task.read_text().split()[0]) / 1e6
    return total


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time of these processes. Processes that have ended are not counted."""
    total = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total
