"""Full-text search on PostgreSQL: titles by an index of their own, texts by one that those who search bring up to date.

It is filled up to a mark below which nothing more can appear. What came after the mark is searched without it, so an
answer is right even where nothing could be filled: because somebody else is at it, because a transaction does not end,
or because this user may only read.
"""

import asyncio
import re
from contextlib import suppress

from psycopg import errors as pg

from lockstitch.backend import Hit
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.postgres.horizon import Horizon
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import StoreReadOnly

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
        self._horizon = Horizon()
        self._mark = 0
        self._filling = asyncio.Lock()

    async def search(self, project: str, text: str, limit: int) -> list[Hit]:
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


def search(dialect: Dialect, project: str, text: str, limit: int, mark: int) -> Script[list[Hit]]:
    """PostgreSQL cuts what is searched for into words just as it cut what is there."""
    # A NUL cannot be sent, and stands in no text.
    wanted = {"project": project, "text": text.replace("\x00", " "), "limit": limit, "mark": mark}
    rows = yield dialect.statement("search", wanted)
    return [Hit(thread_id, position, score) for thread_id, position, score in rows]
