"""A guest in somebody else's transaction: a thread that exists exactly if their commit does.

Whoever keeps orders in the same database wants an order and the thread that works on it to be there together, or
neither. So the thread is inserted over their connection, by the same statement as any other, and everything else about
the transaction stays theirs: when it ends, how, and what it waits for.
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
"""Which database of which server this is, whatever it is called and however it is reached."""

_MARK, _UNDO, _KEEP = (
    Statement(f"{verb} lockstitch_start", ()) for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)


def place(dialect: Dialect) -> Script[Place]:
    rows = yield dialect.statement("place", {})
    return tuple(rows[0])


def insert(dialect: Dialect, thread: Thread, clock: Clock) -> Script[None]:
    """The thread, and a hint for workers that is sent when the transaction commits, or not at all."""
    yield dialect.insert(thread)
    told = [f"{thread.id}:{thread.position}", *([WORK_PAYLOAD] if is_ready(thread, clock.now()) else [])]
    yield dialect.statement("notify_within", {"payloads": " ".join(told)})


def undone_alone(script: Script[T]) -> Script[T]:
    """The same; what fails is undone without the rest of the transaction, so that the caller may go on with it."""
    yield _MARK
    try:
        result = yield from script
    except psycopg.Error:
        yield _UNDO
        raise
    yield _KEEP
    return result


class ExternalTransaction:
    """Runs scripts over a connection of the caller's, blocking or not."""

    def __init__(self, connection: object, shown: str) -> None:
        if not isinstance(connection, Connection | AsyncConnection):
            raise Refused("`connection` is neither a Connection nor an AsyncConnection of psycopg 3.")
        self._connection = cast("Connection[Any] | AsyncConnection[Any]", connection)
        self._shown = shown
        if connection.closed:
            raise Refused("`connection` is closed.")
        status = connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise Refused("The transaction of `connection` has failed already; roll it back first.")
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise Refused(
                "`connection` commits every statement by itself, so there is no transaction for the thread to belong "
                "to. Begin one with connection.transaction(), or leave `connection` out."
            )

    async def run(self, script: Script[T]) -> T:
        """Run a script in the transaction that is open, or begins with it."""
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

        # Its driver blocks, which an event loop must not.
        return await asyncio.to_thread(execute)
