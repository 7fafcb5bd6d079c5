"""The baseline of lenses: the tables and indexes of the documents, with the rows that the lens shows.

Foreign keys are left out, because reading does not use them.
"""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.places import sqlite_path
from lockstitch.backends.sqlite.query import create_lens_views
from lockstitch.backends.sqlite.query_process import add_functions

_SCRIPTS = Path(__file__).with_name("documents")
_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\);", re.MULTILINE | re.DOTALL)


@asynccontextmanager
async def by_hand(url: str, lens: str) -> AsyncIterator[Any]:
    """Return a connection with real tables in place of the views of a lens. They are dropped when it is closed."""
    make = _sqlite if url.startswith("sqlite") else _postgres
    async with make(url, lens) as connection:
        yield connection


@asynccontextmanager
async def _sqlite(url: str, lens: str) -> AsyncIterator[sqlite3.Connection]:
    path = Path(sqlite_path(url)).with_name(f"{lens}.db")
    # Replace types that only PostgreSQL has: arrays become JSON, and serial keys INTEGER.
    script = _script(lens).replace("[]", "").replace("BIGSERIAL", "INTEGER")
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA page_size = 8192")
            connection.executescript(script)
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
            connection.execute("ATTACH ? AS hand", (str(path),))
            connection.execute("PRAGMA hand.synchronous = OFF")
            create_lens_views(connection, lens)
            for table, columns in _tables(lens):
                connection.execute(f"INSERT INTO hand.{table} ({columns}) SELECT {columns} FROM temp.{table}")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("ANALYZE")
            add_functions(connection)
            yield connection
    finally:
        path.unlink(missing_ok=True)


@asynccontextmanager
async def _postgres(url: str, lens: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("CREATE SCHEMA by_hand")
        await connection.execute("SET search_path TO by_hand")
        try:
            await connection.execute(_script(lens).encode())
            for table, columns in _tables(lens):
                copy = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {lens}.{table}"
                await connection.execute(copy.encode())
                await connection.execute(f"VACUUM (ANALYZE) {table}".encode())
            await connection.execute("CHECKPOINT")
            yield connection
        finally:
            await connection.execute("DROP SCHEMA by_hand CASCADE")


def _script(lens: str) -> str:
    return (_SCRIPTS / f"{lens}.sql").read_text()


def _tables(lens: str) -> list[tuple[str, str]]:
    """Return the columns of each table."""
    return [
        (name, ", ".join(line.split()[0] for line in body.splitlines() if line.strip()))
        for name, body in _TABLE.findall(_script(lens))
    ]
