"""Read-only SQL; full-text search.

The connection's login can only read (`reader.py`). The transaction is read-only too, is never committed, and has a time
limit. None of this separates users from each other: every user of this function may read everything.

It is filled up to a mark below which nothing more can appear. What came after the mark is searched without it, so an
answer is right even where nothing could be filled: because somebody else is at it, because a transaction does not end,
or because this user may only read.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncRawCursor
from psycopg import errors as pg
from psycopg.rows import TupleRow

from lockstitch.backend import ANSWER, QueryResult, SearchHit
from lockstitch.backends.postgres import schema
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.postgres.notify import LogHorizon
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.errors import Refused, StoreReadOnly

# These cannot be the query of a cursor; they read all the same.
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_SHOW = re.compile(r"\s*SHOW\b", re.IGNORECASE)
_MEANT_TO_WRITE = re.compile(
    r"\s*(ALTER|CALL|COPY|CREATE|DELETE|DO|DROP|GRANT|INSERT|MERGE|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)\b", re.IGNORECASE
)


async def query(
    connection: Connection, dialect: Dialect, sql: str, limit: int, seconds: float, lens: str | None
) -> QueryResult:
    """Run one statement in a read-only transaction with a time limit, a row limit and a limit of the answer's size."""
    try:
        async with asyncio.timeout(seconds + 1):
            await connection.execute_one(dialect.statement("query_begin", {}))
            if lens is not None:
                await schema.require(connection, dialect, lens)
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


async def _ask(connection: Connection, sql: str, limit: int) -> QueryResult:
    """Execute the statement and return its rows. Prepared, because then PostgreSQL takes one statement only."""
    async with AsyncRawCursor(connection) as cursor:
        if _EXPLAIN.match(sql) or _SHOW.match(sql):
            await cursor.execute(sql.encode(), (), prepare=True)
            rows = await cursor.fetchmany(limit + 1)
            return QueryResult([column.name for column in cursor.description or ()], rows[:limit], len(rows) > limit)
        await cursor.execute(b"DECLARE asked NO SCROLL CURSOR FOR " + sql.encode(), (), prepare=True)
        await cursor.execute(b"FETCH 0 FROM asked")
        columns = [column.name for column in cursor.description or ()]
        return await _fetched(cursor, columns, limit)


async def _fetched(cursor: AsyncRawCursor[TupleRow], columns: list[str], limit: int) -> QueryResult:
    """Fetch rows one by one, until there are enough or their bytes are too many."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    async for row in cursor.stream(f"FETCH {limit + 1} FROM asked".encode()):
        size += _size(cursor, len(columns))
        if len(rows) == limit or size > ANSWER:
            if not rows and limit:
                raise Refused(f"The first row of the answer has more than {ANSWER >> 20} MiB. Select less of it.")
            return QueryResult(columns, rows, True)
        rows.append(row)
    return QueryResult(columns, rows, False)


def _size(cursor: AsyncRawCursor[TupleRow], columns: int) -> int:
    """Return the bytes of the row that was fetched last, as the server sent them."""
    result = cursor.pgresult
    if result is None:
        return 0
    return sum(len(result.get_value(0, place) or b"") for place in range(columns))


BATCH = 1000
"""Stitches that are filled in one transaction."""

PAUSES = (0, 0, 0.01, 0.04)
"""Seconds before each look at how far the log is complete; most transactions end within a few milliseconds."""

_WORD = re.compile(r"[^\W_]")


class _Busy(Exception):
    """Somebody else holds what filling needs."""


class Searcher:
    """Searches, and remembers how far it has filled."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._horizon = LogHorizon()
        self._mark = 0
        self._filling = asyncio.Lock()

    async def search(self, project: str, text: str, limit: int) -> list[SearchHit]:
        if not _WORD.search(text):
            return []
        async with self._filling:
            await self._catch_up()
        # The mark as it is now: it only rises, and what is filled stays so.
        mark = self._mark
        return await self._pool.alone(lambda: search(self._dialect, project, text, limit, mark), repeatable=True)

    async def _catch_up(self) -> None:
        with suppress(StoreReadOnly, _Busy):
            await self._look()
            while self._mark < self._horizon.mark:
                self._mark = await self._pool.run(self._fill, repeatable=True)
            if self._horizon.mark == self._horizon.end:
                return
        # Others may have filled more.
        self._mark = await self._pool.alone(lambda: mark_of(self._dialect), repeatable=True)

    async def _fill(self, connection: Connection) -> int:
        try:
            return await connection.transact(fill(self._dialect, self._horizon.mark))
        except pg.LockNotAvailable as exc:
            raise _Busy from exc

    async def _look(self) -> None:
        """Move the horizon to where the log ends now, or as far as others allow."""
        grown = False
        for pause in PAUSES:
            await asyncio.sleep(pause)
            if not await self._pool.alone(lambda: self._horizon.look(self._dialect), repeatable=True):
                continue
            if grown or self._horizon.mark == self._horizon.end:
                break
            grown = True


def fill(dialect: Dialect, complete: int) -> Script[int]:
    """Fill the next ones, up to where the log is complete; how far it is filled."""
    yield dialect.statement("search_lock", {})
    mark = yield from mark_of(dialect)
    if mark >= complete:
        return mark
    rows = yield dialect.statement("search_fill", {"mark": mark, "complete": complete, "limit": BATCH})
    return int(rows[0][0])


def mark_of(dialect: Dialect) -> Script[int]:
    return int((yield dialect.statement("search_mark", {}))[0][0])


def search(dialect: Dialect, project: str, text: str, limit: int, mark: int) -> Script[list[SearchHit]]:
    """PostgreSQL cuts what is searched for into words just as it cut what is there."""
    # A NUL cannot be sent, and stands in no text.
    wanted = {"project": project, "text": text.replace("\x00", " "), "limit": limit, "mark": mark}
    rows = yield dialect.statement("search", wanted)
    return [SearchHit(thread_id, position, score) for thread_id, position, score in rows]
