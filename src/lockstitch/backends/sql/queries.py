"""Named queries from `.sql` files, statement scripts, schema versions.

It is a generator that yields statements and gets their rows sent back, so the verbs know nothing of drivers:

    rows = yield Statement("SELECT …", {"id": …})
"""

import re
from collections.abc import Generator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

from lockstitch.errors import SchemaMismatch

_NAME = re.compile(r"^-- (?:name|own): (\w+)$", re.MULTILINE)
_OWN = re.compile(r"^-- own: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def load(package: str) -> dict[str, str]:
    """The queries of a package's queries.sql by name, without their comments."""
    parts = _NAME.split(_text(package))
    return {
        name: _COMMENT.sub("", body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def load_dialect(package: str) -> dict[str, str]:
    """The shared queries with a dialect's in their place.

    A dialect overrides under `-- name:` and adds under `-- own:`; overriding what is not shared is a mistake.
    """
    shared, dialect = load("lockstitch.backends.sql"), load(package)
    unknown = dialect.keys() - shared.keys() - set(_OWN.findall(_text(package)))
    if unknown:
        raise RuntimeError(f"these queries of {package} override nothing: {', '.join(sorted(unknown))}")
    return {**shared, **dialect}


def _text(package: str) -> str:
    return files(package).joinpath("queries.sql").read_text()


def migrations(package: str) -> list[tuple[int, str, str]]:
    """The numbered migrations of a package in order: number, name, text."""
    found = [entry for entry in files(package).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name[:4]), entry.name.removesuffix(".sql"), entry.read_text()) for entry in found)


def refuse_newer(found: int, known: int, store: str) -> None:
    """A store that newer code has changed is not touched by older code."""
    if found > known:
        raise SchemaMismatch(
            f"{store} has schema version {found}, this Lockstitch knows {known}. "
            "Upgrade Lockstitch here, or use the version that wrote the store."
        )


def refuse_newer_extension(found: int, known: int, extension: str, store: str) -> None:
    """The same for the tables of an application."""
    if found > known:
        raise SchemaMismatch(
            f"{store} has version {found} of the tables of {extension}, this code knows {known}. "
            f"Upgrade {extension} here, or use the version that wrote them."
        )


T = TypeVar("T")

Row = Sequence[Any]
Rows = Sequence[Row]


class Statement(NamedTuple):
    """SQL as the driver takes it, and its parameters by name, or by number in their order."""

    sql: str
    parameters: dict[str, Any] | Sequence[Any]


Script = Generator[Statement, Rows, T]
