"""`Pool`: connections to PostgreSQL, and the options of a store URL."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from lockstitch.backends.postgres.connection import AGAIN, Connection, TooLarge, configure, settings, translate, unknown
from lockstitch.backends.sql.queries import Script
from lockstitch.errors import Refused, StoreError, StoreUnreachable

POOL = 20
"""Maximum number of connections of one process, unless the URL sets another. They are opened when needed."""

MOST = 500

OPTIONS = ("pool", "prepare", "listen", "reader")
"""Options of a store URL that are not those of libpq."""

# A server that disappeared is noticed in about half a minute, not after the two hours of TCP.
_DEFAULTS = {
    "application_name": "lockstitch",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of a store URL. `conninfo` is for the driver; `shown` is for people and never contains a password."""

    conninfo: str
    listening: str
    """Connection string for LISTEN: the same server, without a pooler."""
    shown: str
    pool: int
    prepare: bool
    reader: str | None = None
    """Connection string for SQL of users, if the URL names a login: the same database with another user."""


def parse(url: str) -> Address:
    """Parse a store URL.

    The options of Lockstitch are pool=N, prepare=off, listen=host:port and reader=user:password. All other options are
    those of libpq.
    """
    base, _, query = url.partition("?")
    options: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in OPTIONS:
            options[name] = unquote(value)
        else:
            others.append(part)
    try:
        parts = conninfo_to_dict(f"{base}?{'&'.join(others)}" if others else base)
    except psycopg.Error:
        # The message of the driver may contain a part of the password.
        raise Refused("This is not a PostgreSQL URL. Use postgresql://user:password@host:5432/database.") from None
    parts = {**_DEFAULTS, **parts, "client_encoding": "utf8"}
    conninfo = make_conninfo("", **parts)
    listening = make_conninfo(conninfo, **_place(options["listen"])) if "listen" in options else conninfo
    return Address(
        conninfo=conninfo,
        listening=listening,
        shown=_shown(parts),
        pool=_pool(options.get("pool", str(POOL))),
        prepare=_prepare(options.get("prepare", "on")),
        reader=make_conninfo(listening, **_login(options["reader"])) if "reader" in options else None,
    )


def _shown(parts: dict[str, Any]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or 'localhost'}{port}/{parts.get('dbname', '')}"


def _pool(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= MOST:
        raise Refused(f"pool={value} is not valid. Use a number of connections from 1 to {MOST}.")
    return int(value)


def _prepare(value: str) -> bool:
    if value not in ("on", "off"):
        raise Refused(f"prepare={value} is not valid. Use on or off.")
    return value == "on"


def _login(value: str) -> dict[str, str]:
    user, _, password = value.partition(":")
    if not user:
        # The value may be a password, so the message does not contain it.
        raise Refused("The option reader= of this URL is not valid. Use reader=user:password.")
    return {"user": user, "password": password}


def _place(value: str) -> dict[str, str]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"listen={value} is not valid. Use listen=host:port.")
    return {"host": host, "port": port}


T = TypeVar("T")

_IDLE = TransactionStatus.IDLE

OLDEST = 150000
"""PostgreSQL 15."""

PATIENCE = 10.0
"""Seconds to wait for a connection while the server restarts."""

RECONNECT = 1.5
"""Seconds after which the pool restarts its attempts to connect, because the pauses between attempts double."""

LOAN = 300.0
"""Seconds after which a connection returns to the inner pool, which closes old and surplus connections."""

ATTEMPTS = 5
"""Maximum number of attempts of an operation that leaves no changes when it fails."""

# The caller gets errors as exceptions. They need not be logged too.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Pool:
    """Runs scripts, each on one connection that no other script uses. Safe to use from many tasks."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        self._idle: list[Connection] = []
        """Connections that the inner pool has lent and no script uses."""
        # Waiting here costs much less than waiting in the inner pool.
        self._slots = asyncio.Semaphore(address.pool)

    async def alone(self, script: Callable[[], Script[T]], *, repeatable: bool) -> T:
        """Run a script of one statement. A repeatable script is sent again even if it may have been executed."""
        return await self.run(lambda connection: connection.alone(script()), repeatable=repeatable)

    async def transact(self, script: Callable[[], Script[T]], *, again: tuple[type[Exception], ...] = ()) -> T:
        """Run a script as one transaction."""
        try:
            return await self.run(lambda connection: connection.transact(script()), again=again)
        except TooLarge:
            return await self.run(lambda connection: connection.transact_slowly(script()), again=again)

    async def run(
        self,
        act: Callable[[Connection], Awaitable[T]],
        *,
        repeatable: bool = False,
        again: tuple[type[Exception], ...] = (),
    ) -> T:
        """Call `act` with a connection. Retry if that is safe.

        A retry is safe after a deadlock and after the errors in `again`, which leave no changes, and if the connection
        broke before a commit was sent. If it broke after that, raises `OutcomeUnknown`, unless the operation is
        `repeatable`.
        """
        attempt = 0
        while True:
            attempt += 1
            connection = await self.borrow()
            try:
                return await act(connection)
            except (psycopg.Error, UnicodeError) as exc:
                if connection.closed:
                    if connection.commits and not repeatable:
                        raise unknown(self.address.shown) from exc
                elif not isinstance(exc, AGAIN + again):
                    raise translate(exc, self.address.shown) from exc
                if attempt == ATTEMPTS:
                    raise translate(exc, self.address.shown) from exc
            finally:
                await self.return_connection(connection)
            await asyncio.sleep(random.uniform(0.005, 0.05) * attempt)

    async def borrow(self) -> Connection:
        """Return a connection that was alive a moment ago. Raises `StoreUnreachable` if there is none."""
        pool = self._pool or await self._open()
        await self._slots.acquire()
        try:
            while True:
                connection = self._idle.pop() if self._idle else await self._lent(pool)
                if connection.is_sound():
                    connection.commits = False
                    return connection
                await connection.close()
                await pool.putconn(connection)
        except PoolTimeout as exc:
            self._slots.release()
            # The inner pool does not report the reason. A separate connection does.
            await (await self.connect()).close()
            raise translate(exc, self.address.shown) from exc
        except psycopg.Error as exc:
            self._slots.release()
            raise translate(exc, self.address.shown) from exc
        except BaseException:
            self._slots.release()
            raise

    async def return_connection(self, connection: Connection) -> None:
        """Return a connection to the idle list.

        The last one used is the next one used: its session is warm on the server, and the event loop needs no
        iteration.
        """
        pool = self._pool
        assert pool is not None
        try:
            idle = connection.pgconn.transaction_status == _IDLE
            if idle and not self._closed and time.monotonic() < connection.lent_until:
                self._idle.append(connection)
            else:
                await pool.putconn(connection)
        finally:
            self._slots.release()

    @staticmethod
    async def _lent(pool: AsyncConnectionPool[Connection]) -> Connection:
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        connection = await pool.getconn()
        if task and task.cancelling() > cancels:
            # The inner pool uses asyncio.wait_for, which loses a cancellation on Python 3.11 if the connection arrives
            # at the same moment. The task would run on, and a caller that waits for its end would wait forever.
            await pool.putconn(connection)
            raise asyncio.CancelledError
        connection.lent_until = time.monotonic() + LOAN
        return connection

    async def connect(self, *, listening: bool = False, prepared: bool | None = None) -> Connection:
        """Return a separate connection outside the pool."""
        conninfo = self.address.listening if listening else self.address.conninfo
        prepare = self.address.prepare if prepared is None else prepared
        try:
            connection = await Connection.open(conninfo, prepare=prepare)
        except (psycopg.Error, OSError) as exc:
            raise translate(exc, self.address.shown) from exc
        version = connection.info.server_version
        if version < OLDEST:
            await connection.close()
            raise StoreError(
                f"{self.address.shown} runs PostgreSQL {version // 10000}, but Lockstitch needs 15 or newer. "
                "Upgrade the server."
            )
        return connection

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._pool is not None:
            await self._pool.close()
            while self._idle:
                await self._pool.putconn(self._idle.pop())

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._closed:
                raise StoreUnreachable("This store is closed.")
            if self._pool is None:
                # Open a separate connection first, so that a wrong URL is reported at once with the message of the
                # server.
                await (await self.connect()).close()
                self._pool = AsyncConnectionPool(
                    self.address.conninfo,
                    connection_class=Connection,
                    kwargs=settings(self.address.prepare),
                    configure=configure,
                    min_size=1,
                    max_size=self.address.pool,
                    timeout=PATIENCE,
                    reconnect_timeout=RECONNECT,
                    reconnect_failed=_check_connections,
                    open=False,
                )
                await self._pool.open()
            return self._pool


async def _check_connections(pool: AsyncConnectionPool[Any]) -> None:
    await pool.check()
