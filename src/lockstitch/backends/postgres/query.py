"""SQL of users: one statement that only reads, on a separate connection that is closed afterwards.

The connection's login can only read (`reader.py`). The transaction is read-only too, is never committed, and has a time
limit. None of this separates users from each other: every user of this function may read everything.
"""

import asyncio
import re
from typing import Any

import psycopg
from psycopg import AsyncRawCursor
from psycopg import errors as pg
from psycopg.rows import TupleRow

from lockstitch.backend import ANSWER, Answer
from lockstitch.backends.postgres import lenses
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.errors import Refused

# These cannot be the query of a cursor; they read all the same.
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_SHOW = re.compile(r"\s*SHOW\b", re.IGNORECASE)
_MEANT_TO_WRITE = re.compile(
    r"\s*(ALTER|CALL|COPY|CREATE|DELETE|DO|DROP|GRANT|INSERT|MERGE|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)\b", re.IGNORECASE
)


async def query(
    connection: Connection, dialect: Dialect, sql: str, limit: int, seconds: float, lens: str | None
) -> Answer:
    """Run one statement in a read-only transaction with a time limit, a row limit and a limit of the answer's size."""
    try:
        async with asyncio.timeout(seconds + 1):
            await connection.execute_one(dialect.statement("query_begin", {}))
            if lens is not None:
                await lenses.require(connection, dialect, lens)
            path = "lockstitch, public" if lens is None else f"{lens}, lockstitch, public"
            limits = {"milliseconds": str(max(1, int(seconds * 1000))), "path": path}
            await connection.execute_one(dialect.statement("query_limits", limits))
            return await _ask(connection, sql, limit)
    except (pg.QueryCanceled, TimeoutError) as exc:
        raise Refused(f"The query took longer than {seconds:g} s and was stopped.") from exc
    except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as exc:
        raise Refused(f"Only reading is allowed here: {exc.diag.message_primary}.") from exc
    except pg.AdminShutdown as exc:
        # The login may end its own sessions. If the server itself stops, the next statement says so.
        raise Refused("The query's own connection was ended.") from exc
    except (psycopg.Error, UnicodeError) as exc:
        if connection.closed:
            raise
        said = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
        if _MEANT_TO_WRITE.match(sql):
            raise Refused("Only reading is allowed here: SELECT, WITH, VALUES, TABLE, EXPLAIN and SHOW.") from exc
        raise Refused(f"PostgreSQL refused the query: {said or exc}.") from exc


async def _ask(connection: Connection, sql: str, limit: int) -> Answer:
    """Execute the statement and return its rows. Prepared, because then PostgreSQL takes one statement only."""
    async with AsyncRawCursor(connection) as cursor:
        if _EXPLAIN.match(sql) or _SHOW.match(sql):
            await cursor.execute(sql.encode(), (), prepare=True)
            rows = await cursor.fetchmany(limit + 1)
            return Answer([column.name for column in cursor.description or ()], rows[:limit], len(rows) > limit)
        await cursor.execute(b"DECLARE asked NO SCROLL CURSOR FOR " + sql.encode(), (), prepare=True)
        await cursor.execute(b"FETCH 0 FROM asked")
        columns = [column.name for column in cursor.description or ()]
        return await _fetched(cursor, columns, limit)


async def _fetched(cursor: AsyncRawCursor[TupleRow], columns: list[str], limit: int) -> Answer:
    """Fetch rows one by one, until there are enough or their bytes are too many."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    async for row in cursor.stream(f"FETCH {limit + 1} FROM asked".encode()):
        size += _size(cursor, len(columns))
        if len(rows) == limit or size > ANSWER:
            if not rows and limit:
                raise Refused(f"The first row of the answer has more than {ANSWER >> 20} MiB. Select less of it.")
            return Answer(columns, rows, True)
        rows.append(row)
    return Answer(columns, rows, False)


def _size(cursor: AsyncRawCursor[TupleRow], columns: int) -> int:
    """Return the bytes of the row that was fetched last, as the server sent them."""
    result = cursor.pgresult
    if result is None:
        return 0
    return sum(len(result.get_value(0, place) or b"") for place in range(columns))
