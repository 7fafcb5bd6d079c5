"""Rows of a lens as they were at one moment, a batch at a time, whatever database they come from."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast
from uuid import UUID

from lockstitch.records import codec, format_time
from lockstitch.store import Store, open_store

BATCH = 200
"""Rows that are in memory at once; one of them may be a whole session."""


class Snapshot(Protocol):
    """A lens at one moment. Values are those of SQLite: JSON and times are text."""

    async def columns(self, view: str) -> list[str]:
        """The columns of a view; none if there is no such view."""
        ...

    def rows(self, query: str) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
        """What a query gives, in batches."""
        ...


@asynccontextmanager
async def snapshot(store: Store, lens: str) -> AsyncGenerator[Snapshot]:
    """The lens of a store. Of a store of files a copy is read, on disk, since nobody knows how large it is."""
    if store.backend.lens(lens) is None:
        with TemporaryDirectory(prefix="lockstitch-") as folder:
            async with open_store(f"sqlite:///{folder}/copy.db?synchronous=normal") as copy:
                await store.copy_to(copy)
                async with snapshot(copy, lens) as opened:
                    yield opened
        return
    async with store.lens(lens) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("BEGIN")
            yield _Sqlite(connection)
        else:
            from psycopg import IsolationLevel
            from psycopg.types.json import set_json_loads

            # As the database spells it: read and written again, large numbers would be others.
            set_json_loads(_text, connection)
            await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            async with connection.transaction():
                yield _Postgres(connection)


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def columns(self, view: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA temp.table_info({view})")]

    async def rows(self, query: str) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
        cursor = await asyncio.to_thread(self._connection.execute, query)
        while batch := await asyncio.to_thread(cursor.fetchmany, BATCH):
            yield batch


class _Postgres:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def columns(self, view: str) -> list[str]:
        query = "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        cursor = await self._connection.execute(f"{query} ORDER BY attnum", (view,))
        return [name for (name,) in await cursor.fetchall()]

    async def rows(self, query: str) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
        async with self._connection.cursor(name="lockstitch_rows") as cursor:
            await cursor.execute(query.encode())
            while batch := await cursor.fetchmany(BATCH):
                yield [[_plain(value) for value in row] for row in batch]


class _Json(str):
    """JSON as the database spells it, to be told from a text that is none."""

    __slots__ = ()


def _text(value: str | bytes) -> _Json:
    return _Json(value if isinstance(value, str) else bytes(value).decode())


def _plain(value: Any) -> Any:
    """PostgreSQL's value as SQLite keeps it."""
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        return f"[{','.join(part if isinstance(part, _Json) else codec.dumps(part).decode() for part in parts)}]"
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, UUID):
        return str(value)
    return int(value) if isinstance(value, bool) else value
