"""Counts of durable commits by the database, and of processor time by the operating system."""

import os
import struct
from contextlib import AbstractContextManager
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
