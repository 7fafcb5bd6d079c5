"""Read-only SQL of users, and full-text search.

SQL of users: the connection's login can only read (`reader.py`). The transaction is read-only too, is never committed,
and has a time limit. This does not separate users from each other: every user of this function can read everything.

Search: the index is filled up to a mark below which no further stitch can appear. Stitches after the mark are searched
without the index. So a result is complete even if the index cannot be filled, because another process fills it, a
transaction does not end, or the user of the database can only read.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncRawCursor
from psycopg import errors as pg
from psycopg.rows import TupleRow

from lockstitch.backend import ANSWER, RANKED, QueryResult, SearchHit
from lockstitch.backends.postgres import schema
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.postgres.notify import LogHorizon
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.errors import Refused, StoreReadOnly

# These statements only read, but cannot be the query of a cursor.
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_SHOW = re.compile(r"\s*SHOW\b", re.IGNORECASE)
_MEANT_TO_WRITE = re.compile(
    r"\s*(ALTER|CALL|COPY|CREATE|DELETE|DO|DROP|GRANT|INSERT|MERGE|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)\b", re.IGNORECASE
)


async def query(
    connection: Connection, dialect: Dialect, sql: str, limit: int, seconds: float, lens: str | None
) -> QueryResult:
    """Run one statement in a read-only transaction, with limits of time, rows and result size."""
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
        raise Refused(f"Only reading is allowed: {exc.diag.message_primary}.") from exc
    except pg.AdminShutdown as exc:
        # The login can end its own sessions. If the server itself stops, the next statement reports it.
        raise Refused("The connection of the query was terminated. Run the query again.") from exc
    except (psycopg.Error, UnicodeError) as exc:
        if connection.closed:
            raise
        text = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
        if _MEANT_TO_WRITE.match(sql):
            raise Refused("Only reading is allowed: SELECT, WITH, VALUES, TABLE, EXPLAIN and SHOW.") from exc
        raise Refused(f"PostgreSQL refused the query: {text or exc}.") from exc


async def _ask(connection: Connection, sql: str, limit: int) -> QueryResult:
    """Execute the statement and return its rows. It is prepared, because PostgreSQL prepares only single statements."""
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
    """Fetch rows one by one until a row or byte limit is reached."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    async for row in cursor.stream(f"FETCH {limit + 1} FROM asked".encode()):
        size += _size(cursor, len(columns))
        if len(rows) == limit or size > ANSWER:
            if not rows and limit:
                raise Refused(f"The first row of the result is larger than {ANSWER >> 20} MiB. Select fewer columns.")
            return QueryResult(columns, rows, True)
        rows.append(row)
    return QueryResult(columns, rows, False)


def _size(cursor: AsyncRawCursor[TupleRow], columns: int) -> int:
    """Return the size of the last fetched row in bytes, as the server sent it."""
    result = cursor.pgresult
    if result is None:
        return 0
    return sum(len(result.get_value(0, place) or b"") for place in range(columns))


BATCH = 1000
"""Number of stitches to index in one transaction."""

_RECENT = 300
"""Number of the newest stitches after the mark that a search reads word by word if it does not wait for the index."""

_ALL = 2**62

PAUSES = (0, 0, 0.01, 0.04)
"""Seconds before each check how far the log is complete. Most transactions end within a few milliseconds."""

_MANY = 3 * RANKED
"""Number of matches from which the texts are read from the newest one, because sorting all matches takes longer."""

_TITLES = RANKED // 10
"""Number of the newest matching titles that are ranked. Each of them is split into words again."""

_WORD = re.compile(r"[^\W_]")


class _Busy(Exception):
    """Another transaction holds a lock that indexing needs."""


class Searcher:
    """Searches, and fills the index first. Safe to use from many tasks."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._horizon = LogHorizon()
        self._mark = 0
        self._filling = asyncio.Lock()

    async def search(self, project: str, text: str, limit: int, *, complete: bool) -> list[SearchHit]:
        """Return threads and stitches that contain every word of `text`, best match first."""
        if not _WORD.search(text):
            return []
        if complete:
            async with self._filling:
                await self._catch_up()
        else:
            await self._read_mark()
        # The mark only rises, and indexed stitches stay indexed.
        mark, recent = self._mark, _ALL if complete else _RECENT
        return await self._pool.alone(
            lambda: search(self._dialect, project, text, limit, mark, recent), repeatable=True
        )

    async def unindexed(self) -> int:
        """Return the number of stitches that a search leaves out if it does not wait for the index."""
        left = await self._pool.alone(lambda: unindexed(self._dialect), repeatable=True)
        return max(0, left - _RECENT)

    async def prepare(self) -> bool:
        """Index the next stitches. Return True if more are left."""
        async with self._filling:
            try:
                await self._look()
                if self._mark < self._horizon.mark:
                    self._mark = await self._pool.run(self._fill, repeatable=True)
            except StoreReadOnly:
                return False
            except _Busy:
                # Another process indexes them.
                await self._read_mark()
            return self._mark < self._horizon.mark

    async def _read_mark(self) -> None:
        """Read how far other processes and `prepare` have filled the index."""
        self._mark = max(self._mark, await self._pool.alone(lambda: mark_of(self._dialect), repeatable=True))

    async def _catch_up(self) -> None:
        with suppress(StoreReadOnly, _Busy):
            await self._look()
            while self._mark < self._horizon.mark:
                self._mark = await self._pool.run(self._fill, repeatable=True)
            if self._horizon.mark == self._horizon.end:
                return
        # Other processes may have indexed more.
        await self._read_mark()

    async def _fill(self, connection: Connection) -> int:
        try:
            return await connection.transact(fill(self._dialect, self._horizon.mark))
        except pg.LockNotAvailable as exc:
            raise _Busy from exc

    async def _look(self) -> None:
        """Move the horizon to the current end of the log, or as far as open transactions allow."""
        grown = False
        for pause in PAUSES:
            await asyncio.sleep(pause)
            if not await self._pool.alone(lambda: self._horizon.look(self._dialect), repeatable=True):
                continue
            if grown or self._horizon.mark == self._horizon.end:
                break
            grown = True


def fill(dialect: Dialect, complete: int) -> Script[int]:
    """Index the next stitches up to `complete`. Return the new mark."""
    yield dialect.statement("search_lock", {})
    mark = yield from mark_of(dialect)
    if mark >= complete:
        return mark
    rows = yield dialect.statement("search_fill", {"mark": mark, "complete": complete, "limit": BATCH})
    return int(rows[0][0])


def mark_of(dialect: Dialect) -> Script[int]:
    """Return the `log_id` up to which the index is filled."""
    return int((yield dialect.statement("search_mark", {}))[0][0])


def unindexed(dialect: Dialect) -> Script[int]:
    """Return the number of stitches after the mark."""
    return int((yield dialect.statement("search_left", {}))[0][0])


def search(
    dialect: Dialect, project: str, text: str, limit: int, mark: int, recent: int = _ALL
) -> Script[list[SearchHit]]:
    """Return the matches of a search. PostgreSQL splits the query into words in the same way as the indexed texts."""
    # A NUL cannot be sent, and no text contains one.
    wanted = {"project": project, "text": text.replace("\x00", " "), "mark": mark}
    limits = {"ranked": RANKED, "many": _MANY, "titles": _TITLES, "recent": recent, "limit": limit}
    rows = yield dialect.statement("search", wanted, **{name: str(number) for name, number in limits.items()})
    return [SearchHit(thread_id, position, score) for thread_id, position, score in rows]
