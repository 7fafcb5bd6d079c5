"""`Connection`: run scripts on PostgreSQL in few round trips, and translate errors of psycopg."""

import asyncio
import re
import select
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg import errors as pg
from psycopg.abc import RV, PQGen
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads
from psycopg.types.string import BytesBinaryDumper
from psycopg_pool import PoolClosed, PoolTimeout

from lockstitch.backends.postgres.dialect import MARK
from lockstitch.backends.postgres.libpq import MANY, PREPARED, LibpqConnection, as_text
from lockstitch.backends.sql.queries import Rows, Script, Statement
from lockstitch.errors import (
    Conflict,
    KeyTaken,
    LockstitchError,
    OutcomeUnknown,
    Refused,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from lockstitch.model import codec

T = TypeVar("T")

LARGE = 64 * 1024
"""Maximum size in bytes of one statement's values in a pipeline.

With larger values, client and server could wait for each other.
"""

# Set for the transaction, not the session, so it also works behind a pooler. A process that stops during a transaction
# holds its row locks at most this long. Reading the transaction's id assigns one before the first log_id is drawn, as
# `LogHorizon` requires.
_BEGIN, _COMMIT = b"BEGIN", b"COMMIT"
_SETUP = b"SELECT set_config('idle_in_transaction_session_timeout', '10s', true), pg_current_xact_id()"

_WRITES_ONLY = re.compile(r"(INSERT|UPDATE|DELETE)\b(?!.*\bRETURNING\b)", re.DOTALL)


class TooLarge(Exception):
    """The statement is too large for a pipeline. Its transaction was rolled back."""


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    set_json_loads(codec.loads, adapters)
    adapters.register_dumper(bytes, BytesBinaryDumper)
    return adapters


ADAPTERS = _adapters()


class Connection(AsyncConnection[TupleRow]):
    """A connection that runs scripts: single statements directly, transactions as a pipeline."""

    _direct: LibpqConnection | None = None
    commits = False
    """True while a commit has been sent and its response has not arrived."""
    lent_until = 0.0
    """Time at which it must return to the inner pool, on the monotonic clock."""
    _poll: "select.poll | None" = None

    @classmethod
    async def open(cls, conninfo: str, *, prepare: bool = True) -> "Connection":
        """Return a separate connection outside any pool."""
        connection = await cls.connect(conninfo, **settings(prepare))
        await configure(connection)
        return connection

    async def alone(self, script: Script[T]) -> T:
        """Run a script of one statement, which is a separate transaction: one round trip."""
        try:
            statement = next(script)
        except StopIteration as stop:
            return stop.value
        sql, values, _ = bind(statement)
        if self._direct is None:
            self._direct = LibpqConnection(self)
        self.commits = True
        rows = await self._direct.execute(sql, values)
        self.commits = False
        try:
            script.send(rows)
        except StopIteration as stop:
            return stop.value
        raise RuntimeError("a script of more than one statement needs a transaction")

    async def together(self, statements: Sequence[Statement]) -> list[Rows]:
        """Execute statements as one transaction in one round trip, and return the rows of each.

        Raises `TooLarge` before anything is sent.
        """
        bound = [bind(statement) for statement in statements]
        texts = [as_text(values) for _, values, _ in bound]
        if sum(size for _, size in texts) > LARGE:
            raise TooLarge
        if self._direct is None:
            self._direct = LibpqConnection(self)
        self.commits = True
        rows = await self._direct.execute_together([sql for sql, _, _ in bound], [values for values, _ in texts])
        self.commits = False
        return rows

    async def execute_one(self, statement: Statement) -> Rows:
        """Execute a statement in the current transaction, if there is one."""
        sql, values, _ = bind(statement)
        cursor = await self._send(sql, values)
        rows: list[TupleRow] = []
        while cursor.rownumber is not None and (part := await cursor.fetchmany(MANY)):
            rows += part
            if len(part) == MANY:
                # Other tasks get their turn while a large result is read.
                await asyncio.sleep(0)
        return rows

    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Unregister the socket from the event loop before psycopg waits for it."""
        if self._direct is not None:
            self._direct.stop()
        return await super().wait(gen, interval, timeout)

    async def notifications(self, wake: asyncio.Event, seconds: float) -> list[str]:
        """Return the payloads of notifications. Wait for the first one, for some seconds, or until `wake` is set."""
        if self._direct is not None:
            self._direct.stop()
        payloads = self._received()
        if payloads:
            return payloads
        loop, file = asyncio.get_running_loop(), self.pgconn.socket
        loop.add_reader(file, wake.set)
        try:
            # Not wait_for, which on Python 3.11 can swallow a cancellation.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await wake.wait()
        finally:
            loop.remove_reader(file)
        wake.clear()
        self.pgconn.consume_input()
        return self._received()

    def _received(self) -> list[str]:
        payloads: list[str] = []
        while (notification := self.pgconn.notifies()) is not None:
            payloads.append(notification.extra.decode())
        return payloads

    async def close(self) -> None:
        if self._direct is not None:
            self._direct.stop()
        await super().close()

    async def transact(self, script: Script[T]) -> T:
        """Run a script as one transaction. Wait only for rows that the script reads.

        After an error the transaction is rolled back, except if `commits` is True: then the outcome is unknown.
        """
        try:
            async with self.pipeline() as pipeline:
                await self._send(_BEGIN)
                await self._send(_SETUP)
                result = await self._run_script(script, piped=True)
                self.commits = True
                await self._send(_COMMIT)
                await pipeline.sync()
                self.commits = False
        except BaseException:
            await self.forget()
            raise
        return result

    async def transact_slowly(self, script: Script[T]) -> T:
        """Run a script as one transaction, with one round trip per statement: for content that is too large for a
        pipeline."""
        async with self.steps():
            return await self._run_script(script, piped=False)

    @asynccontextmanager
    async def steps(self) -> AsyncGenerator[None]:
        """Open a transaction around statements that are executed one by one."""
        try:
            await self._send(_BEGIN)
            await self._send(_SETUP)
            yield
            self.commits = True
            await self._send(_COMMIT)
            self.commits = False
        except BaseException:
            await self.forget()
            raise

    async def forget(self) -> None:
        """Roll back an open transaction. Close the connection if that fails."""
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            return
        with suppress(psycopg.Error):
            await self.rollback()
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            await self.close()

    def is_sound(self) -> bool:
        """True if an idle connection is still alive. If the server closed it, there is data to read.

        The check costs a microsecond. Without it, the outcome of a statement sent on a dead connection would be
        unknown.
        """
        if self.closed:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.pgconn.socket, select.POLLIN)
        if not self._poll.poll(0):
            return True
        try:
            # Twice: the first call may read the last message of the server, the second finds the end of the stream.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return not self.broken

    async def _run_script(self, script: Script[T], *, piped: bool) -> T:
        rows: Rows | None = None
        while True:
            try:
                statement = next(script) if rows is None else script.send(rows)
            except StopIteration as stop:
                return stop.value
            sql, values, wanted = bind(statement)
            if piped and sum(len(value) for value in values if isinstance(value, str | bytes)) > LARGE:
                raise TooLarge
            cursor = await self._send(sql, values)
            rows = await cursor.fetchall() if wanted else ()

    async def _send(self, sql: bytes, values: Sequence[Any] | None = None) -> AsyncRawCursor[TupleRow]:
        # One cursor per statement: in a pipeline a cursor contains only the result of its last statement.
        cursor = AsyncRawCursor(self)
        cursor.format = Format.BINARY
        return await cursor.execute(sql, values)


def settings(prepare: bool) -> dict[str, Any]:
    """Return the keyword arguments to open a connection."""
    return {
        "autocommit": True,
        "prepare_threshold": 1 if prepare else None,
        "context": ADAPTERS,
        "cursor_factory": AsyncRawCursor,
    }


async def configure(connection: AsyncConnection[Any]) -> None:
    connection.prepared_max = PREPARED


class BoundStatement(NamedTuple):
    """A statement for the driver. `wanted` is True if it returns rows."""

    sql: bytes
    values: Sequence[Any]
    wanted: bool


def bind(statement: Statement) -> BoundStatement:
    """Return a statement with numbered parameters."""
    sql, names, wanted = _compiled(statement.sql)
    parameters = statement.parameters
    if isinstance(parameters, dict):
        values = [parameters[name] for name in names]
        # Numbers as text without a type: psycopg would choose a type by size, and each would be a separate prepared
        # statement.
        return BoundStatement(sql, [str(value) if type(value) is int else value for value in values], wanted)
    return BoundStatement(sql, parameters, wanted)


@lru_cache(maxsize=2048)
def _compiled(text: str) -> tuple[bytes, tuple[str, ...], bool]:
    """Return the text with numbered parameters, their names in order, and True if the statement returns rows."""
    numbers: dict[str, int] = {}
    numbered = MARK.sub(lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}", text)
    return numbered.encode(), tuple(numbers), _WRITES_ONLY.match(text) is None


AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
"""Errors after which PostgreSQL rolled back the transaction in favour of another one. A retry works."""

_UNREACHABLE = (
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.DatabaseDropped,
    pg.TooManyConnections,
    pg.InvalidPassword,
    pg.InvalidAuthorizationSpecification,
    pg.InvalidCatalogName,
    pg.IdleInTransactionSessionTimeout,
    OSError,
)
_OTHER_SCHEMA = (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn, pg.UndefinedFunction)
_MIXED_UP = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_UNSTORABLE = (psycopg.DataError, UnicodeError, pg.ProgramLimitExceeded, pg.StatementTooComplex)
_DAMAGED = (pg.DataCorrupted, pg.IndexCorrupted)


def translate(exc: Exception, store: str) -> LockstitchError:
    """Return the error as a `LockstitchError`. Its message states the remedy.

    `store` is the URL without its password.
    """
    if isinstance(exc, LockstitchError):
        return exc
    if isinstance(exc, pg.UniqueViolation):
        return _unique_violation(exc.diag.constraint_name)
    if isinstance(exc, pg.ForeignKeyViolation):
        return Refused("A record refers to a thread or run that is not in this store. Nothing was written.")
    if isinstance(exc, psycopg.IntegrityError):
        rule = exc.diag.constraint_name or exc.diag.column_name or _first_line(exc)
        return Refused(f"A constraint of the schema is violated ({rule}). Nothing was written.")
    if isinstance(exc, _UNSTORABLE):
        return Refused(f"A value cannot be stored: {_first_line(exc)}. Nothing was written.")
    return _trouble(exc, store)


def unknown(store: str) -> OutcomeUnknown:
    """Return the error for a connection that broke after a commit was sent."""
    return OutcomeUnknown(
        f"The connection to {store} broke during a commit. The commit may or may not be stored. "
        "Read the thread to find out."
    )


def _unique_violation(constraint: str | None) -> Conflict:
    if constraint == "threads_key":
        return KeyTaken()
    return Conflict(f"Another writer stored this record first ({constraint}). Nothing was written.")


def _trouble(exc: Exception, store: str) -> StoreError:
    """Return the error for a problem of the server."""
    text = _first_line(exc)
    if isinstance(exc, pg.DiskFull):
        return StoreFull(f"The disk of {store} is full. Nothing was written. Free disk space and try again.")
    if isinstance(exc, pg.ReadOnlySqlTransaction):
        return StoreReadOnly(f"{store} is read-only. Connect to the primary server.")
    if isinstance(exc, pg.InsufficientPrivilege):
        return StoreReadOnly(f"{store} denied this operation ({text}). Grant its user the rights on schema lockstitch.")
    if isinstance(exc, _OTHER_SCHEMA):
        return SchemaMismatch(f"{store} is not migrated to this version ({text}). Run `lockstitch migrate`.")
    if isinstance(exc, _DAMAGED):
        return StoreDamaged(f"{store} is damaged ({text}). Check the server's disk, then restore a backup.")
    if isinstance(exc, _MIXED_UP):
        return StoreError(
            f"The pooler of {store} does not support prepared statements ({text}). Add ?prepare=off to the URL."
        )
    if isinstance(exc, PoolClosed):
        return StoreUnreachable("This store is closed.")
    if isinstance(exc, PoolTimeout):
        return StoreUnreachable(f"{store} has no free connection. Raise max_connections, or lower pool=N in the URL.")
    # 08 is the class of connection errors. An error without a class comes from the driver, not the server.
    broken = isinstance(exc, psycopg.OperationalError) and (exc.sqlstate or "08").startswith("08")
    if broken or isinstance(exc, _UNREACHABLE):
        return StoreUnreachable(f"{store} cannot be reached ({text}). Check the URL and that the server is running.")
    return StoreError(f"PostgreSQL failed: {text}.")


def _first_line(exc: Exception) -> str:
    diagnosis = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
    return diagnosis or (str(exc).strip().splitlines() or [type(exc).__name__])[0]
