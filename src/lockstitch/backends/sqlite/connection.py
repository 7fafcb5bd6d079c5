"""Connections to one SQLite file, and how a script runs on one."""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from lockstitch.backends.sql.script import Script
from lockstitch.backends.sqlite.errors import is_busy

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds to go on asking for a file that other processes make, recover or write."""


def connect(path: str, *, synchronous: str, read_only: bool = False) -> sqlite3.Connection:
    """A connection with our settings. It never waits for a lock: waiting fairly is the writer's business."""
    uri = "file::memory:" if path == ":memory:" else uri_of(path, read_only=read_only)
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        # This reads the file's schema, which another process may be making, recovering or turning to WAL just now.
        patiently(lambda: connection.execute(f"PRAGMA synchronous = {synchronous}"))
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA busy_timeout = 0" if not read_only else "PRAGMA busy_timeout = 5000")
    except BaseException:
        connection.close()
        raise
    return connection


def uri_of(path: str, *, read_only: bool) -> str:
    return f"file:{quote(path)}?mode={'ro' if read_only else 'rwc'}"


def patiently(ask: Callable[[], T]) -> T:
    """What `ask` gives, asked again with short random pauses while another connection has the file."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def run(connection: sqlite3.Connection, script: Script[T]) -> T:
    """Drive a script to its end; the transaction around it is the caller's."""
    try:
        statement = next(script)
        while True:
            try:
                rows = connection.execute(*statement).fetchall()
            except sqlite3.Error as exc:
                statement = script.throw(exc)
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        return stop.value
