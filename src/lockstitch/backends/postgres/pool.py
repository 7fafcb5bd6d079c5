"""Connection pool; options in the URL."""

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
"""Connections of one process at most, unless the URL says otherwise. They are opened as they are needed."""

MOST = 500

# A server that vanished without a word is noticed in about half a minute, not after the two hours of TCP.
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
    """`conninfo` is for the driver; `shown` is for people and never holds a password."""

    conninfo: str
    listening: str
    """Where LISTEN is said: the same server, past a pooler."""
    shown: str
    pool: int
    prepare: bool
    reader: str | None = None
    """The login that asks SQL of users, if the URL names one: the same database with another user."""


def parse(url: str) -> Address:
    """Read a URL. Our own options are pool=N, prepare=off, listen=host:port and
    reader=user:password; the others are libpq's."""
    base, _, query = url.partition("?")
    options: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in ("pool", "prepare", "listen", "reader"):
            options[name] = unquote(value)
        else:
            others.append(part)
    try:
        parts = conninfo_to_dict(f"{base}?{'&'.join(others)}" if others else base)
    except psycopg.Error:
        # The driver's own words may quote a part of the password.
        raise Refused("This is no PostgreSQL URL. Write postgresql://user:password@host:5432/database.") from None
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
        raise Refused(f"pool={value} is not a number of connections from 1 to {MOST}.")
    return int(value)


def _prepare(value: str) -> bool:
    if value not in ("on", "off"):
        raise Refused(f"prepare={value} is neither on nor off.")
    return value == "on"


def _login(value: str) -> dict[str, str]:
    user, _, password = value.partition(":")
    if not user:
        # The value may be a password, so it is not shown.
        raise Refused("The option reader= of this URL is not user:password.")
    return {"user": user, "password": password}


def _place(value: str) -> dict[str, str]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"listen={value} is not host:port.")
    return {"host": host, "port": port}


T = TypeVar("T")

OLDEST = 150000
"""PostgreSQL 15."""

PATIENCE = 10.0
"""Seconds to wait for a connection while the server restarts."""

RECONNECT = 1.5
"""Seconds after which the pool's attempts to connect begin anew, because the pauses between them double."""

LOAN = 300.0
"""Seconds after which a connection passes through the pool again, which closes those that are old or too many."""

ATTEMPTS = 5
"""How often something is tried that leaves nothing behind when it fails."""

# What goes wrong comes to the caller as an error; it need not stand on the terminal as well.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Pool:
    """Runs scripts, each on a connection of its own while it lasts."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        self._idle: list[Connection] = []
        """Lent by the pool and not in use."""
        # Waiting here costs much less than waiting in the pool.
        self._slots = asyncio.Semaphore(address.pool)

    async def alone(self, script: Callable[[], Script[T]], *, repeatable: bool) -> T:
        """Run a script of one statement. A repeatable one is sent again even when it may have been executed."""
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
        """Do something on a connection; once more where that is safe.

        It is after a deadlock and after errors of `again`, which leave nothing behind, and after a connection broke
        before anything was sent that commits. After that it is OutcomeUnknown.
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
                await self.give_back(connection)
            await asyncio.sleep(random.uniform(0.005, 0.05) * attempt)

    async def borrow(self) -> Connection:
        """A connection that stood a moment ago; StoreUnreachable when there is none to be had."""
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
            # The pool does not say what is wrong; a connection of our own does.
            await (await self.connect()).close()
            raise translate(exc, self.address.shown) from exc
        except psycopg.Error as exc:
            self._slots.release()
            raise translate(exc, self.address.shown) from exc
        except BaseException:
            self._slots.release()
            raise

    async def give_back(self, connection: Connection) -> None:
        """The last one used is the next one used: its session is warm on the server, and it costs no turn here."""
        pool = self._pool
        assert pool is not None
        try:
            idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if idle and not self._closed and time.monotonic() < connection.lent_until:
                self._idle.append(connection)
            else:
                await pool.putconn(connection)
        finally:
            self._slots.release()

    @staticmethod
    async def _lent(pool: AsyncConnectionPool[Connection]) -> Connection:
        connection = await pool.getconn()
        connection.lent_until = time.monotonic() + LOAN
        return connection

    async def connect(self, *, listening: bool = False, prepared: bool | None = None) -> Connection:
        """A connection of its own, outside the pool."""
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
                f"{self.address.shown} is PostgreSQL {version // 10000}; Lockstitch needs 15 or newer. "
                "Upgrade the server."
            )
        return connection

    async def close(self) -> None:
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
                # The first connection is our own, so that a wrong URL is told at once and in the server's words.
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
                    reconnect_failed=_begin_anew,
                    open=False,
                )
                await self._pool.open()
            return self._pool


async def _begin_anew(pool: AsyncConnectionPool[Any]) -> None:
    await pool.check()
