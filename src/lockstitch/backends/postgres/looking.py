"""A read-only connection for people's own programs, with a lens in place."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from lockstitch.backends.postgres import lenses
from lockstitch.backends.postgres.errors import translate
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect


@asynccontextmanager
async def looking(pool: Pool, dialect: Dialect, name: str, blocking: bool) -> AsyncGenerator[Any]:
    """A connection of the driver's own kind, past a pooler: what it sets for its session must stay.

    Every statement is a transaction of its own, so that nobody who looks and thinks keeps old rows from being cleared.
    """
    own = await pool.connect(listening=True)
    try:
        await lenses.require(own, dialect, name)
        ((reader,),) = await own.execute_one(dialect.statement("reader_known", {}))
    finally:
        await own.close()
    setup = ["SET default_transaction_read_only = on", f"SET search_path TO {name}, public"]
    if reader:
        setup.append(f"SET ROLE {lenses.READER}")
    address = pool.address
    try:
        if blocking:
            connection = await asyncio.to_thread(Connection.connect, address.listening, autocommit=True)
            try:
                for statement in setup:
                    await asyncio.to_thread(connection.execute, statement.encode())
                connection.read_only = True
                yield connection
            finally:
                await asyncio.to_thread(connection.close)
        else:
            async with await AsyncConnection.connect(address.listening, autocommit=True) as connection:
                for statement in setup:
                    await connection.execute(statement.encode())
                await connection.set_read_only(True)
                yield connection
    except psycopg.OperationalError as exc:
        raise translate(exc, address.shown) from exc
