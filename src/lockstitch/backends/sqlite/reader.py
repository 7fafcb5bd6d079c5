"""Reading beside the writer: connections that never block it and are never blocked by it."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from lockstitch.backends.sql.script import Script
from lockstitch.backends.sqlite.connection import connect, run
from lockstitch.backends.sqlite.errors import translate
from lockstitch.backends.sqlite.writer import Writer

T = TypeVar("T")


class Reader:
    """Runs scripts that only read, each on one snapshot.

    A small read runs on the event loop's own thread, where it costs microseconds; a large one in a thread.
    """

    def __init__(self, path: str, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    async def run(self, script: Callable[[], Script[T]], *, small: bool = False) -> T:
        return self._run(script) if small else await asyncio.to_thread(self._run, script)

    def close(self) -> None:
        for connection in self._all:
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
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = connect(self._path, synchronous="FULL", read_only=True)
            with self._lock:
                self._all.append(connection)
        try:
            yield connection
        finally:
            self._idle.put(connection)
