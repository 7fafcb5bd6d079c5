"""Full-text search on SQLite: an index without text, brought up to date by those who search."""

import re
from collections.abc import Sequence

from lockstitch.backend import Hit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.records import Json, Stitch, codec, text_of

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


def forget(dialect: Dialect, ids: list[str], first: int = 0, last: int = 2**62) -> Script[None]:
    """Take the words of what is about to be deleted out of the index, which needs the text to do so."""
    marks, named = dialect.among(ids)
    span = {"first": first, "last": last}
    rows = yield dialect.statement("search_of_threads", {**named, **span}, ids=marks or "NULL")
    for log_id, message in rows:
        yield dialect.statement("search_remove", {"log_id": log_id, "text": searchable(message)})


def replace(dialect: Dialect, stitches: Sequence[Stitch], put: Script[None]) -> Script[None]:
    """Write these stitches, and in the index new words for old ones where it is filled already."""
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    places = [{"thread_id": str(stitch.thread_id), "position": stitch.position} for stitch in stitches] if mark else []
    replaced: dict[int, Json] = {}
    for place in places:
        for log_id, message in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            # Of two with the same place the last one counts.
            if log_id not in replaced and message is not None:
                yield dialect.statement("search_remove", {"log_id": log_id, "text": searchable(message)})
            replaced[log_id] = place
    yield from put
    for place in replaced.values():
        for log_id, message in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            if message is not None:
                yield dialect.statement("search_add", {"log_id": log_id, "text": searchable(message)})


def search(dialect: Dialect, project: str, text: str, limit: int) -> Script[list[Hit]]:
    wanted = words(text)
    if not wanted:
        return []
    query = " AND ".join(f'"{word}"' for word in wanted)
    rows = yield dialect.statement("search", {"project": project, "query": query, "limit": limit})
    return [Hit(dialect.decode_id(thread_id), position, -score) for thread_id, position, score in rows]


def searchable(message: str | None) -> str:
    return text_of(codec.loads(message))[:LONGEST] if message else ""
