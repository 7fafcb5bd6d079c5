"""`ExternalTransaction`: write a thread inside the caller's transaction.

An application that stores orders in the same database can create an order and the thread that works on it in one
transaction. The thread is inserted through the caller's connection, with the same statement as any other thread. The
caller controls everything else: when and how the transaction ends, and which locks it waits for.
"""

import asyncio
from typing import Any, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from lockstitch.backends.postgres.append import is_ready
from lockstitch.backends.postgres.connection import bind, translate
from lockstitch.backends.postgres.notify import WORK_PAYLOAD
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Rows, Script, Statement
from lockstitch.errors import Refused
from lockstitch.model import Clock, Thread

T = TypeVar("T")

Place = tuple[Any, ...]
"""Identity of a database and its server, independent of names and addresses."""

_MARK, _UNDO, _KEEP = (
    Statement(f"{verb} lockstitch_start", ()) for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)


def place(dialect: Dialect) -> Script[Place]:
    """Return the identity of the database."""
    rows = yield dialect.statement("place", {})
    return tuple(rows[0])


def insert(dialect: Dialect, thread: Thread, clock: Clock) -> Script[None]:
    """Insert a thread, and send a hint to workers when the transaction commits."""
    yield dialect.insert(thread)
    messages = [f"{thread.id}:{thread.position}", *([WORK_PAYLOAD] if is_ready(thread, clock.now()) else [])]
    yield dialect.statement("notify_within", {"payloads": " ".join(messages)})


def undone_alone(script: Script[T]) -> Script[T]:
    """Run a script inside a savepoint.

    If it fails, only its own changes are undone, and the transaction can continue.
    """
    yield _MARK
    try:
        result = yield from script
    except psycopg.Error:
        yield _UNDO
        raise
    yield _KEEP
    return result


class ExternalTransaction:
    """Runs scripts on a connection of the caller, synchronous or asynchronous.

    Raises `Refused` if the connection cannot take part in a transaction.
    """

    def __init__(self, connection: object, shown: str) -> None:
        if not isinstance(connection, Connection | AsyncConnection):
            raise Refused("`connection` must be a Connection or an AsyncConnection of psycopg 3.")
        self._connection = cast("Connection[Any] | AsyncConnection[Any]", connection)
        self._shown = shown
        if connection.closed:
            raise Refused("`connection` is closed. Pass an open connection.")
        status = connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise Refused("The transaction of `connection` has already failed. Roll it back first.")
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise Refused(
                "`connection` is in autocommit mode and has no open transaction. Start one with "
                "connection.transaction(), or omit `connection`."
            )

    async def run(self, script: Script[T]) -> T:
        """Run a script in the open transaction, or in one that starts with it. Return its result."""
        try:
            statement = next(script)
            while True:
                try:
                    rows = await self._execute(statement)
                except psycopg.Error as exc:
                    statement = script.throw(exc)
                else:
                    statement = script.send(rows)
        except StopIteration as stop:
            return stop.value
        except psycopg.Error as exc:
            raise translate(exc, self._shown) from exc

    async def _execute(self, statement: Statement) -> Rows:
        sql, values, _ = bind(statement)
        connection = self._connection
        if isinstance(connection, AsyncConnection):
            cursor = await AsyncRawCursor(connection, row_factory=tuple_row).execute(sql, values)
            return await cursor.fetchall() if cursor.description else ()

        def execute() -> Rows:
            done = RawCursor(connection, row_factory=tuple_row).execute(sql, values)
            return done.fetchall() if done.description else ()

        # A synchronous driver would block the event loop.
        return await asyncio.to_thread(execute)
