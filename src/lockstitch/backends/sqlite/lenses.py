"""Lenses on SQLite: temporary views of one connection, which nobody else sees and nothing remains of."""

import re
import sqlite3

from lockstitch import lenses
from lockstitch.backends.sqlite.schema import statements

_VIEW = re.compile(r"\bCREATE VIEW\b")


def look_through(connection: sqlite3.Connection, name: str) -> None:
    """Make the views of a lens; it must come before whatever forbids the connection to write.

    A view named `threads` hides the table of that name, which is still there as main.threads.
    """
    lenses.check(name)
    connection.execute("PRAGMA temp_store = MEMORY")
    for part in ("folds", name):
        for statement in statements(lenses.script(part, "sqlite")):
            connection.execute(_VIEW.sub("CREATE TEMP VIEW", statement, count=1))
