"""`export_lens`: write a lens into a SQLite file with real tables.

Rows are read from one snapshot and written in one transaction, one batch at a time. Ids in the views can repeat,
because other systems reuse ids. The keys of a table must be unique. If the lens has a view `lens_T` with row identities
(see its script), the row with the smallest identity keeps its id. Other rows with this id get their identity appended,
and references follow. So the same record always gives the same file.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, cast
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.lenses import catalog
from lockstitch.model import codec, format_time
from lockstitch.store import Store, open_store

BATCH = 200
"""Rows in memory at once. One row can contain a whole session."""


class Snapshot(Protocol):
    """A lens at one point in time. Values are values of SQLite: JSON and times are text."""

    async def columns(self, view: str) -> list[str]:
        """Return the columns of a view, or an empty list if the view does not exist."""
        ...

    def rows(self, query: str) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
        """Yield the rows of a query in batches."""
        ...


@asynccontextmanager
async def snapshot(store: Store, lens: str) -> AsyncGenerator[Snapshot]:
    """Open a snapshot of a lens. A file store is copied to disk first, because it can be large."""
    if not store.has_sql:
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

            # Keep the text of the database: parsing and writing it again would change large numbers.
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
    """JSON text of the database, as a type to distinguish it from other text."""

    __slots__ = ()


def _text(value: str | bytes) -> _Json:
    return _Json(value if isinstance(value, str) else bytes(value).decode())


def _plain(value: Any) -> Any:
    """Convert a PostgreSQL value to the value that SQLite stores."""
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


@dataclass
class Exported:
    """The totals of an export."""

    rows: dict[str, int] = field(default_factory=dict[str, int])
    renamed: int = 0
    """Number of rows that got a new id, because another row has the same id."""
    removed: int = 0
    """Number of rows of an earlier export that their parent, for example a run, no longer has."""


async def export_lens(store: Store, lens: str, path: Path, *, update: bool = False) -> Exported:
    """Write a lens of the whole store into a SQLite file.

    Raises `Refused` if the file exists, unless `update` is set. An update adds and changes rows, and removes rows that
    their parent in the store no longer has. Rows of parents that the store no longer has, such as purged runs, stay in
    the file. On any error, a new file is not created and an existing file stays unchanged.
    """
    script = "\n".join((catalog.script(catalog.check(lens), "tables"), *await store.lens_sql(lens, "tables")))
    new = free_place(path, "or update it with --update" if not update else None)
    # A new file gets its final name when it is complete.
    target = path.with_name(f"{path.name}.partial") if new else path
    if new:
        target.unlink(missing_ok=True)
    try:
        async with snapshot(store, lens) as rows:
            exported = await _written(rows, script, target)
    except BaseException as exc:
        if new:
            target.unlink(missing_ok=True)
        if isinstance(exc, sqlite3.Error):
            raise Refused(f"{path} cannot be written: {exc}. Nothing was changed.") from exc
        raise
    if new:
        os.replace(target, path)
    return exported


def free_place(path: Path, otherwise: str | None = "") -> bool:
    """Return True if the file does not exist. Raises `Refused` if its folder does not exist.

    If the file exists, raises `Refused` with the advice `otherwise`. None allows an existing file.
    """
    if not path.parent.is_dir():
        raise Refused(f"Folder {path.parent} not found.")
    there = path.exists()
    if there and otherwise is not None:
        raise Refused(f"{path} already exists. Choose another file{f', {otherwise}' if otherwise else ''}.")
    return not there


async def _written(rows: Snapshot, script: str, target: Path) -> Exported:
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN IMMEDIATE")
        writer = _Writer(connection)
        for statement in _statements(script):
            connection.execute(statement)
        for table in writer.tables(script):
            await writer.write(rows, table)
        writer.remove_vanished()
        connection.execute("COMMIT")
        return writer.exported


class _Reference(NamedTuple):
    column: str
    table: str


class _Table(NamedTuple):
    name: str
    columns: list[str]
    key: list[str]
    references: list[_Reference]
    """References that consist of one column."""
    parent: tuple[list[str], str, list[str]] | None
    """The parent of its rows: columns here, the parent table, and its columns."""


class _Writer:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.exported = Exported()
        self._tables: list[_Table] = []
        # Temporary tables can spill to disk: the entries are small, but there can be many.
        connection.execute(
            "CREATE TEMP TABLE named (tab TEXT, row TEXT, key TEXT, PRIMARY KEY (tab, row)) WITHOUT ROWID"
        )
        connection.execute("CREATE UNIQUE INDEX temp.named_key ON named (tab, key)")
        connection.execute("CREATE TEMP TABLE seen (tab TEXT, number INTEGER, PRIMARY KEY (tab, number)) WITHOUT ROWID")

    def tables(self, script: str) -> list[_Table]:
        """Return the tables of a lens, referenced tables first."""
        names = [line.split()[5] for line in script.splitlines() if line.startswith("CREATE TABLE")]
        self._tables = [self._table(name) for name in names]
        return self._tables

    def _table(self, name: str) -> _Table:
        info = self._connection.execute(f"PRAGMA table_info({name})").fetchall()
        columns = [row[1] for row in info]
        key = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
        foreign: dict[int, list[Any]] = {}
        for row in self._connection.execute(f"PRAGMA foreign_key_list({name})"):
            foreign.setdefault(row[0], []).append(row)
        # SQLite lists foreign keys in reverse order.
        keys = [sorted(foreign[number], key=lambda row: row[1]) for number in sorted(foreign, reverse=True)]
        single = [_Reference(rows[0][3], rows[0][2]) for rows in keys if len(rows) == 1]
        parent = ([row[3] for row in keys[0]], keys[0][0][2], [row[4] for row in keys[0]]) if keys else None
        return _Table(name, columns, key, single, parent)

    async def write(self, rows: Snapshot, table: _Table) -> None:
        source = f"lens_{table.name}"
        columns = await rows.columns(source)
        hidden = ["row_id", *(f"{reference.column}_row" for reference in table.references)] if columns else []
        shown = await rows.columns(table.name)
        if not set(table.columns) <= set(shown):
            raise Refused(f"The file has a table {table.name} with other columns. Choose another file.")
        chosen = [*table.columns, *hidden]
        order = ", ".join(["row_id"] if columns else table.key)
        query = f"SELECT {', '.join(chosen)} FROM {source if columns else table.name} ORDER BY {order}"
        statement = _upsert(table)
        number = 0
        async for batch in rows.rows(query):
            for values in batch:
                row = dict(zip(chosen, values, strict=True))
                if columns:
                    self._name(table, row)
                result = self._connection.execute(statement, [row[column] for column in table.columns]).fetchone()
                self._connection.execute("INSERT OR IGNORE INTO temp.seen VALUES (?, ?)", (table.name, result[0]))
            number += len(batch)
        self.exported.rows[table.name] = number

    def _name(self, table: _Table, row: dict[str, Any]) -> None:
        """Give a row a unique key, and update its references to the keys of other rows."""
        execute = self._connection.execute
        column = table.key[0]
        key = row[column]
        if execute("SELECT 1 FROM temp.named WHERE tab = ? AND key = ?", (table.name, key)).fetchone():
            key = f"{key}:{row['row_id']}"
            self.exported.renamed += 1
        execute("INSERT INTO temp.named VALUES (?, ?, ?)", (table.name, row["row_id"], key))
        row[column] = key
        for reference in table.references:
            meant = row[f"{reference.column}_row"]
            result = execute(
                "SELECT key FROM temp.named WHERE tab = ? AND row = ?", (reference.table, meant)
            ).fetchone()
            row[reference.column] = result[0] if result else None

    def remove_vanished(self) -> None:
        """Remove rows of an earlier export that their parent no longer has. Dependent tables come first."""
        for table in reversed(self._tables):
            if table.parent is None:
                continue
            here, parent, there = table.parent
            same = " AND ".join(f"p.{other} = {table.name}.{own}" for own, other in zip(here, there, strict=True))
            removed = self._connection.execute(
                f"DELETE FROM {table.name} "
                f"WHERE NOT EXISTS (SELECT 1 FROM temp.seen WHERE tab = ? AND number = {table.name}.rowid) "
                f"AND EXISTS (SELECT 1 FROM {parent} p JOIN temp.seen s ON s.tab = ? AND s.number = p.rowid "
                f"WHERE {same})",
                (table.name, parent),
            )
            self.exported.removed += removed.rowcount


def _upsert(table: _Table) -> str:
    """Return an upsert statement. A replacement would delete the row first, and with it the rows that refer to it."""
    places = ", ".join("?" for _ in table.columns)
    others = [column for column in table.columns if column not in table.key]
    changes = ", ".join(f"{column} = excluded.{column}" for column in others)
    return (
        f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changes} RETURNING rowid"
    )


def _statements(script: str) -> Sequence[str]:
    return [part for part in script.split(";\n") if part.strip()]
