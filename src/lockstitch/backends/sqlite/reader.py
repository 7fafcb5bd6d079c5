"""Reading beside the writer: connections that never block it and are never blocked by it."""

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

    A small read runs on the event loop's own thread, where it costs microseconds; a large one in a thread.
    """

    def __init__(self, path: str, writer: GroupCommitWriter) -> None:
        self._path = path
        self._writer = writer
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, script: Callable[[], Script[T]], *, small: bool = False) -> T:
        return self._run(script) if small else await asyncio.to_thread(self._run, script)

    def close(self) -> None:
        """Let go of what nobody reads from. The others are closed by whoever is reading: closing a connection under a
        thread that is in it ends the process."""
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
            # Such a store is its one connection.
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
                kept = not self._closed
                if kept:
                    self._idle.append(connection)
            if not kept:
                connection.close()
