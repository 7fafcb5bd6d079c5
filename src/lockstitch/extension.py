"""`Extension`: tables, queries and lens views that an application adds to a store.

Everything is SQL in files of one package:

    sqlite/0001_name.sql, postgres/0001_name.sql     numbered migrations, forward only, the same numbers in both
    queries.sql                                      named queries, `-- name: what_for`
    sqlite/queries.sql, postgres/queries.sql         queries that differ between the databases
    lenses/LENS/sqlite.sql, …/postgres.sql           views that a lens gets, or that replace its view of that name
    lenses/LENS/tables.sql                           tables for the export of these views

`kinds` are the record classes of its tables, referenced classes first. The store finds, puts and deletes them like its
own records and copies them with the store. A store remembers its extensions by name. A process finds an extension of
this name if it is registered here or is an entry point of the group `lockstitch.extensions`.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.model import Record

GROUP: Final = "lockstitch.extensions"
"""Group of entry points that declare extensions."""

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)

Purging = Callable[[Any, datetime | None, str | None], Awaitable[None]]
"""Function to call when a store is purged: with the store, the time before which records are old, and the deleted user.
"""


@dataclass(frozen=True)
class Extension:
    """Tables of one application. Two applications must not use the same table names."""

    name: str
    """Name, unique among the extensions of a store."""
    package: str
    """Package that contains the SQL files."""
    kinds: Sequence[type[Record]] = field(default=(), compare=False)
    """Record classes of its tables, referenced classes first."""
    on_purge: Purging | None = field(default=None, compare=False)
    """Function to call when the store is purged."""

    def migrations(self, dialect: str) -> list[tuple[int, str, str]]:
        """Return the numbered migrations in order, as number, name and text.

        Args:
            dialect: `sqlite` or `postgres`.
        """
        return _migrations(self.package, dialect)

    def queries(self, dialect: str) -> dict[str, str]:
        """Return the named queries. Queries of the dialect replace shared ones.

        Args:
            dialect: `sqlite` or `postgres`.
        """
        return {**_queries(self.package, ""), **_queries(self.package, dialect)}

    @property
    def needs_sql(self) -> bool:
        """True if it has queries, or tables with keys that the database generates. The file backend has neither."""
        generates = any(kind.generated for kind in self.kinds)
        return generates or any(self.queries(dialect) for dialect in ("sqlite", "postgres"))

    def lens(self, name: str, dialect: str) -> str:
        """Return the SQL that the extension adds to a lens, or an empty text.

        Args:
            name: Name of the lens.
            dialect: `sqlite` or `postgres`.
        """
        return _read(_file(self.package, "lenses", name, f"{dialect}.sql"))


_registered: dict[str, Extension] = {}


def register(extension: Extension) -> None:
    """Make an extension known to this process by its name. Raises `Refused` if another one has the name."""
    known = _registered.setdefault(extension.name, extension)
    if known != extension:
        raise Refused(f"Two extensions are named {extension.name}: those of {known.package} and {extension.package}.")


def known(names: Sequence[str]) -> list[Extension]:
    """Return the extensions with these names that this process can load, in the order of their names."""
    for name in names:
        if name not in _registered:
            # Imported here, because most processes know their extensions.
            from importlib.metadata import entry_points

            for entry_point in entry_points(group=GROUP, name=name):
                register(entry_point.load())
    return [_registered[name] for name in sorted(names) if name in _registered]


@cache
def _migrations(package: str, dialect: str) -> list[tuple[int, str, str]]:
    traversables = [entry for entry in _file(package, dialect).iterdir() if entry.name[:4].isdigit()]
    return sorted((int(entry.name[:4]), entry.name.removesuffix(".sql"), _read(entry)) for entry in traversables)


@cache
def _queries(package: str, dialect: str) -> dict[str, str]:
    parts = _NAME.split(_read(_file(package, dialect, "queries.sql")))
    return {
        name: _COMMENT.sub("", body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _file(package: str, *parts: str) -> Traversable:
    """Join one part at a time: a package without an `__init__` cannot join several parts at once."""
    traversable = files(package)
    for part in filter(None, parts):
        traversable = traversable.joinpath(part)
    return traversable


def _read(file: Traversable) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
