"""Named queries from `.sql` files, statement scripts, and checks of schema versions.

A script is a generator that yields statements and receives their rows. It does not depend on a database driver:

    rows = yield Statement("SELECT …", {"id": …})
"""

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from lockstitch.errors import SchemaMismatch

_NAME = re.compile(r"^-- (?:name|own): (\w+)$", re.MULTILINE)
_DIALECT_ONLY = re.compile(r"^-- own: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def load(package: str) -> dict[str, str]:
    """Return the queries of a package's `queries.sql` by name, without comments."""
    parts = _NAME.split(_text(package))
    return {
        name: _COMMENT.sub("", body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@cache
def load_dialect(package: str) -> Mapping[str, str]:
    """Return the shared queries, with those of a dialect in their place.

    A dialect overrides queries under `-- name:` and adds queries under `-- own:`. It must not override a query that is
    not shared.
    """
    shared, dialect = load("lockstitch.backends.sql"), load(package)
    unknown = dialect.keys() - shared.keys() - set(_DIALECT_ONLY.findall(_text(package)))
    if unknown:
        raise RuntimeError(f"Queries of {package} that override no shared query: {', '.join(sorted(unknown))}")
    return MappingProxyType({**shared, **dialect})


def _text(package: str) -> str:
    return files(package).joinpath("queries.sql").read_text()


@cache
def migrations(package: str) -> Sequence[tuple[int, str, str]]:
    """Return the numbered migrations of a package in order, as number, name and text."""
    traversables = [entry for entry in files(package).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    return tuple(
        sorted((int(entry.name[:4]), entry.name.removesuffix(".sql"), entry.read_text()) for entry in traversables)
    )


def supported_version(row: "Row", known: int, store: str) -> int:
    """Return the schema version of a row of the query `version`. 0 means that no migration was applied.

    The version can be newer than this code if all newer migrations only add to the schema. The name of a migration
    that older code cannot work with ends in `_contract`.

    Args:
        row: The row.
        known: Newest migration of this code.
        store: Name of the store in errors.

    Raises:
        SchemaMismatch: If a contract is newer than this code. Also if the store has other tables than the migrations
            create: they were squashed before the first release.
    """
    version, contract, has_layout = row
    if version and not has_layout:
        raise SchemaMismatch(
            f"{store} was created by an unreleased version of Lockstitch. "
            "Export it with that version, or start a new store."
        )
    if (contract or 0) > known:
        raise SchemaMismatch(
            f"{store} has schema version {version}, but this version of Lockstitch supports {known}. "
            "Upgrade Lockstitch here, or use the version that wrote the store."
        )
    return version or 0


def supported_extension(row: "Row", known: int, extension: str, store: str) -> int:
    """Return the version of the tables of an application. It can be newer than this code, as for `supported_version`.

    Raises:
        SchemaMismatch: If a contract is newer than this code.
    """
    version, contract = row
    if (contract or 0) > known:
        raise SchemaMismatch(
            f"{store} has version {version} of the tables of {extension}, but this code supports {known}. "
            f"Upgrade {extension} here, or use the version that wrote them."
        )
    return version or 0


T = TypeVar("T")

Row = Sequence[Any]
Rows = Sequence[Row]


class Statement(NamedTuple):
    """SQL for the database driver, with parameters by name or in order."""

    sql: str
    parameters: dict[str, Any] | Sequence[Any]


Script = Generator[Statement, Rows, T]
