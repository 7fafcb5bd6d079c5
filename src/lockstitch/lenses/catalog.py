"""Lenses: the record seen through other systems' tables, as SQL.

Each lens is a folder with one script per dialect, `postgres.sql` and `sqlite.sql`, of `CREATE VIEW name AS …;`
statements. On PostgreSQL they are run in a schema of the lens's name and name the core's tables as
`lockstitch.threads`; on SQLite they become temporary views of one connection and name them as `main.threads`. What
several lenses need stands in `folds/` and is run first: functions in the schema `lockstitch` on PostgreSQL, and on
SQLite, which has none, further temporary views whose names begin with `lens_`. Applications add parts of their own,
which the store hands in.
"""

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final

from lockstitch.errors import Refused

NAMES: Final = ("three_table", "reasoning", "langsmith", "agentic_threads", "agno")
"""The lenses there are."""


_VIEW: Final = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_STATEMENT: Final = re.compile(r"^(?=CREATE )", re.MULTILINE)
_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


@cache
def script(name: str, dialect: str) -> str:
    """The SQL of a lens, or of `folds`, in a dialect; nothing where a dialect needs nothing.

    `tables` is no dialect: the tables of a SQLite file that a lens is exported to.
    """
    file = resources.files("lockstitch.lenses").joinpath(name, f"{dialect}.sql")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def digest(name: str, dialect: str) -> str:
    """What tells whether a store's views are the ones of this code."""
    return sha256(f"{script('folds', dialect)}\0{script(name, dialect)}".encode()).hexdigest()


def composed(name: str, dialect: str, parts: Sequence[str]) -> str:
    """The SQL of a lens with what applications add to it.

    A view of theirs stands in the place of one of its name, which is still there as `lens_own_NAME`, to be built upon.
    It comes right behind that one, with all that stands before it in its part; so what is made of that view later finds
    theirs. What replaces nothing comes last.
    """
    waiting = [_STATEMENT.split(part) for part in parts]
    made: list[str] = []
    for one in _STATEMENT.split(script(name, dialect)):
        views = _VIEW.findall(one)
        theirs = [_taken(statements, views[0]) for statements in waiting] if views else []
        if any(theirs):
            one = _VIEW.sub(r"CREATE VIEW lens_own_\1", one)
        made += [one, *("".join(statements) for statements in theirs)]
    return "\n".join((*made, *("".join(statements) for statements in waiting)))


def _taken(statements: list[str], view: str) -> list[str]:
    """The statements of a part up to the one that makes this view, which are then gone from it; none if none does."""
    place = next((place for place, one in enumerate(statements, start=1) if view in _VIEW.findall(one)), 0)
    taken, statements[:] = statements[:place], statements[place:]
    return taken


def written(dialect: str) -> list[str]:
    """The lenses that have a script in a dialect."""
    return [name for name in NAMES if script(name, dialect)]


def views(name: str, parts: Sequence[str] = ()) -> list[str]:
    """The tables that a lens shows; `parts` are what applications add to it."""
    return list(dict.fromkeys(_VIEW.findall("\n".join((script(name, "postgres"), *parts)))))


def tables(name: str, parts: Sequence[str] = ()) -> list[str]:
    """Those of them that the lens's document has, in its order; the others are there for these."""
    return list(dict.fromkeys(_TABLE.findall("\n".join((script(name, "tables"), *parts)))))


def check(name: str) -> str:
    """`name`, if there is such a lens."""
    if name not in NAMES:
        raise Refused(f"There is no lens {name!r}. There are {', '.join(NAMES)}.")
    return name
