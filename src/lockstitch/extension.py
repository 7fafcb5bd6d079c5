"""An extension: what an application adds to a store. Its tables, its queries, and its part of the lenses.

Everything is SQL in files of one package:

    sqlite/0001_name.sql, postgres/0001_name.sql     numbered migrations, forward only, the same numbers in both
    queries.sql                                      named queries, `-- name: what_for`
    sqlite/queries.sql, postgres/queries.sql         those that differ
    lenses/LENS/sqlite.sql, …/postgres.sql           views that join a lens, or take the place of its view of that name
    lenses/LENS/tables.sql                           the tables that those views are exported to

`kinds` are the records that its tables hold, those that others refer to first: they are found, put and deleted as any
record is, and copied with a store. A store remembers which extensions it has; who reads it knows them by their names,
registered here or as an entry point of the group `lockstitch.extensions`.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.model import Record

GROUP: Final = "lockstitch.extensions"
"""The group of entry points by which extensions of others are found."""

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)

Purging = Callable[[Any, datetime | None, str | None], Awaitable[None]]
"""Called when a store is purged, with the store, the time before which things are old, and the user who goes."""


@dataclass(frozen=True)
class Extension:
    """The tables of one application. Those of two applications must not have the same names."""

    name: str
    package: str
    kinds: Sequence[type[Record]] = field(default=(), compare=False)
    on_purge: Purging | None = field(default=None, compare=False)

    def migrations(self, dialect: str) -> list[tuple[int, str, str]]:
        """The numbered migrations in order: number, name, text."""
        return _migrations(self.package, dialect)

    def queries(self, dialect: str) -> dict[str, str]:
        """The named queries, a dialect's own in the place of the shared ones."""
        return {**_queries(self.package, ""), **_queries(self.package, dialect)}

    def lens(self, name: str, dialect: str) -> str:
        """What it adds to a lens, if anything."""
        return _read(_file(self.package, "lenses", name, f"{dialect}.sql"))


_registered: dict[str, Extension] = {}


def register(extension: Extension) -> None:
    """Have this process know an extension by its name."""
    known = _registered.setdefault(extension.name, extension)
    if known != extension:
        raise Refused(f"Two extensions are named {extension.name}: those of {known.package} and {extension.package}.")


def known(names: Sequence[str]) -> list[Extension]:
    """Those of the extensions of these names whose code is there, in the order of their names."""
    for name in names:
        if name not in _registered:
            for found in entry_points(group=GROUP, name=name):
                register(found.load())
    return [_registered[name] for name in sorted(names) if name in _registered]


@cache
def _migrations(package: str, dialect: str) -> list[tuple[int, str, str]]:
    found = [entry for entry in _file(package, dialect).iterdir() if entry.name[:4].isdigit()]
    return sorted((int(entry.name[:4]), entry.name.removesuffix(".sql"), _read(entry)) for entry in found)


@cache
def _queries(package: str, dialect: str) -> dict[str, str]:
    parts = _NAME.split(_read(_file(package, dialect, "queries.sql")))
    return {
        name: _COMMENT.sub("", body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _file(package: str, *parts: str) -> Traversable:
    """One part after the other, since a package without an __init__ finds no more at once."""
    found = files(package)
    for part in filter(None, parts):
        found = found.joinpath(part)
    return found


def _read(file: Traversable) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
