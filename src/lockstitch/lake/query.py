"""`LakeReader`: SQL over a lake with DuckDB, in process: over its tables or through a lens."""

import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import duckdb

from lockstitch.backend import ANSWER, QueryResult
from lockstitch.errors import Refused
from lockstitch.lake.tables import RUNS, STITCHES, TABLES, Table
from lockstitch.lake.target import Lake, unreadable
from lockstitch.lenses import catalog
from lockstitch.lenses.duckdb import script
from lockstitch.lenses.views import View
from lockstitch.model import ColumnKind, codec, columns
from lockstitch.model.sql_script import statements

_SQL_TYPES: Final = {
    ColumnKind.UUID: "VARCHAR",
    ColumnKind.TEXT: "VARCHAR",
    ColumnKind.JSON: "VARCHAR",
    ColumnKind.INTEGER: "BIGINT",
    ColumnKind.NUMBER: "DOUBLE",
    ColumnKind.BOOLEAN: "BOOLEAN",
    ColumnKind.TIME: "TIMESTAMP",
    ColumnKind.BYTES: "BLOB",
}

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "parquet_metadata_cache": "true",
}
"""A lens reads a table several times, and the metadata of its files only once."""

_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)

_WHOLE_ROWS: Final = {"STAR", "NATURAL", "PIVOT", "SHOW_REF", "POSITIONAL_REFERENCE"}
"""Kinds of nodes of a statement that read columns without their names."""

_STATEMENT_FUNCTIONS: Final = ("query", "query_table")
"""Functions that read a statement or a table from a text."""

_DERIVED: Final = {
    RUNS.name: ", coalesce(foreign_id, id) AS shown_id",
    STITCHES.name: ", CASE type WHEN 'llm_call' THEN coalesce(call_id, id) END AS llm_call_id",
}
"""Columns that the databases generate."""


class LakeReader:
    """A connection to a lake, in the state of its last complete sync."""

    def __init__(self, target: str, lens: str | None = None) -> None:
        """Open a lake.

        Args:
            target: Folder, or URL of an object store.
            lens: Name of a lens. None: the tables of the lake.

        Raises:
            Refused: If the target is not a lake, or there is no such lens.
            StoreError: If a file of the lake is missing or damaged.
        """
        if lens is not None:
            catalog.check(lens)
        lake = Lake(target)
        last = lake.last_sync()
        if last is None:
            raise Refused(
                f"{target} is not a lake, or its first sync is not complete. Run: lockstitch lake sync {target}"
            )
        self._connection = duckdb.connect(config=_CONFIG)
        # A lens shows times in UTC, as the databases do.
        self._connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA lockstitch")
        self._target = lake.target
        for table in TABLES:
            try:
                self._create(lake, table, last["versions"].get(table.name))
            except duckdb.Error as exc:
                raise unreadable(lake.target, exc) from exc
        self._connection.execute(
            "CREATE VIEW lockstitch.schema_versions AS SELECT * FROM (VALUES "
            f"(1, {_text(last['store'])}::TIMESTAMP), "
            f"({last['schema_version']}, {_text(last['migrated_at'])}::TIMESTAMP)) AS v (version, applied_at); "
            "CREATE VIEW lockstitch.archives AS SELECT NULL::VARCHAR AS thread_id, 0 AS first_position, "
            "0 AS last_position, NULL::BLOB AS content WHERE false"
        )
        self._views: list[View] = []
        self._kinds: dict[str, dict[str, str]] = {}
        self._current: dict[str, str] = {}
        if lens is None:
            self._connection.execute("SET search_path = 'lockstitch'")
        else:
            self._run(script("shared"))
            self._connection.execute(f"CREATE SCHEMA {lens}; SET search_path = '{lens}'")
            self._run(script(lens))
            self._views += [view for text in statements(script(lens)) if (view := View.parse(text))]
        self._columns = {name for view in self._views for name in view.columns}
        if not lake.remote:
            self._connection.execute(f"SET allowed_directories = [{_text(lake.target)}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def query(self, sql: str, *, limit: int = 1000, seconds: float = 10.0) -> QueryResult:
        """Run one reading statement.

        Args:
            sql: The statement.
            limit: Maximum number of rows.
            seconds: Time after which the statement is stopped.

        Returns:
            The names of the columns, the rows, and True in `truncated` if rows were left out.

        Raises:
            Refused: If the statement is not valid, writes, or takes too long.
            StoreError: If a file of the lake is missing or damaged.
        """
        try:
            parsed = self._connection.extract_statements(sql)
        except duckdb.Error as exc:
            raise Refused(_explained(exc)) from exc
        if len(parsed) != 1 or parsed[0].type not in _READING:
            raise Refused("Only one SELECT is possible.")
        self._reduce_views(sql)
        timer = threading.Timer(seconds, self._connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            cursor = self._connection.execute(parsed[0])
            names = [column[0] for column in cursor.description or ()]
            rows: list[tuple[Any, ...]] = []
            size = 0
            while len(rows) <= limit and size <= ANSWER and (row := cursor.fetchone()) is not None:
                rows.append(tuple(map(_plain, row)))
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
        except duckdb.InterruptException as exc:
            raise Refused(f"The statement took longer than {seconds:g} s. Raise the limit with --seconds.") from exc
        except duckdb.IOException as exc:
            raise unreadable(self._target, exc) from exc
        except duckdb.Error as exc:
            raise Refused(_explained(exc)) from exc
        finally:
            timer.cancel()
        return QueryResult(names, rows[:limit], len(rows) > limit or size > ANSWER)

    def tables(self) -> dict[str, dict[str, str]]:
        """Return the columns of every table or view, with their types."""
        rows = self._connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name NOT LIKE 'lens!_%' ESCAPE '!' "
            "ORDER BY table_name, ordinal_position"
        ).fetchall()
        result: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            result.setdefault(table, {})[column] = kind
        return result

    def _reduce_views(self, sql: str) -> None:
        """Create the views of the lens for this statement: without the columns and joins that it does not read."""
        named = self._named(sql) if self._views else None
        readers = [] if named is None else [named]
        # A view reads only views that were created before it.
        for view in reversed(self._views):
            text = view.text
            if named is not None:
                names = set[str]().union(*(reader for reader in readers if view.name in reader))
                if not names:
                    continue
                text, read = view.reduced(names, self._kinds_of(view))
                readers.append(read | self._columns if view.has_star else read)
            if self._current.get(view.name, view.text) != text:
                self._connection.execute(text.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
                self._current[view.name] = text

    def _kinds_of(self, view: View) -> dict[str, str]:
        """Return the types of the columns of a view."""
        if view.name not in self._kinds:
            rows = self._connection.execute(f"DESCRIBE {view.name}").fetchall()
            self._kinds[view.name] = {name: kind for name, kind, *_ in rows}
        return self._kinds[view.name]

    def _named(self, sql: str) -> set[str] | None:
        """Return the names in a statement, in lower case. None if it may read columns that it does not name."""
        row = self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        nodes: list[Any] = [codec.loads(row[0])] if row else []
        names: set[str] = set()
        tables: set[str] = set()
        single: set[str] = set()
        while nodes:
            node = nodes.pop()
            if isinstance(node, str):
                names.add(node.lower())
            elif isinstance(node, list):
                nodes += cast("list[Any]", node)
            elif isinstance(node, dict):
                fields = cast("dict[str, Any]", node)
                kinds = {fields.get(key) for key in ("class", "ref_type", "type")}
                if fields.get("error") or kinds & _WHOLE_ROWS:
                    return None
                # New names for the columns of a table, as in `llm_calls AS calls(id, run)`, hide their names.
                if fields.get("type") == "BASE_TABLE" and fields.get("column_name_alias"):
                    return None
                if fields.get("function_name") in _STATEMENT_FUNCTIONS:
                    return None
                if "class" not in fields:
                    tables.update(str(fields.get(key, "")).lower() for key in ("table_name", "alias"))
                if len(path := fields.get("column_names") or ()) == 1:
                    single.add(path[0].lower())
                nodes += fields.values()
        # The name of a table is a row with all its columns.
        return None if single & (tables - {""} - self._columns) else names

    def _run(self, text: str) -> None:
        for statement in statements(text):
            self._connection.execute(statement)

    def _create(self, lake: Lake, table: Table, version: int | None) -> None:
        """Create the view of one table. A column that the lake does not have yet is NULL."""
        delta = None if version is None else lake.open(table.name, version)
        stored: set[str] = set() if delta is None else {field.name for field in delta.schema().fields}
        source = self._source(lake, table, delta)
        kinds = dict(columns(table.kind))
        fields = [
            f'CAST("{name}" AS {_SQL_TYPES[kinds[name]]}) AS "{name}"'
            if name in kinds and kinds[name] is ColumnKind.TIME
            else f'"{name}"'
            for name in table.schema.names
        ]
        fields = [
            field if name in stored and source else f'NULL::{_SQL_TYPES[kinds.get(name, ColumnKind.TEXT)]} AS "{name}"'
            for name, field in zip(table.schema.names, fields, strict=True)
        ]
        rows = f"SELECT {', '.join(fields)} FROM {source}" if source else f"SELECT {', '.join(fields)} WHERE false"
        self._connection.execute(
            f"CREATE VIEW lockstitch.{table.name} AS SELECT *{_DERIVED.get(table.name, '')} FROM ({rows})"
        )

    def _source(self, lake: Lake, table: Table, delta: Any) -> str:
        """Return the expression that reads the files of a table. Empty if there are none."""
        if delta is None or not (uris := delta.file_uris()):
            return ""
        if lake.remote:
            # DuckDB would load an extension for object stores. Delta Lake has its own client.
            self._connection.register(f"lake_{table.name}", delta.to_pyarrow_dataset())
            return f"lake_{table.name}"
        # The addresses have the folder of the table with `%20` for a space.
        root = urlsplit(str(delta.table_uri)).path
        listed = ", ".join(_text(f"{lake.uri(table.name)}/{uri.removeprefix(root)}") for uri in uris)
        types = ", hive_types = {'project': VARCHAR, 'day': DATE}" if table.partitions else ""
        return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {bool(table.partitions)}{types})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _plain(value: Any) -> Any:
    """Return a value as the databases return it: times have the time zone UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _explained(exc: Exception) -> str:
    """Return the first lines of an error of DuckDB, without its place in the code."""
    return str(exc).partition("\n\nLINE")[0].strip()
