"""One connection: settings, binding, scripts in few round trips; psycopg errors translated."""

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
from lockstitch.backends.postgres.libpq import MANY, PREPARED, LibpqConnection
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
"""Bytes of one statement's values that a pipeline does not carry: it would wait for the server to read on while the
server waits for it."""

# Set for the transaction, not the session, so it holds behind a pooler too: a process stopped in mid-transaction
# keeps its row locks for so long and no longer. Asking for the transaction's number gives it one before the first
# log_id is drawn, which is what the horizon reckons with.
_BEGIN, _COMMIT = b"BEGIN", b"COMMIT"
_SETUP = b"SELECT set_config('idle_in_transaction_session_timeout', '10s', true), pg_current_xact_id()"

_WRITES_ONLY = re.compile(r"(INSERT|UPDATE|DELETE)\b(?!.*\bRETURNING\b)", re.DOTALL)


class TooLarge(Exception):
    """A statement that a pipeline must not carry; nothing of its transaction remains."""


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
    """Whether something that commits has been sent and its answer has not come."""
    lent_until = 0.0
    """When it must pass through the pool again, by the monotonic clock."""
    _poll: "select.poll | None" = None

    @classmethod
    async def open(cls, conninfo: str, *, prepare: bool = True) -> "Connection":
        """A connection of its own, outside any pool."""
        connection = await cls.connect(conninfo, **settings(prepare))
        await configure(connection)
        return connection

    async def alone(self, script: Script[T]) -> T:
        """Run a script that yields one statement, which is a transaction of its own: one round trip."""
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

    async def execute_one(self, statement: Statement) -> Rows:
        """Execute a statement of whatever transaction there is."""
        sql, values, _ = bind(statement)
        cursor = await self._send(sql, values)
        rows: list[TupleRow] = []
        while cursor.rownumber is not None and (part := await cursor.fetchmany(MANY)):
            rows += part
            if len(part) == MANY:
                # Other tasks get their turn while a large answer is taken in.
                await asyncio.sleep(0)
        return rows

    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """What the driver itself does, it waits for in its own way."""
        if self._direct is not None:
            self._direct.stop()
        return await super().wait(gen, interval, timeout)

    async def close(self) -> None:
        if self._direct is not None:
            self._direct.stop()
        await super().close()

    async def transact(self, script: Script[T]) -> T:
        """Run a script as one transaction, waiting only for rows that it wants to see.

        After an error nothing of it remains, except where `commits` says that this is not known.
        """
        try:
            async with self.pipeline() as pipeline:
                await self._send(_BEGIN)
                await self._send(_SETUP)
                result = await self._drive(script, piped=True)
                self.commits = True
                await self._send(_COMMIT)
                await pipeline.sync()
                self.commits = False
        except BaseException:
            await self.forget()
            raise
        return result

    async def transact_slowly(self, script: Script[T]) -> T:
        """The same, a round trip a statement: for content that is too large for a pipeline."""
        async with self.steps():
            return await self._drive(script, piped=False)

    @asynccontextmanager
    async def steps(self) -> AsyncGenerator[None]:
        """A transaction around statements that are executed one by one."""
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
        """Undo whatever is open; a connection that cannot is closed."""
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            return
        with suppress(psycopg.Error):
            await self.rollback()
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            await self.close()

    def is_sound(self) -> bool:
        """Whether an idle connection still stands: one whose server went away has something to be read.

        Looking costs a microsecond, and spares asking whether a statement sent into the void was executed.
        """
        if self.closed:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.pgconn.socket, select.POLLIN)
        if not self._poll.poll(0):
            return True
        try:
            # Twice: the first may read the server's last words, the second finds the end behind them.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return not self.broken

    async def _drive(self, script: Script[T], *, piped: bool) -> T:
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
        # One cursor per statement: in a pipeline a cursor holds the answer of its last one alone.
        cursor = AsyncRawCursor(self)
        cursor.format = Format.BINARY
        return await cursor.execute(sql, values)


def settings(prepare: bool) -> dict[str, Any]:
    """How a connection is opened, beside its address."""
    return {
        "autocommit": True,
        "prepare_threshold": 1 if prepare else None,
        "context": ADAPTERS,
        "cursor_factory": AsyncRawCursor,
    }


async def configure(connection: AsyncConnection[Any]) -> None:
    connection.prepared_max = PREPARED


class Bound(NamedTuple):
    """A statement as the driver takes it, and whether it gives rows."""

    sql: bytes
    values: Sequence[Any]
    wanted: bool


def bind(statement: Statement) -> Bound:
    sql, names, wanted = _compiled(statement.sql)
    parameters = statement.parameters
    if isinstance(parameters, dict):
        values = [parameters[name] for name in names]
        # Numbers as text of no type: psycopg would choose one by size, and each would be prepared anew.
        return Bound(sql, [str(value) if type(value) is int else value for value in values], wanted)
    return Bound(sql, parameters, wanted)


@lru_cache(maxsize=2048)
def _compiled(text: str) -> tuple[bytes, tuple[str, ...], bool]:
    """The text with numbers for its named parameters, the names in their order, and whether rows come back."""
    numbers: dict[str, int] = {}
    numbered = MARK.sub(lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}", text)
    return numbered.encode(), tuple(numbers), _WRITES_ONLY.match(text) is None


AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
"""PostgreSQL undid the transaction in favour of another one; the same again will do."""

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
    """The error that tells a user what to do. `store` is the URL without its password."""
    if isinstance(exc, LockstitchError):
        return exc
    if isinstance(exc, pg.UniqueViolation):
        return _taken(exc.diag.constraint_name)
    if isinstance(exc, pg.ForeignKeyViolation):
        return Refused("A record refers to a thread or run that is not in this store; nothing was written.")
    if isinstance(exc, psycopg.IntegrityError):
        rule = exc.diag.constraint_name or exc.diag.column_name or _first_line(exc)
        return Refused(f"A rule of the record is broken ({rule}); nothing was written.")
    if isinstance(exc, _UNSTORABLE):
        return Refused(f"A value cannot be stored: {_first_line(exc)}. Nothing was written.")
    return _trouble(exc, store)


def unknown(store: str) -> OutcomeUnknown:
    """What is said when the connection broke after a commit had been sent."""
    return OutcomeUnknown(
        f"The connection to {store} broke during a commit: it may or may not have happened. "
        "Read the thread to find out."
    )


def _taken(constraint: str | None) -> Conflict:
    if constraint == "threads_key":
        return KeyTaken()
    return Conflict(f"Somebody else wrote this first ({constraint}); nothing was written.")


def _trouble(exc: Exception, store: str) -> StoreError:
    """What is wrong with the server rather than with what was asked of it."""
    said = _first_line(exc)
    if isinstance(exc, pg.DiskFull):
        return StoreFull(f"The disk of {store} is full; nothing was written. Free some room and try again.")
    if isinstance(exc, pg.ReadOnlySqlTransaction):
        return StoreReadOnly(f"{store} only allows reading. Connect to the primary server.")
    if isinstance(exc, pg.InsufficientPrivilege):
        return StoreReadOnly(f"{store} does not allow this ({said}). Give its user the rights on schema lockstitch.")
    if isinstance(exc, _OTHER_SCHEMA):
        return SchemaMismatch(f"{store} is not migrated to this version ({said}). Run `lockstitch migrate`.")
    if isinstance(exc, _DAMAGED):
        return StoreDamaged(f"{store} is damaged ({said}). Restore a backup; check the server's disk first.")
    if isinstance(exc, _MIXED_UP):
        return StoreError(
            f"A pooler before {store} mixes up prepared statements ({said}). Add ?prepare=off to the URL."
        )
    if isinstance(exc, PoolClosed):
        return StoreUnreachable("This store is closed.")
    if isinstance(exc, PoolTimeout):
        return StoreUnreachable(f"{store} gives no connection. Raise its max_connections, or lower pool=N in the URL.")
    # 08 is the class of broken connections; none at all means that the driver said it, not the server.
    broken = isinstance(exc, psycopg.OperationalError) and (exc.sqlstate or "08").startswith("08")
    if broken or isinstance(exc, _UNREACHABLE):
        return StoreUnreachable(f"{store} cannot be reached ({said}). Check the URL and that the server is running.")
    return StoreError(f"PostgreSQL refused: {said}")


def _first_line(exc: Exception) -> str:
    diagnosis = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
    return diagnosis or (str(exc).strip().splitlines() or [type(exc).__name__])[0]
