"""`ReadConnections`: read connections that do not block the writer and are not blocked by it."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite.connection import connect, run, translate
from lockstitch.backends.sqlite.writer import GroupCommitWriter

T = TypeVar("T")


class ReadConnections:
    """Runs scripts that only read, each on one snapshot.

    A small read runs on the thread of the event loop, where it takes microseconds. A large read runs in another thread.
    """

    def __init__(self, path: str, writer: GroupCommitWriter) -> None:
        self._path = path
        self._writer = writer
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, script: Callable[[], Script[T]], *, small: bool = False) -> T:
        """Return the result of a script. `small` runs it on the thread of the event loop."""
        return self._run(script) if small else await asyncio.to_thread(self._run, script)

    def close(self) -> None:
        """Close the idle connections.

        A connection in use is closed by its reader, because closing it while another thread uses it crashes the
        process.
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _run(self, script: Callable[[], Script[T]]) -> T:
        try:
            with self._connection() as connection:
                connection.execute("BEGIN")
                try:
                    return run(connection, script())
                finally:
                    if connection.in_transaction:
                        connection.execute("COMMIT")
        except (sqlite3.Error, OverflowError, UnicodeError) as exc:
            raise translate(exc, self._path) from exc

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection, None, None]:
        if self._path == ":memory:":
            # A store in memory exists only in the connection of its writer.
            with self._writer.lock:
                yield self._writer.connection
            return
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self._path, synchronous="FULL", read_only=True)
        try:
            yield connection
        finally:
            with self._lock:
                stored = not self._closed
                if stored:
                    self._idle.append(connection)
            if not stored:
                connection.close()
