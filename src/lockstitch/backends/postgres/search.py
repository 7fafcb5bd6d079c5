"""Full-text search on PostgreSQL: its own indexes, kept by every insert of an input or an answer."""

import re

from lockstitch.backend import Hit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script

_WORD = re.compile(r"[^\W_]")


def search(dialect: Dialect, project: str, text: str, limit: int) -> Script[list[Hit]]:
    """PostgreSQL cuts what is searched for into words just as it cut what is there."""
    # A NUL cannot be sent, and stands in no text.
    text = text.replace("\x00", " ") if _WORD.search(text) else ""
    rows = yield dialect.statement("search", {"project": project, "text": text, "limit": limit})
    return [Hit(thread_id, position, score) for thread_id, position, score in rows]
