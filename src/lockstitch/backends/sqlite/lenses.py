"""Lenses on SQLite: temporary views of one connection, which nobody else sees and nothing remains of."""

import re
import sqlite3
from collections.abc import Sequence

from lockstitch import lenses
from lockstitch.backends.sqlite.schema import extensions, statements
from lockstitch.extension import known

_VIEW = re.compile(r"\bCREATE VIEW\b")


def look_through(connection: sqlite3.Connection, name: str) -> None:
    """Make the views of a lens; it must come before whatever forbids the connection to write.

    A view named `threads` hides the table of that name, which is still there as main.threads.
    """
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in views(name, extensions(connection)):
        connection.execute(statement)


def views(name: str, added: Sequence[str]) -> list[str]:
    """Return the statements that make the views of a lens. `added` names the extensions that the store has."""
    lenses.check(name)
    parts = [part for one in known(added) if (part := one.lens(name, "sqlite"))]
    scripts = (lenses.script("folds", "sqlite"), lenses.composed(name, "sqlite", parts))
    return [_VIEW.sub("CREATE TEMP VIEW", one, count=1) for script in scripts for one in statements(script)]
