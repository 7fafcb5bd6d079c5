"""`Lake`: the Delta Lake tables of one folder or bucket."""

import math
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from lockstitch.errors import Conflict, Refused, StoreError
from lockstitch.lake.tables import SYNCS, SYNCS_SCHEMA, TABLES, Table
from lockstitch.model import Json, codec

# pyarrow has no types.
pa: Any = import_module("pyarrow")

_PROPERTIES: Final = WriterProperties(compression="ZSTD", compression_level=3)
_APPLICATION: Final = "lockstitch"
"""The application of a Delta transaction. Its version is the `log_id` up to which the table has all stitches."""

_PACKED: Final = ("versions", "digests", "tail")
"""Columns of `syncs` with JSON."""

_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Schemes of URLs of object stores that Delta Lake can write."""

_UNUSABLE: Final = frozenset("%[]|^\\*?")
"""Characters that Delta Lake or DuckDB do not read as themselves in the path of a folder."""


_WRITER: Final = "lockstitch-writer"
"""The application of a Delta transaction that each commit has. Delta Lake rejects a commit if another one with the same
application was written since the table was opened."""


class Lake:
    """The tables below one target: a folder, or a URL of an object store such as `s3://bucket/folder`.

    An instance opens the latest version of each table once, and sees only its own commits after it. A commit raises
    `Conflict` if another process has written to the table since, except those of `compact`.
    """

    def __init__(self, target: str) -> None:
        self._tables: dict[str, Any] = {}
        self.remote = "://" in target
        if self.remote:
            scheme, _, place = target.partition("://")
            if scheme not in _SCHEMES or not place.strip("/"):
                raise Refused(f"{target} is not valid. A lake is a folder, or a URL such as s3://bucket/folder.")
            self.target = target.rstrip("/")
            return
        path = Path(target).expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise Refused(f"{target} is a file. A lake is a folder, or a URL such as s3://bucket/folder.")
        self.target = str(path)
        if unusable := _UNUSABLE.intersection(self.target):
            raise Refused(
                f"{self.target} cannot be used as a lake, because its path has {' '.join(sorted(unusable))}. Choose "
                "another folder."
            )

    def uri(self, name: str) -> str:
        return f"{self.target}/{name}"

    def open(self, name: str, version: int | None = None) -> Any:
        """Return a table at a version, or as this instance knows it. None if the table does not exist."""
        if version is None and name in self._tables:
            return self._tables[name]
        with translated(self.target):
            try:
                table = DeltaTable(self.uri(name), version=version)
            except TableNotFoundError:
                table = None
        if version is None:
            self._tables[name] = table
        return table

    def open_all(self) -> None:
        """Open all tables. From now on, commits of other processes are conflicts."""
        for name in sorted(_names()):
            self.open(name)

    def select(self, name: str, condition: Any, columns: Sequence[str]) -> Any:
        """Return the rows of a table that meet a condition of pyarrow, with those of the columns that the table has.

        None if the table does not exist.
        """
        table = self.open(name)
        if table is None:
            return None
        with translated(self.target):
            dataset = table.to_pyarrow_dataset()
            names = [name for name in columns if name in dataset.schema.names]
            return dataset.to_table(columns=names, filter=condition)

    def last_sync(self) -> Json | None:
        """Return the last complete sync, or None. Older versions did not write `tail`."""
        table = self.open(SYNCS)
        if table is None:
            return None
        with translated(self.target):
            rows = table.to_pyarrow_table().to_pylist()
        # The sync that created the table may have been killed.
        if not rows:
            return None
        (row,) = rows
        return {**row, **{name: codec.loads(row[name]) for name in _PACKED if row.get(name)}}

    def seal(self, row: Json) -> None:
        """Record a complete sync, with the latest version of every table."""
        packed = {name: codec.dumps(row[name]).decode() for name in _PACKED if row.get(name) is not None}
        self._write(SYNCS, pa.Table.from_pylist([{**row, **packed}], schema=SYNCS_SCHEMA), [], "overwrite")

    def prepare(self) -> None:
        """Create the folder, or raise `Refused` if it has other content."""
        if self.remote:
            return
        try:
            Path(self.target).mkdir(parents=True, exist_ok=True)
            known = {entry.name for entry in os.scandir(self.target)}
        except OSError as exc:
            raise Refused(f"{self.target} cannot be used as a lake: {exc.strerror}.") from exc
        if known and self.open(SYNCS) is None and not known <= _names():
            raise Refused(f"{self.target} has other files. Choose an empty folder for a lake.")

    def watermark(self, name: str) -> int:
        """Return the `log_id` up to which the table has all stitches."""
        delta = self.open(name)
        return 0 if delta is None else delta.transaction_version(_APPLICATION) or 0

    def append(self, table: Table, rows: Any, *, replacing: str | None = None, watermark: int | None = None) -> None:
        """Write rows in one commit. `replacing` is a condition on rows that they replace, and that they meet."""
        self._write(
            table.name,
            rows.select(table.schema.names).cast(table.schema),
            table.partitions,
            "overwrite" if replacing else "append",
            replacing,
            watermark,
        )

    def overwrite(self, table: Table, rows: Any) -> None:
        """Replace all rows of a table."""
        self._write(table.name, rows.select(table.schema.names).cast(table.schema), table.partitions, "overwrite")

    def delete(self, table: Table, condition: str) -> None:
        """Delete the rows that meet a condition."""
        delta = self.open(table.name)
        if delta is not None:
            with translated(self.target):
                delta.delete(condition, writer_properties=_PROPERTIES, commit_properties=_next(delta))

    def compact(self, keep: float) -> tuple[int, int]:
        """Join small files, and delete files that were replaced more than `keep` seconds ago.

        Return the number of joined and of deleted files. Raises `Refused` if the target has no complete sync.

        Not safe while another process writes to the lake: Delta Lake does not detect conflicts with commits that are
        made while it joins files.
        """
        last = self.last_sync()
        if last is None:
            raise Refused(f"{self.target} is not a lake, or its first sync is not complete.")
        opened = {table.name: delta for table in TABLES if (delta := self.open(table.name))}
        if {name: table.version() for name, table in opened.items()} != last["versions"]:
            raise Refused(f"The last sync of {self.target} is not complete. Run `lockstitch lake sync` first.")
        joined = deleted = 0
        with translated(self.target):
            for table in opened.values():
                metrics = table.optimize.compact(writer_properties=_PROPERTIES)
                joined += int(metrics["numFilesRemoved"])
            # Readers start at the new files before the old ones are deleted.
            self.seal({**last, "versions": {name: table.version() for name, table in opened.items()}})
            for table in (*opened.values(), self.open(SYNCS)):
                deleted += len(_vacuum(table, keep))
        return joined, deleted

    def _write(
        self,
        name: str,
        rows: Any,
        partitions: Sequence[str],
        mode: Any,
        predicate: str | None = None,
        watermark: int | None = None,
    ) -> None:
        table = self.open(name)
        by = list(partitions) or None
        with translated(self.target):
            if table is None:
                # Delta Lake does not detect that two processes create a table, so the commit that does it has no rows.
                DeltaTable.create(
                    self.uri(name), rows.schema, mode="error", partition_by=by, commit_properties=_next(None)
                )
                table = self._tables[name] = DeltaTable(self.uri(name), version=0)
            write_deltalake(
                table,
                rows,
                partition_by=by,
                mode=mode,
                predicate=predicate,
                # A newer version of this code has more columns.
                schema_mode="merge",
                writer_properties=_PROPERTIES,
                commit_properties=_next(table, watermark),
            )


def _next(table: Any, watermark: int | None = None) -> Any:
    """Return the properties of the next commit to a table, or of its first one."""
    transactions = [Transaction(_WRITER, 0 if table is None else table.version() + 1)]
    if watermark is not None:
        transactions.append(Transaction(_APPLICATION, watermark))
    return CommitProperties(app_transactions=transactions)


def _vacuum(table: Any, keep: float) -> Sequence[str]:
    """Delete the files of a table that were replaced before, and those of syncs that were killed."""
    hours = math.ceil(keep / 3600)
    return table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


def _names() -> set[str]:
    return {SYNCS, *(table.name for table in TABLES)}


@contextmanager
def translated(target: str) -> Generator[None, None, None]:
    """Raise errors of Delta Lake and of the file system as those of Lockstitch."""
    try:
        yield
    except CommitFailedError as exc:
        raise _conflict(target) from exc
    except (DeltaError, OSError, ValueError) as exc:
        if isinstance(exc, DeltaError) and "already exists" in str(exc):
            raise _conflict(target) from exc
        raise unreadable(target, exc) from exc


def _conflict(target: str) -> Conflict:
    return Conflict(f"Another process writes to the lake {target}. Try again.")


def unreadable(target: str, exc: Exception) -> StoreError:
    """Return the error for a lake with a damaged or missing file."""
    # The next lines have places in the code of Delta Lake or DuckDB.
    reason = (str(exc).splitlines() or [type(exc).__name__])[0]
    return StoreError(f"The lake {target} cannot be read or written: {reason}")
