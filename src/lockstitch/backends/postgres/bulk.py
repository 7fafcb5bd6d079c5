"""Many records at once, by COPY: straight into their table, or past a temporary one where some are there already."""

import asyncio
from collections.abc import Sequence

from psycopg import AsyncRawCursor
from psycopg import errors as pg

from lockstitch.backend import Receipt
from lockstitch.backends.postgres.connection import Connection, bind
from lockstitch.backends.postgres.dialect import SCHEMA
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.fresh import Fresh
from lockstitch.backends.sql.script import Statement
from lockstitch.records import Record, columns

MANY = 50
"""Records from which on COPY is faster than statements."""

BREATH = 500
"""Rows after which other tasks get their turn."""


async def put(connection: Connection, dialect: Dialect, records: Sequence[Record]) -> None:
    """Write records of one kind, replacing those with the same key, all or none."""
    kind = type(records[0])
    # Of two with the same key the last one counts, as if they had been written one by one.
    key = kind.primary_key
    wanted = list({tuple(record.__dict__[field] for field in key): record for record in records}.values())
    names = [name for name, _ in columns(kind) if name != "log_id"]
    try:
        async with connection.steps():
            await _copy(connection, dialect, wanted, f"{SCHEMA}.{kind.table}", names)
    except pg.UniqueViolation:
        async with connection.steps():
            listed = ", ".join(names)
            await connection.execute_one(dialect.statement("incoming", {}, columns=listed, table=kind.table))
            await _copy(connection, dialect, wanted, "incoming", names)
            await connection.execute_one(_upsert(dialect, kind, names))


async def begin(connection: Connection, dialect: Dialect, new: Sequence[Fresh]) -> list[Receipt]:
    """Write new threads with their first changes, in one transaction."""
    parts: tuple[Sequence[Record], ...] = (
        [one.head for one in new],
        [run for one in new for run in one.change.new_runs],
        [stitch for one in new for stitch in one.change.stitches],
    )
    async with connection.steps():
        for records in parts:
            if records:
                kind = type(records[0])
                names = [name for name, _ in columns(kind) if name != "log_id"]
                await _copy(connection, dialect, records, f"{SCHEMA}.{kind.table}", names)
    return [one.receipt for one in new]


async def _copy(
    connection: Connection, dialect: Dialect, records: Sequence[Record], into: str, names: Sequence[str]
) -> None:
    sql, _, _ = bind(dialect.statement("copy", {}, into=into, columns=", ".join(names)))
    kind = type(records[0])
    async with AsyncRawCursor(connection) as cursor, cursor.copy(sql) as copy:
        for number, record in enumerate(records):
            values = dialect.encode(kind, record.__dict__)
            await copy.write_row([values[name] for name in names])
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)


def _upsert(dialect: Dialect, kind: type[Record], names: Sequence[str]) -> Statement:
    key = dialect.target(kind).key
    changed = [name for name in dialect.target(kind).values if name not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in changed)
    return dialect.statement(
        "incoming_upsert",
        {},
        table=kind.table,
        columns=", ".join(names),
        key=", ".join(key),
        action=f"UPDATE SET {changes}" if changed else "NOTHING",
    )
