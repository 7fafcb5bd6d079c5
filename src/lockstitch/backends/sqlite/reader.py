"""`ReadConnections`: read connections that do not block the writer and are not blocked by it."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite.connection import connect, run, translate
from lockstitch.backends.sqlite.writer import GroupCommitWriter

T = TypeVar("T")

STEPS = 10_000
"""Steps of SQLite's virtual machine after which a read leaves the thread of the event loop: less than a millisecond."""


class _TooLarge(Exception):
    """A read needs more steps than the event loop can spare."""


def _stop() -> bool:
    return True


class ReadConnections:
    """Runs scripts that only read, each on one snapshot.

    A read starts on the thread of the event loop, where a small one takes microseconds. SQLite stops it there after
    `STEPS` steps. It then runs again in another thread.
    """

    def __init__(self, path: str, writer: GroupCommitWriter) -> None:
        self._path = path
        self._writer = writer
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, script: Callable[[], Script[T]], *, large: bool = False) -> T:
        """Return the result of a script. `large` runs it in another thread at once, because its steps take long."""
        if not large:
            with suppress(_TooLarge):
                return self._run(script, STEPS)
        return await asyncio.to_thread(self._run, script)

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

    def _run(self, script: Callable[[], Script[T]], steps: int = 0) -> T:
        """Return the result of a script. Raises `_TooLarge` if one of its statements needs more than `steps` steps."""
        try:
            with self._connection() as connection:
                connection.execute("BEGIN")
                connection.set_progress_handler(_stop if steps else None, steps)
                try:
                    return run(connection, script())
                except sqlite3.OperationalError as exc:
                    if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                        raise _TooLarge from exc
                    raise
                finally:
                    connection.set_progress_handler(None, 0)
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
