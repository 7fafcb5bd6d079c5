"""Lenses: SQL views that show the record as the tables of other systems.

Each lens is a folder with one script per dialect, `postgres.sql` and `sqlite.sql`, of `CREATE VIEW name AS …;`
statements. On PostgreSQL they run in a schema with the name of the lens and refer to core tables as
`lockstitch.threads`. On SQLite they become temporary views of one connection and refer to core tables as
`main.threads`. Shared parts of several lenses are in `shared/` and run first. On PostgreSQL these are functions in the
schema `lockstitch`. SQLite has no functions in SQL, so there they are temporary views with the prefix `lens_`.
Applications can add parts, which the store passes in.
"""

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final

from lockstitch.errors import Refused

NAMES: Final = ("three_table", "reasoning", "langsmith", "agentic_threads", "agno")
"""Names of all lenses."""


_VIEW: Final = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_STATEMENT: Final = re.compile(r"^(?=CREATE )", re.MULTILINE)
_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


@cache
def script(name: str, dialect: str) -> str:
    """Return the SQL of a lens, or of `shared`, in a dialect. Empty if the dialect needs none.

    The pseudo-dialect `tables` contains the tables of a SQLite file that a lens is exported to.
    """
    file = resources.files("lockstitch.lenses").joinpath(name, f"{dialect}.sql")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def digest(name: str, dialect: str) -> str:
    """Return the digest of a lens's scripts. A store with another digest has views of other code."""
    return sha256(f"{script('shared', dialect)}\0{script(name, dialect)}".encode()).hexdigest()


def composed(name: str, dialect: str, parts: Sequence[str]) -> str:
    """Return the SQL of a lens with the parts that applications add to it.

    A view of an application replaces the view of the same name, which stays available as `lens_own_NAME`. It comes
    directly after that view, with all statements before it in its part, so later views use the replacement. Views that
    replace nothing come last.
    """
    waiting = [_STATEMENT.split(part) for part in parts]
    results: list[str] = []
    for item in _STATEMENT.split(script(name, dialect)):
        views = _VIEW.findall(item)
        theirs = [_take_statements(statements, views[0]) for statements in waiting] if views else []
        if any(theirs):
            item = _VIEW.sub(r"CREATE VIEW lens_own_\1", item)
        results += [item, *("".join(statements) for statements in theirs)]
    return "\n".join((*results, *("".join(statements) for statements in waiting)))


def _take_statements(statements: list[str], view: str) -> list[str]:
    """Remove and return the statements of a part up to the one that creates this view. Empty if no statement does."""
    place = next((place for place, value in enumerate(statements, start=1) if view in _VIEW.findall(value)), 0)
    selected, statements[:] = statements[:place], statements[place:]
    return selected


def written(dialect: str) -> list[str]:
    """Return the lenses that have a script in a dialect."""
    return [name for name in NAMES if script(name, dialect)]


def views(name: str, parts: Sequence[str] = ()) -> list[str]:
    """Return the views of a lens. `parts` are those that applications add to it."""
    return list(dict.fromkeys(_VIEW.findall("\n".join((script(name, "postgres"), *parts)))))


def tables(name: str, parts: Sequence[str] = ()) -> list[str]:
    """Return the tables that the document of the lens defines, in its order. All other views are helpers."""
    return list(dict.fromkeys(_TABLE.findall("\n".join((script(name, "tables"), *parts)))))


def check(name: str) -> str:
    """Return `name` if it is a lens. Raises `Refused` if not."""
    if name not in NAMES:
        raise Refused(f"Lens {name!r} not found. Choose one of: {', '.join(NAMES)}.")
    return name
