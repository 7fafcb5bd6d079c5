"""`statements`: the statements of a SQL script."""

import sqlite3


def statements(script: str) -> list[str]:
    """Return the statements of a script one by one. A statement ends at the end of a line."""
    result: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(current):
            result.append(current)
            current = ""
    return result
