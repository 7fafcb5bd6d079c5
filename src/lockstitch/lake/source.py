"""`Source`: one snapshot of a record on SQLite or PostgreSQL, as Arrow tables."""

import re
import sqlite3
import time
from collections.abc import Generator, Iterable, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final, NamedTuple

from lockstitch.errors import StoreError, StoreReadOnly, StoreUnreachable
from lockstitch.lake.archives import unpack
from lockstitch.lake.tables import Table
from lockstitch.model import Archive, ColumnKind, Stitch, Thread, codec, columns, format_time
from lockstitch.model.record import column_kinds

# pyarrow has no types.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

ROWS: Final = 50_000
"""Rows that are read at once."""

_ARCHIVES_AT_ONCE: Final = 100
"""Archives that are unpacked at once."""

TAIL: Final = 100
"""Stitches that a sync remembers, so that the next one sees whether the log is the same."""

PATIENCE: Final = 5.0
"""Seconds to wait for open transactions, so that the watermark can reach the end of the log."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

_STAMP: Final = (
    *("updated_at", "status", "fence", "position", "first_position", "delivered", "worker_id", "wake_at", "title"),
    *("pending_children", "awaiting_person_since", "losses", "crashes"),
)


class Head(NamedTuple):
    """The part of a thread that a sync compares."""

    id: str
    project: str
    kind: str
    position: int
    first_position: int
    stamp: str


class Identity(NamedTuple):
    """The store of a record. A copy of its database has the same values."""

    store: str
    """The time at which the store was created."""
    migrated_at: str
    schema_version: int


class Source:
    """A snapshot of the record. Its SQL is the same on both databases, except for conversions and lists."""

    def __init__(self, connection: Any, target: str, complete: int) -> None:
        self._connection = connection
        self._target = target
        self._postgres = not isinstance(connection, sqlite3.Connection)
        self._schema = "lockstitch." if self._postgres else "main."
        self._mark = "%s" if self._postgres else "?"
        self.complete = complete
        """Every stitch up to this `log_id` is in the snapshot. Above it, transactions may still be open."""

    def identity(self) -> Identity:
        """Return what identifies the store."""
        applied = self._column("applied_at", ColumnKind.TIME)
        query = f"SELECT min({applied}), max({applied}), max(version) FROM {self._schema}schema_versions"
        ((created, migrated, version),) = self._rows(query)
        return Identity(_time_text(created), _time_text(migrated), int(version))

    def end(self) -> int:
        """Return the last `log_id` of the snapshot."""
        ((end,),) = self._rows(
            f"SELECT coalesce(max(log_id), 0) FROM {self._schema}{'stitches' if self._postgres else 'stitch_rows'}"
        )
        return int(end)

    def last_drawn(self) -> int | None:
        """Return the last `log_id` that was given to a stitch, which may have been deleted since. None if unknown."""
        query = "SELECT pg_sequence_last_value(pg_get_serial_sequence('lockstitch.stitches', 'log_id')::regclass)"
        if not self._postgres:
            query = "SELECT seq FROM main.sqlite_sequence WHERE name = 'stitch_rows'"
        return next((int(value) for (value,) in self._rows(query) if value is not None), None)

    def tail(self, mark: int, traces: Set[str]) -> dict[str, str]:
        """Return the last stitches up to a `log_id`: `log_id` and `identity_of`."""
        return self._identities(f"WHERE log_id <= {mark} ORDER BY log_id DESC LIMIT {TAIL}", traces)

    def identities(self, log_ids: Iterable[int], traces: Set[str]) -> dict[str, str]:
        """Return those of these stitches that the record has: `log_id` and `identity_of`."""
        return self._identities(f"WHERE log_id IN ({', '.join(map(str, log_ids))})", traces)

    def _identities(self, condition: str, traces: Set[str]) -> dict[str, str]:
        table = f"{self._schema}stitches" if self._postgres else "temp.stitches"
        id, thread_id = (self._column(name, ColumnKind.UUID) for name in ("id", "thread_id"))
        rows = self._rows(f"SELECT log_id, {id}, {thread_id} FROM {table} {condition}")
        return {str(log_id): identity_of(id, thread_id, traces) for log_id, id, thread_id in rows}

    def heads(self) -> list[Head]:
        """Return all threads, with the state in which they are."""
        kinds = column_kinds(Thread)
        stamped = ", ".join(self._column(name, kinds[name]) for name in _STAMP)
        id = self._column("id", ColumnKind.UUID)
        packed: dict[str, str] = {}
        # Archives in this lake have stitches that no sync has to write.
        for thread, *state in self._rows(
            f"SELECT {self._column('thread_id', ColumnKind.UUID)}, count(*), "
            f"max({self._column('created_at', ColumnKind.TIME)}) FROM {self._schema}archives "
            f"WHERE lake IS NULL OR lake <> {self._mark} GROUP BY thread_id",
            [self._target],
        ):
            packed[thread] = f"/{state}"
        return [
            Head(thread, project, kind, position, first, "/".join(map(str, stamp)) + packed.get(thread, ""))
            for thread, project, kind, position, first, *stamp in self._rows(
                f"SELECT {id}, project, kind, position, first_position, {stamped} FROM {self._schema}threads"
            )
        ]

    def log(self, after: int) -> Generator[Any, None, None]:
        """Yield the stitches above a `log_id` in the order of the log, without those of archives."""
        yield from self._tables(Stitch, "WHERE log_id > {mark} ORDER BY log_id", [after])

    def of_threads(self, table: Table, ids: Sequence[str]) -> Generator[Any, None, None]:
        """Yield the rows of some threads."""
        column = "id" if table.kind is Thread else "thread_id"
        condition = (
            f"WHERE {column} = ANY({{mark}}::uuid[])"
            if self._postgres
            else (f"WHERE {column} IN (SELECT value FROM json_each({{mark}}))")
        )
        value = list(ids) if self._postgres else codec.dumps(list(ids)).decode()
        yield from self._tables(table.kind, condition, [value])
        if table.kind is Stitch:
            yield from self._archived(condition, value)

    def all(self, table: Table) -> Any:
        """Return all rows of a small table, ordered by key."""
        where = f"WHERE {table.where} " if table.where else ""
        parts = list(self._tables(table.kind, f"{where}ORDER BY {', '.join(table.kind.primary_key)}", []))
        return pa.concat_tables(parts) if parts else None

    def keys(self, table: Table) -> set[str]:
        """Return the values of the key of a table with one column as key."""
        (key,) = table.kind.primary_key
        return {row[0] for row in self._rows(f"SELECT {key} FROM {self._schema}{table.name}")}

    def of_keys(self, table: Table, keys: Sequence[str]) -> Generator[Any, None, None]:
        """Yield the rows with these keys."""
        (key,) = table.kind.primary_key
        condition = (
            f"WHERE {key} = ANY({{mark}})"
            if self._postgres
            else (f"WHERE {key} IN (SELECT value FROM json_each({{mark}}))")
        )
        value = list(keys) if self._postgres else codec.dumps(list(keys)).decode()
        yield from self._tables(table.kind, condition, [value])

    def _archived(self, condition: str, value: Any) -> Generator[Any, None, None]:
        """Yield the stitches of archives whose rows were deleted, also of those that a lake has."""
        names = [name for name, _ in columns(Archive) if name != "created_at"]
        kinds = column_kinds(Archive)
        text = condition.format(mark=self._mark)
        live = f"{self._schema}stitches" if self._postgres else "temp.stitches"
        archives: list[Archive] = []
        for row in self._rows(
            f"SELECT {', '.join(self._column(name, kinds[name]) for name in names)} FROM {self._schema}archives {text} "
            f"AND NOT EXISTS (SELECT 1 FROM {live} live "
            "WHERE live.thread_id = archives.thread_id AND live.position = archives.first_position)",
            [value],
        ):
            values: dict[str, Any] = dict(zip(names, row, strict=True))
            values["content"] = bytes(values["content"])
            archives.append(Archive(**values, created_at=_EPOCH))
        for start in range(0, len(archives), _ARCHIVES_AT_ONCE):
            stitches = unpack(archives[start : start + _ARCHIVES_AT_ONCE])
            if stitches:
                yield self._table(Stitch, [_row(stitch) for stitch in stitches], text_times=True)

    def _tables(self, kind: type[Any], condition: str, values: Sequence[Any]) -> Generator[Any, None, None]:
        """Yield the rows of a query over one table in batches."""
        table = "temp.stitches" if kind is Stitch and not self._postgres else f"{self._schema}{kind.table}"
        fields = ", ".join(self._column(name, column) for name, column in columns(kind))
        query = f"SELECT {fields} FROM {table} {condition.format(mark=self._mark)}"
        with self._cursor(query, values) as cursor:
            while rows := cursor.fetchmany(ROWS):
                yield self._table(kind, rows, text_times=not self._postgres)

    def _table(self, kind: type[Any], rows: Iterable[Sequence[Any]], *, text_times: bool) -> Any:
        """Return rows as an Arrow table."""
        arrays: dict[str, Any] = {}
        types = Table(kind).schema
        for (name, column), values in zip(columns(kind), zip(*rows, strict=True), strict=True):
            if column is ColumnKind.TIME:
                array = pa.array(values, pa.string() if text_times else pa.int64())
            elif column is ColumnKind.BOOLEAN and not self._postgres:
                array = pa.array(values, pa.int64())
            else:
                array = pa.array(values, types.field(name).type)
                if column is ColumnKind.JSON:
                    array = _valid(array)
            arrays[name] = array.cast(types.field(name).type)
        return pa.table(arrays)

    def _column(self, name: str, kind: ColumnKind) -> str:
        """Return the expression of a column as a value that needs no conversion in Python."""
        if not self._postgres:
            return name
        if kind is ColumnKind.TIME:
            return f"(extract(epoch FROM {name}) * 1000000)::bigint"
        return f"{name}::text" if kind in (ColumnKind.UUID, ColumnKind.JSON) else name

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._cursor(query, values) as cursor:
            return cursor.fetchall()

    @contextmanager
    def _cursor(self, query: str, values: Sequence[Any]) -> Generator[Any, None, None]:
        if self._postgres:
            with self._connection.cursor(name="lockstitch_lake") as cursor:
                cursor.itersize = ROWS
                cursor.execute(query.encode(), values or None)
                yield cursor
            return
        cursor = self._connection.execute(query, values)
        try:
            yield cursor
        finally:
            cursor.close()


def _row(stitch: Stitch) -> tuple[Any, ...]:
    """Return an archived stitch as the values of its row."""
    return tuple(
        codec.dumps(value).decode() if kind is ColumnKind.JSON and value is not None else value
        for (_, kind), value in zip(columns(Stitch), stitch.as_json().values(), strict=True)
    )


_LONE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def _valid(array: Any) -> Any:
    """Return JSON with U+FFFD for NUL and lone surrogates, as the lenses show it. Other engines reject these."""
    # Most texts have no escape at all, and this search is the fast one.
    if not pc.any(pc.match_substring(array, "\\u")).as_py():
        return array
    matches = pc.match_substring_regex(array, r"\\u(?:0000|[dD])")
    texts = zip(array.to_pylist(), matches.to_pylist(), strict=True)
    return pa.array([_replaced(text) if is_match else text for text, is_match in texts], pa.string())


def _replaced(text: str) -> str:
    # An escaped backslash before these letters is no escape.
    parts = text.split("\\\\")
    return "\\\\".join(_LONE.sub("\\\\ufffd", part.replace("\\u0000", "\\ufffd")) for part in parts)


def _time_text(moment: str | int) -> str:
    """Return a time as text. PostgreSQL counts microseconds."""
    return (
        moment
        if isinstance(moment, str)
        else format_time(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=moment))
    )


def identity_of(id: str, thread_id: str, traces: Set[str]) -> str:
    """Return what a stitch keeps: its id, or the id of its thread if the thread is one of `traces`.

    An import can replace a stitch of a trace by one with another id at the same `log_id`.
    """
    return thread_id if thread_id in traces else id


@contextmanager
def snapshot(connection: Any, target: str) -> Generator[Source, None, None]:
    """Yield a snapshot of the record, to write it to a lake.

    `connection` is that of a lens: of sqlite3, or of psycopg. Raises `StoreError` if the database cannot be read.
    """
    if isinstance(connection, sqlite3.Connection):
        with _snapshot_of_sqlite(connection, target) as source:
            yield source
        return
    from psycopg import Error, OperationalError
    from psycopg.errors import ReadOnlySqlTransaction

    try:
        with _snapshot_of_postgres(connection, target) as source:
            yield source
    except ReadOnlySqlTransaction as exc:
        # Only the primary server knows which transactions are open.
        raise StoreReadOnly(
            "The store is a read-only replica. A sync needs the primary server. Change the URL."
        ) from exc
    except Error as exc:
        kind = StoreUnreachable if isinstance(exc, OperationalError) else StoreError
        raise kind(f"The store cannot be read: {_first_line(exc)}. Run the sync again. It continues.") from exc


@contextmanager
def _snapshot_of_sqlite(connection: sqlite3.Connection, target: str) -> Generator[Source, None, None]:
    try:
        connection.execute("BEGIN")
        source = Source(connection, target, 0)
        # There is one writer, so `log_id` rises in the order of commits.
        source.complete = source.end()
        yield source
    except sqlite3.Error as exc:
        raise StoreError(f"The store cannot be read: {_first_line(exc)}. Run the sync again. It continues.") from exc
    finally:
        with suppress(sqlite3.Error):
            connection.rollback()


@contextmanager
def _snapshot_of_postgres(connection: Any, target: str) -> Generator[Source, None, None]:
    from psycopg import Error, IsolationLevel

    # As `LogHorizon` of the backend: a writer has a transaction id before it draws a `log_id`. So when all
    # transactions have ended that are older than one that started after the end of the log was read, every stitch up
    # to that end is visible.
    connection.autocommit = True
    ((end,),) = connection.execute("SELECT coalesce(max(log_id), 0) FROM lockstitch.stitches").fetchall()
    ((younger,),) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
    connection.autocommit = False
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    deadline = time.monotonic() + PATIENCE
    while True:
        ((oldest,),) = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchall()
        if oldest >= younger or time.monotonic() > deadline:
            break
        connection.rollback()
        time.sleep(0.05)
    try:
        yield Source(connection, target, end if oldest >= younger else 0)
    finally:
        with suppress(Error):
            connection.rollback()


def _first_line(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0]
