"""Read-only SQL with lenses as temporary views, and full-text search."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import struct
import sys
import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from lockstitch.backend import ANSWER, QueryResult, SearchHit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite import query_process
from lockstitch.backends.sqlite.connection import translate
from lockstitch.backends.sqlite.query_process import add_functions, authorize
from lockstitch.backends.sqlite.schema import extensions, statements
from lockstitch.errors import LockstitchError, Refused, StoreError
from lockstitch.extension import known
from lockstitch.lenses import catalog
from lockstitch.model import Json, Stitch, codec, text_of

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
    return [_VIEW.sub("CREATE TEMP VIEW", statement, count=1) for script in scripts for statement in statements(script)]


AT_ONCE = 4
"""Maximum number of concurrent statements of users in one store. Further statements wait."""

_PROGRAM = Path(query_process.__file__)
_START = 10.0
"""Seconds that a process may take to start and to be stopped, in addition to the time of its statement."""
_END = 1.0
"""Seconds that a process may take to end after its input is closed."""
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_LARGEST_FRAME = 8 * ANSWER
"""Maximum size of one row in bytes. JSON writes a control character in six bytes."""


async def query(
    path: str, uri: str, sql: str, *, limit: int, seconds: float, before: Sequence[str] = ()
) -> QueryResult:
    """Run one statement of a user in a separate process. `before` creates the views of a lens.

    The process has a memory limit and stops itself after `seconds`. It never outlives this call: it is killed when the
    call fails or is cancelled, and ends when this process dies.
    """
    request = {"uri": uri, "sql": _encodable(sql), "limit": limit, "seconds": seconds, "bytes": ANSWER}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(seconds + _START):
            process.stdin.write(json.dumps({**request, "before": list(before)}).encode() + b"\n")
            await process.stdin.drain()
            return await _answer(process.stdout, path, seconds)
    except LockstitchError:
        # Some subclasses of LockstitchError are ConnectionErrors too.
        raise
    except TimeoutError as exc:
        raise Refused(_overrun(seconds)) from exc
    except (asyncio.IncompleteReadError, ConnectionError) as exc:
        # The process has ended: at its time limit, or because it had no memory left to report the error.
        code = await process.wait()
        raise Refused(_overrun(seconds) if code == query_process.OVERRUN else _exhausted()) from exc
    finally:
        # Also when the caller is cancelled a second time: no process may be left running.
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input of a process. Kill it if it does not end then, or if this call is cancelled."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END):
            await process.wait()
    except BaseException as exc:
        # Not process.kill(): it may consume the exit code before the event loop, which then logs a warning.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, _KILL)
        # An event loop that is closed before the process has ended logs a warning too.
        await process.wait()
        if not isinstance(exc, TimeoutError):
            raise


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
        raise Refused(_overrun(seconds) if interrupted else _explain(str(exc))) from exc
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    return QueryResult(columns, rows[:limit], len(rows) > limit)


async def _answer(output: asyncio.StreamReader, path: str, seconds: float) -> QueryResult:
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    first = True
    while True:
        frame = await _frame(output)
        if isinstance(frame, dict):
            end = cast("dict[str, Any]", frame)
            if "more" not in end:
                raise _failure(end, path, seconds)
            return QueryResult(columns, rows, bool(end["more"]))
        values = cast("list[Any]", frame)
        if first:
            columns, first = values, False
        else:
            rows.append(tuple(_rich(value) for value in values))


async def _frame(output: asyncio.StreamReader) -> Any:
    (length,) = struct.unpack(">I", await output.readexactly(4))
    if length > _LARGEST_FRAME:
        raise Refused(_exhausted())
    return json.loads(await output.readexactly(length))


def _rich(value: Any) -> Any:
    return b64decode(cast("dict[str, str]", value)["bytes"]) if isinstance(value, dict) else value


def _failure(end: dict[str, Any], path: str, seconds: float) -> LockstitchError:
    if "opening" in end:
        exc = sqlite3.OperationalError(end["opening"])
        exc.sqlite_errorcode = end["code"]
        translated = translate(exc, path)
        return translated if isinstance(translated, StoreError) else StoreError(str(translated))
    if end["error"] == "time":
        return Refused(_overrun(seconds))
    if end["error"] == "memory":
        return Refused(_exhausted())
    if end["error"] == "size":
        return Refused(f"The first row of the result is larger than {ANSWER >> 20} MiB. Select fewer columns.")
    return Refused(_explain(str(end["message"])))


def _encodable(sql: str) -> str:
    try:
        sql.encode()
    except UnicodeError as exc:
        raise Refused(f"SQLite refused the query: {exc}.") from exc
    if "\0" in sql:
        raise Refused("SQLite refused the query: it contains a NUL character.")
    return sql


def _overrun(seconds: float) -> str:
    return f"The query took longer than {seconds:g} s and was stopped."


def _exhausted() -> str:
    return "The query exceeded its memory limit and was stopped. Select fewer rows or smaller values."


def _explain(text: str) -> str:
    if "one statement" in text:
        return "Only one statement is allowed."
    if "not authorized" in text or "prohibited" in text:
        return f"Only reading is allowed: {text}."
    return f"SQLite refused the query: {text}."


_WORD = re.compile(r"[^\W_]+")
_BATCH = 1000
LONGEST = 262_144
"""Maximum number of characters of one message that are indexed."""


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text)


def catch_up(dialect: Dialect) -> Script[bool]:
    """Index the next inputs and answers in the order of the log. Return True if more are left.

    There is one writer, so `log_id` rises in the order of commits, and no stitch is skipped.
    """
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    rows = yield dialect.statement("search_next", {"mark": mark, "limit": _BATCH})
    for log_id, message in rows:
        yield dialect.statement("search_add", {"log_id": log_id, "text": searchable(message)})
    if rows:
        yield dialect.statement("search_move", {"mark": rows[-1][0]})
    return len(rows) == _BATCH


def forget(dialect: Dialect, ids: list[str], first: int = 0, last: int = 2**62) -> Script[None]:
    """Remove stitches from the index before they are deleted. The index needs their text for this."""
    marks, named = dialect.among(ids)
    span = {"first": first, "last": last}
    rows = yield dialect.statement("search_of_threads", {**named, **span}, ids=marks or "NULL")
    for log_id, message in rows:
        yield dialect.statement("search_remove", {"log_id": log_id, "text": searchable(message)})


def replace(dialect: Dialect, stitches: Sequence[Stitch], put: Script[None]) -> Script[None]:
    """Write these stitches and update the index for those that it already contains."""
    mark = (yield dialect.statement("search_mark", {}))[0][0]
    places = [{"thread_id": str(stitch.thread_id), "position": stitch.position} for stitch in stitches] if mark else []
    replaced: dict[int, Json] = {}
    for place in places:
        for log_id, message in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            # If two stitches have the same position, the last one counts.
            if log_id not in replaced and message is not None:
                yield dialect.statement("search_remove", {"log_id": log_id, "text": searchable(message)})
            replaced[log_id] = place
    yield from put
    for place in replaced.values():
        for log_id, message in (yield dialect.statement("search_filled", {**place, "mark": mark})):
            if message is not None:
                yield dialect.statement("search_add", {"log_id": log_id, "text": searchable(message)})


def search(dialect: Dialect, project: str, text: str, limit: int) -> Script[list[SearchHit]]:
    """Return the threads and stitches that contain every word of `text`, best match first."""
    wanted = words(text)
    if not wanted:
        return []
    query = " AND ".join(f'"{word}"' for word in wanted)
    rows = yield dialect.statement("search", {"project": project, "query": query, "limit": limit})
    return [SearchHit(dialect.decode_id(thread_id), position, -score) for thread_id, position, score in rows]


def searchable(message: str | None) -> str:
    """Return the text of a message that is indexed."""
    return text_of(codec.loads(message))[:LONGEST] if message else ""
