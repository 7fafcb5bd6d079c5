"""The connections of one process: opened when first needed, handed out sound, replaced when they break."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from lockstitch.backends.postgres.connection import Connection, TooLarge, configure, settings
from lockstitch.backends.postgres.errors import AGAIN, translate, unknown
from lockstitch.backends.postgres.url import Address
from lockstitch.backends.sql.script import Script
from lockstitch.errors import StoreError, StoreUnreachable

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
