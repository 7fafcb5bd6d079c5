"""Full-text search on SQLite: an index without text, brought up to date by those who search."""

import re

from lockstitch.backend import Hit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.records import codec, text_of

_WORD = re.compile(r"[^\W_]+")
_BATCH = 1000
LONGEST = 262_144
"""Characters of one message that are searched."""


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def catch_up(dialect: Dialect) -> Script[bool]:
    """Index the next inputs and answers, in the order of the log; whether more wait.

    log_id rises in the order of commits, because there is one writer, so nothing is passed over.
    """
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    rows = yield dialect.statement("search_next", {"mark": mark, "limit": _BATCH})
    for log_id, message in rows:
        yield dialect.statement("search_add", {"log_id": log_id, "text": searchable(message)})
    if rows:
        yield dialect.statement("search_move", {"mark": rows[-1][0]})
    return len(rows) == _BATCH


def forget(dialect: Dialect, ids: list[str], last: int = 2**62) -> Script[None]:
    """Take the words of what is about to be deleted out of the index, which needs the text to do so."""
    marks, named = dialect.among(ids)
    rows = yield dialect.statement("search_of_threads", {**named, "last": last}, ids=marks or "NULL")
    for log_id, message in rows:
        yield dialect.statement("search_remove", {"log_id": log_id, "text": searchable(message)})


def search(dialect: Dialect, project: str, text: str, limit: int) -> Script[list[Hit]]:
    wanted = words(text)
    if not wanted:
        return []
    query = " AND ".join(f'"{word}"' for word in wanted)
    rows = yield dialect.statement("search", {"project": project, "query": query, "limit": limit})
    return [Hit(dialect.decode_id(thread_id), position, -score) for thread_id, position, score in rows]


def searchable(message: str | None) -> str:
    return text_of(codec.loads(message))[:LONGEST] if message else ""
