"""Read-only SQL with lenses as temporary views, and full-text search."""

import re
import sqlite3
import time
from collections.abc import Sequence

from lockstitch.backend import RANKED, QueryResult, SearchHit
from lockstitch.backends.sql import operations
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite import packing
from lockstitch.backends.sqlite.query_process import add_functions, authorize
from lockstitch.backends.sqlite.query_processes import explain, overrun
from lockstitch.backends.sqlite.schema import extensions
from lockstitch.errors import Refused
from lockstitch.extension import known
from lockstitch.lenses import catalog
from lockstitch.model import Json, Stitch, codec
from lockstitch.model.searched_text import searched_text
from lockstitch.model.sql_script import statements
from lockstitch.model.stitch import ERROR_TYPES

_VIEW = re.compile(r"\bCREATE VIEW\b")


def create_lens_views(connection: sqlite3.Connection, name: str) -> None:
    """Create the views of a lens. The connection must not be read-only yet.

    A view named `threads` hides the table of that name, which is still available as `main.threads`.
    """
    connection.execute("PRAGMA temp_store = MEMORY")
    add_functions(connection)
    for statement in views(name, extensions(connection)):
        connection.execute(statement)


def views(name: str | None, added: Sequence[str]) -> list[str]:
    """Return the statements that create the views of a lens. `added` are the names of the store's extensions.

    Without a lens, these are the views that all lenses share. The function `lockstitch_request` reads one of them.
    """
    scripts = [catalog.script("shared", "sqlite")]
    if name is not None:
        parts = [part for extension in known(added) if (part := extension.lens(catalog.check(name), "sqlite"))]
        scripts.append(catalog.composed(name, "sqlite", parts))
    created = [_VIEW.sub("CREATE TEMP VIEW", text, count=1) for script in scripts for text in statements(script)]
    # A lens may have a view `stitches`. Without one, that of the connection stays.
    return ["DROP VIEW IF EXISTS temp.stitches", *created, packing.VIEW]


def internal_query(
    connection: sqlite3.Connection, sql: str, limit: int, seconds: float, lens: str | None
) -> QueryResult:
    """Run one statement that Lockstitch itself contains, in this process, with a time limit and a row limit."""
    deadline = time.monotonic() + seconds
    if lens is not None:
        create_lens_views(connection, lens)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(authorize)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as exc:
        interrupted = getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        raise Refused(overrun(seconds) if interrupted else explain(str(exc))) from exc
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    return QueryResult(columns, rows[:limit], len(rows) > limit)


_WORD = re.compile(r"[^\W_]+")
BATCH = 1000
"""Number of stitches that are indexed in one transaction."""
SMALL_BATCH = 250
"""The same while requests wait: for a search that does not wait for the whole index, and in the background."""
LONGEST = 262_144
"""Maximum number of characters of one message that are indexed."""


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text)


def unindexed(dialect: Dialect) -> Script[int]:
    """Return the number of stitches that are not in the index."""
    return max(0, int((yield dialect.statement("search_left", {}))[0][0]))


def catch_up(dialect: Dialect, batch: int = BATCH) -> Script[bool]:
    """Index the next stitches in the order of the log. Return True if more are left.

    There is one writer, so `log_id` rises in the order of commits, and no stitch is skipped.
    """
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    rows = yield dialect.statement("search_next", {"mark": mark, "limit": batch})
    for log_id, *content in rows:
        yield from _write(dialect, "search_add", log_id, _searched(*content))
    if rows:
        yield dialect.statement("search_move", {"mark": rows[-1][0]})
    return len(rows) == batch


def forget(dialect: Dialect, ids: list[str], first: int = 0, last: int = 2**62) -> Script[None]:
    """Remove stitches from the index before they are deleted. The index needs their text for this."""
    marks, named = dialect.among(ids)
    span = {"first": first, "last": last}
    rows = yield dialect.statement("search_of_threads", {**named, **span}, ids=marks or "NULL")
    for log_id, *content in rows:
        yield from _write(dialect, "search_remove", log_id, _searched(*content))


def replace(dialect: Dialect, stitches: Sequence[Stitch], put: Script[None]) -> Script[None]:
    """Write these stitches and update the index for those that it already contains."""
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    places = [{"thread_id": str(stitch.thread_id), "position": stitch.position} for stitch in stitches] if mark else []
    replaced: dict[int, Json] = {}
    for place in places:
        for log_id, *content in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            # If two stitches have the same position, the last one counts.
            if log_id not in replaced:
                yield from _write(dialect, "search_remove", log_id, _searched(*content))
            replaced[log_id] = place
    yield from put
    for place in replaced.values():
        for log_id, *content in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            yield from _write(dialect, "search_add", log_id, _searched(*content))


def restore(dialect: Dialect, stitches: Sequence[Stitch]) -> Script[None]:
    """Write archived stitches as rows again, and add those to the index that are not after its mark."""
    yield from operations.restore(dialect, stitches)
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    for stitch in stitches:
        if stitch.log_id is not None and stitch.log_id <= mark:
            text = searched_text(stitch.type, stitch.message, stitch.data if stitch.message is None else None)
            yield from _write(dialect, "search_add", stitch.log_id, text[:LONGEST])


def _write(dialect: Dialect, change: str, log_id: int, text: str) -> Script[None]:
    if text:
        yield dialect.statement(change, {"log_id": log_id, "text": text})


def _searched(type: str, message: str | None, data: str | None) -> str:
    """Return the text of a stitch that is indexed. Only of errors without a message, it is in the data."""
    known: Json | None = codec.loads(data) if data and type in ERROR_TYPES else None
    return searched_text(type, codec.loads(message) if message else None, known)[:LONGEST]


def search(dialect: Dialect, project: str, text: str, limit: int) -> Script[list[SearchHit]]:
    """Return the threads and stitches that contain every word of `text`, best match first."""
    wanted = words(text)
    if not wanted:
        return []
    query = " AND ".join(f'"{word}"' for word in wanted)
    parameters = {"project": project, "query": query, "ranked": RANKED, "limit": limit}
    rows = yield dialect.statement("search", parameters)
    return [SearchHit(dialect.decode_id(thread_id), position, -score) for thread_id, position, score in rows]
