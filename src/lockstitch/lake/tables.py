"""`TABLES`: the tables of a lake. Their columns are the fields of the records."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from lockstitch.model import SIDE_RECORDS, Blob, ColumnKind, Delivery, Record, Run, Stitch, Thread, columns

# pyarrow has no types.
pa: Any = import_module("pyarrow")

_TYPES: Final[dict[ColumnKind, Callable[[], Any]]] = {
    ColumnKind.UUID: pa.string,
    ColumnKind.TEXT: pa.string,
    ColumnKind.JSON: pa.string,
    ColumnKind.INTEGER: pa.int64,
    ColumnKind.NUMBER: pa.float64,
    ColumnKind.BOOLEAN: pa.bool_,
    ColumnKind.TIME: lambda: pa.timestamp("us", "UTC"),
    ColumnKind.BYTES: pa.binary,
}

PARTITIONS: Final = ("project", "day")


@dataclass(frozen=True)
class Table:
    """One table of a lake."""

    kind: type[Record]
    day: str | None = None
    """The field with the time of a row. A table that has one is partitioned by project and day."""
    added: tuple[str, ...] = ()
    """Text columns besides the fields of the record."""
    where: str = ""
    """Condition on the rows of the record. A table without partitions is small, and a sync writes all of its rows."""

    @property
    def name(self) -> str:
        return self.kind.table

    @property
    def partitions(self) -> list[str]:
        return list(PARTITIONS) if self.day else []

    @property
    def schema(self) -> Any:
        """The Arrow schema, with the partitions at the end."""
        fields = [(name, _TYPES[kind]()) for name, kind in columns(self.kind)]
        names = {name for name, _ in fields}
        fields += [(name, pa.string()) for name in self.added]
        if self.day:
            fields += [
                (name, kind) for name, kind in (("project", pa.string()), ("day", pa.date32())) if name not in names
            ]
        return pa.schema(fields)


THREADS: Final = Table(Thread, "created_at", ("stamp",))
"""`stamp` tells in which state a thread was written."""
RUNS: Final = Table(Run, "started_at")
STITCHES: Final = Table(Stitch, "at")
BLOBS: Final = Table(Blob)
_SMALL: Final = {
    *("agents", "agent_versions", "agent_links", "files", "memories", "knowledge", "evals", "feedback"),
    "daily_metrics",
}
SMALL: Final = (
    Table(Delivery, where="position IS NULL"),
    *(Table(kind) for kind in SIDE_RECORDS if kind.table in _SMALL),
)
"""Tables with few rows. A sync writes all of them again if one has changed."""

TABLES: Final = (THREADS, RUNS, STITCHES, BLOBS, *SMALL)

SYNCS: Final = "syncs"
"""A table with one row: the last complete sync, and the version of every table then. Readers start here."""
SYNCS_SCHEMA: Final = pa.schema(
    [
        ("store", pa.string()),
        ("log_id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("migrated_at", pa.string()),
        ("schema_version", pa.int64()),
        ("versions", pa.string()),
        ("digests", pa.string()),
        ("tail", pa.string()),
    ]
)
