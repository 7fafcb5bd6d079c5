"""`LibpqConnection`: execute one statement with libpq and the event loop, without a cursor of psycopg.

A cursor handles every case. A statement that is a separate transaction is one case, and by far the most frequent. Work
that a cursor repeats for every statement is done once per connection here: the socket stays registered with the event
loop, and a repeated statement is prepared, with its values as text. This saves a third of the client's time for an
append. All other operations (transactions, COPY, LISTEN) use psycopg. `stop` must be called before them.

The name of a prepared statement is a digest of its text, so a name always means the same statement. The session can
lose a prepared statement at any time, because psycopg deallocates all of them after a rollback. The server reports this
before it has executed anything, and the statement is sent again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg import errors as pg
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from lockstitch.backends.sql.queries import Rows

PREPARED = 250
"""Maximum number of prepared statements per connection. Every shape of append is one."""

MANY = 200
"""Number of rows to read at once."""

CANCEL = 5.0
"""Seconds in which the server must cancel a statement after its caller was cancelled."""

Texts = list[bytes | None]
"""The values of a statement, as encoded text."""

# Python 3.11 looks up a member of an enumeration with a function in Python.
_BINARY = Format.BINARY
_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

# The session no longer has the statement, or its result type has changed since it was prepared.
_STALE = (pg.InvalidSqlStatementName, pg.FeatureNotSupported)


class LibpqConnection:
    """Executes statements on a connection that no other task uses at the same time."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._socket = connection.pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._registered = False
        self._unexpected_events = 0
        self._transformer = Transformer(connection)
        self._seen: set[bytes] = set()
        self._names: dict[bytes, bytes] = {}

    async def execute(self, sql: bytes, values: Sequence[Any]) -> Rows:
        """Return the rows of a statement. The server infers the types of values that are sent as text."""
        try:
            texts, _ = as_text(values)
        except AttributeError:
            self._send_typed(sql, values)
            return await self._rows(await self._answer())
        name = self._names.get(sql) or await self._prepared(sql)
        if name is not None:
            self._pgconn.send_query_prepared(name, texts, result_format=_BINARY)
            try:
                return await self._rows(await self._answer())
            except _STALE:
                await self._forget(sql)
        self._pgconn.send_query_params(sql, texts, result_format=_BINARY)
        return await self._rows(await self._answer())

    async def execute_together(self, queries: Sequence[bytes], texts: Sequence[Texts]) -> list[Rows]:
        """Return the rows of each statement. All of them are one transaction: they are sent as a pipeline, which
        commits at its end, and rolls back if one of them fails."""
        for sql in queries:
            if sql not in self._names:
                await self._prepared(sql)
        try:
            results = await self._pipeline(queries, texts)
        except _STALE:
            # Nothing was executed.
            for sql in self._names.keys() & queries:
                await self._forget(sql)
            results = await self._pipeline(queries, texts)
        return [await self._rows(result) for result in results]

    async def _pipeline(self, queries: Sequence[bytes], values: Sequence[Texts]) -> list[PGresult]:
        """Send statements as a pipeline, prepared ones by their names. Return their results. Raise the first error."""
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        for sql, texts in zip(queries, values, strict=True):
            name = self._names.get(sql)
            if name is not None:
                pgconn.send_query_prepared(name, texts, result_format=_BINARY)
            else:
                pgconn.send_query_params(sql, texts, result_format=_BINARY)
        pgconn.pipeline_sync()
        try:
            while pgconn.flush():
                await self._writable()
            results = await self._read_pipeline()
        except asyncio.CancelledError:
            await self._give_up_pipeline()
            raise
        pgconn.exit_pipeline_mode()
        for result in results:
            if result.status not in _FINE:
                raise pg.error_from_result(result)
        return results

    def stop(self) -> None:
        """Unregister the socket: psycopg registers it itself, and a closed socket must not stay registered."""
        if self._registered:
            self._registered = False
            self._loop.remove_reader(self._socket)

    def _send_typed(self, sql: bytes, values: Sequence[Any]) -> None:
        """Send bytes and lists in the formats of psycopg."""
        transformer = self._transformer
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        self._pgconn.send_query_params(sql, dumped, transformer.types, transformer.formats, result_format=_BINARY)

    async def _prepared(self, sql: bytes) -> bytes | None:
        """Return the name of the prepared statement, or None if the statement comes for the first time."""
        if self._connection.prepare_threshold is None:
            return None
        if sql not in self._seen:
            if len(self._seen) >= PREPARED:
                self._seen.clear()
            self._seen.add(sql)
            return None
        if len(self._names) >= PREPARED:
            await self._forget(next(iter(self._names)))
        name = b"lockstitch_" + blake2b(sql, digest_size=16).hexdigest().encode()
        self._pgconn.send_prepare(name, sql)
        # If it already exists, it is the same statement, because it has the same name.
        with suppress(pg.DuplicatePreparedStatement):
            await self._answer()
        self._names[sql] = name
        return name

    async def _forget(self, sql: bytes) -> None:
        self._pgconn.send_query(b"DEALLOCATE " + self._names.pop(sql))
        with suppress(pg.InvalidSqlStatementName):
            await self._answer()

    async def _answer(self) -> PGresult:
        """Wait for the result of the sent statement. Raise its error."""
        try:
            if self._pgconn.flush():
                # It does not fit into the buffer of the socket. psycopg writes and reads alternately.
                result = (await self._connection.wait(execute(self._pgconn)))[-1]
            else:
                result = await self._read()
        except asyncio.CancelledError:
            await self._give_up()
            raise
        if result.status not in _FINE:
            raise pg.error_from_result(result)
        return result

    async def _next(self) -> PGresult | None:
        """Wait for the next result. None comes after the results of each statement."""
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._waiter = self._loop.create_future()
            await self._waiter
        return pgconn.get_result()

    def _register(self) -> None:
        if not self._registered:
            self._registered = True
            self._loop.add_reader(self._socket, self._wake)

    async def _read_pipeline(self) -> list[PGresult]:
        """Wait for the results of all statements of a pipeline."""
        results: list[PGresult] = []
        self._register()
        try:
            while True:
                result = await self._next()
                if result is None:
                    continue
                if result.status == ExecStatus.PIPELINE_SYNC:
                    return results
                results.append(result)
        except psycopg.OperationalError:
            # libpq has closed the socket.
            self.stop()
            raise
        finally:
            self._waiter = None
            self._unexpected_events = 0

    async def _writable(self) -> None:
        """Wait until the socket accepts more bytes."""
        writable = asyncio.Event()
        self._loop.add_writer(self._socket, writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(self._socket)

    async def _give_up_pipeline(self) -> None:
        """The caller was cancelled: cancel the pipeline on the server, and close the connection if that fails."""
        try:
            async with asyncio.timeout(CANCEL):
                await self._connection.cancel_safe(timeout=CANCEL)
                await self._read_pipeline()
            self._pgconn.exit_pipeline_mode()
        except (psycopg.Error, TimeoutError):
            await self._connection.close()

    async def _read(self) -> PGresult:
        last: PGresult | None = None
        self._register()
        try:
            while (result := await self._next()) is not None:
                last = result
        except psycopg.OperationalError:
            # libpq has closed the socket. An error of the server explains more than that. Rows mean nothing, because
            # the commit follows them.
            self.stop()
            if last is None or last.status in _FINE:
                raise
        finally:
            self._waiter = None
            self._unexpected_events = 0
        assert last is not None
        return last

    def _wake(self) -> None:
        """Read what the server has sent, and wake the caller if the result is complete.

        If the caller read it, the socket would still be readable in the iteration of the event loop that continues it.
        """
        waiter = self._waiter
        if waiter is not None:
            if waiter.done():
                return
            try:
                self._pgconn.consume_input()
            except psycopg.OperationalError as exc:
                waiter.set_exception(exc)
            else:
                if not self._pgconn.is_busy():
                    waiter.set_result(None)
            return
        # One event may come from data that was just read. More events mean that the server sends something unasked,
        # most likely that it closes the connection. The next user of the connection checks this first.
        self._unexpected_events += 1
        if self._unexpected_events > 2:
            self.stop()

    async def _give_up(self) -> None:
        """The caller was cancelled: cancel the statement on the server, so that it does not happen later."""
        connection = self._connection
        if self._pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(psycopg.Error, TimeoutError):
                async with asyncio.timeout(CANCEL):
                    await connection.cancel_safe(timeout=CANCEL)
                    await connection.wait(execute(self._pgconn))
        if self._pgconn.transaction_status != TransactionStatus.IDLE:
            await connection.close()

    async def _rows(self, result: PGresult) -> Rows:
        number = result.ntuples
        if not number:
            return ()
        transformer = self._transformer
        transformer.set_pgresult(result)
        if number <= MANY:
            return transformer.load_rows(0, number, tuple)
        # Other tasks get their turn while a large result is read. The result is released afterwards.
        rows: list[tuple[Any, ...]] = []
        for first in range(0, number, MANY):
            rows += transformer.load_rows(first, min(first + MANY, number), tuple)
            await asyncio.sleep(0)
        transformer.set_pgresult(None)
        return rows


def as_text(values: Sequence[Any]) -> tuple[Texts, int]:
    """Return values as encoded text, and their size in bytes. Raises `AttributeError` if a value is not text."""
    encoded = [None if value is None else value.encode() for value in values]
    joined = b"".join(filter(None, encoded))
    # libpq would read it as the end of the value.
    if b"\0" in joined:
        raise psycopg.DataError("a text cannot contain NUL")
    return encoded, len(joined)
