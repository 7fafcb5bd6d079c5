"""Lenses on SQLite: temporary views of one connection, which nobody else sees and nothing remains of."""

import re
import sqlite3

from lockstitch import lenses
from lockstitch.backends.sqlite.schema import extensions, statements
from lockstitch.extension import known

_VIEW = re.compile(r"\bCREATE VIEW\b")


def look_through(connection: sqlite3.Connection, name: str) -> None:
    """Make the views of a lens; it must come before whatever forbids the connection to write.

    A view named `threads` hides the table of that name, which is still there as main.threads.
    """
    lenses.check(name)
    connection.execute("PRAGMA temp_store = MEMORY")
    parts = [part for one in known(extensions(connection)) if (part := one.lens(name, "sqlite"))]
    for script in (lenses.script("folds", "sqlite"), lenses.composed(name, "sqlite", parts)):
        for statement in statements(script):
            connection.execute(_VIEW.sub("CREATE TEMP VIEW", statement, count=1))
