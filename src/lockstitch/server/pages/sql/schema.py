"""Tables, columns and example queries of the SQL page."""

import re
import sqlite3
from contextlib import closing
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from lockstitch.lenses import catalog
from lockstitch.model import Delivery, Limit, Record, Run, Stitch, Thread, Worker
from lockstitch.model.side_records import SIDE_RECORDS
from lockstitch.server.auth import Caller
from lockstitch.store import Store
from lockstitch.store.store import run_sql

_HEAD: Final = re.compile(r"^-- example: (.+?)(?: \((sqlite|postgres)\))?\n", re.MULTILINE)
_PLACE: Final = re.compile(r"(?<!:):([a-z_]+)")

RECORD: Final = "lockstitch"
"""The name of the record itself in the list of lenses."""


class Example(NamedTuple):
    """An example query with its title. Words that start with a colon are placeholders for ids."""

    title: str
    sql: str


@cache
def examples(lens: str, dialect: str) -> list[Example]:
    """Return the examples of a lens or of the record for a dialect."""
    text = files("lockstitch.server").joinpath("examples", f"{lens}.sql").read_text(encoding="utf-8")
    _, *parts = _HEAD.split(text)
    result = zip(parts[0::3], parts[1::3], parts[2::3], strict=True)
    return [Example(title, sql.strip() + "\n") for title, only, sql in result if only in (None, dialect)]


async def filled(caller: Caller, sql: str) -> str:
    """Return the query with the ids of the latest run and thread as placeholder values."""
    if not _PLACE.search(sql):
        return sql
    runs = await caller.store.statistics.runs(limit=1)
    threads = [] if runs else await caller.store.threads(limit=1)
    run = str(runs[0].id) if runs else "no run yet"
    thread = str(runs[0].thread_id) if runs else str(threads[0].id) if threads else "no thread yet"
    return _PLACE.sub(lambda match: f"'{run if match[1] == 'run_id' else thread}'", sql)


_RECORDS: Final[tuple[type[Record], ...]] = (Thread, Run, Stitch, Delivery, Worker, Limit, *SIDE_RECORDS)


class SchemaColumn(NamedTuple):
    name: str
    type: str


class Schema(NamedTuple):
    """The SQL dialect and the tables of a lens."""

    dialect: str
    tables: dict[str, list[SchemaColumn]]


async def schema_of(caller: Caller, lens: str) -> Schema:
    """Return the schema of a lens or of the record. The server reads it once."""
    schemas = caller.state.schemas
    if lens not in schemas:
        schemas[lens] = await read_schema(caller.store, lens)
    return schemas[lens]


async def read_schema(store: Store, lens: str) -> Schema:
    """Read the schema of a lens or of the record from the store."""
    parts = [] if lens == RECORD else await store.lens_sql(lens, "tables")
    wanted = _core() if lens == RECORD else catalog.tables(lens, parts)
    async with store.lens(catalog.NAMES[0] if lens == RECORD else lens) as connection:
        if isinstance(connection, sqlite3.Connection):
            place = "main" if lens == RECORD else "temp"
            types = {} if lens == RECORD else _types(lens, parts)
            messages = [
                (table, row[1], row[2] or types.get((table, row[1]), ""))
                for table in wanted
                for row in _columns(connection, place, table)
            ]
            return Schema("sqlite", _tables(wanted, messages))
    value = files("lockstitch.server").joinpath("columns.sql").read_text(encoding="utf-8").format(schema=lens)
    answer = await run_sql(store, value, limit=100_000, seconds=10.0, own=True)
    return Schema("postgres", _tables(wanted, [(str(row[0]), str(row[1]), str(row[2])) for row in answer.rows]))


def _columns(connection: sqlite3.Connection, place: str, table: str) -> list[tuple[str, ...]]:
    return connection.execute(f"PRAGMA {place}.table_xinfo({table})").fetchall()


def _types(lens: str, parts: list[str]) -> dict[tuple[str, str], str]:
    """Return the column types of a lens from its table definitions, because SQLite views can lack types."""
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript("\n".join((catalog.script(lens, "tables"), *parts)))
        tables = catalog.tables(lens, parts)
        return {(table, row[1]): row[2] for table in tables for row in _columns(scratch, "main", table)}


def _tables(wanted: list[str], messages: list[tuple[str, str, str]]) -> dict[str, list[SchemaColumn]]:
    tables: dict[str, list[SchemaColumn]] = {name: [] for name in wanted}
    for table, name, kind in messages:
        if table in tables:
            tables[table].append(SchemaColumn(name, kind.lower()))
    return {name: columns for name, columns in tables.items() if columns}


def _core() -> list[str]:
    return list(dict.fromkeys(record.table for record in _RECORDS))
