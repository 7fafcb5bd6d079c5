"""SQL for people: one statement that only reads, refused by PostgreSQL itself if it would do more.

It runs on a connection of its own, which is closed afterwards, because a session can be left changed by a query that
only reads (an advisory lock, a setting). As the query of a cursor it can be nothing but a query. None of this is a
boundary between people who may see different things: whoever may ask here may read everything.
"""

import asyncio
import re

import psycopg
from psycopg import AsyncRawCursor
from psycopg import errors as pg

from lockstitch.backend import Answer
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.errors import Refused

# These cannot be the query of a cursor; they read all the same.
_NO_CURSOR = re.compile(r"\s*(EXPLAIN|SHOW)\b", re.IGNORECASE)
_MEANT_TO_WRITE = re.compile(
    r"\s*(ALTER|CALL|COPY|CREATE|DELETE|DO|DROP|GRANT|INSERT|MERGE|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)\b", re.IGNORECASE
)


async def query(connection: Connection, dialect: Dialect, sql: str, limit: int, seconds: float) -> Answer:
    """Run one statement in a read-only transaction with a time limit and a row limit."""
    try:
        async with asyncio.timeout(seconds + 1):
            await connection.execute_one(dialect.statement("query_begin", {}))
            milliseconds = str(max(1, int(seconds * 1000)))
            await connection.execute_one(dialect.statement("query_limits", {"milliseconds": milliseconds}))
            await connection.execute_one(dialect.statement("query_role", {}))
            return await _ask(connection, sql, limit)
    except (pg.QueryCanceled, TimeoutError) as exc:
        raise Refused(f"The query took longer than {seconds:g} s and was stopped.") from exc
    except pg.ReadOnlySqlTransaction as exc:
        raise Refused(f"Only reading is allowed here: {exc.diag.message_primary}.") from exc
    except (psycopg.Error, UnicodeError) as exc:
        if connection.closed:
            raise
        said = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
        if _MEANT_TO_WRITE.match(sql):
            raise Refused("Only reading is allowed here: SELECT, WITH, VALUES, TABLE, EXPLAIN and SHOW.") from exc
        raise Refused(f"PostgreSQL refused the query: {said or exc}.") from exc


async def _ask(connection: Connection, sql: str, limit: int) -> Answer:
    async with AsyncRawCursor(connection) as cursor:
        # Prepared, because then PostgreSQL takes one statement only.
        if _NO_CURSOR.match(sql):
            await cursor.execute(sql.encode(), (), prepare=True)
        else:
            await cursor.execute(b"DECLARE asked NO SCROLL CURSOR FOR " + sql.encode(), (), prepare=True)
            await cursor.execute(f"FETCH {limit + 1} FROM asked".encode())
        rows = await cursor.fetchmany(limit + 1)
        columns = [column.name for column in cursor.description or ()]
    return Answer(columns, rows[:limit], len(rows) > limit)
