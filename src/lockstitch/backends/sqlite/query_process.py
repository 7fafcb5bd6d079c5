"""A program that runs SQL statements of users on SQLite files, one after the other.

SQLite calls no handler while a single function runs, and its memory belongs to the whole process. So an untrusted
statement runs in a separate process, which has limits and can be killed. The interpreter runs this file by its path and
loads nothing else. The file imports only the standard library.

Input: one line of JSON per statement. The caller sends the next line after the result. When the input ends, the caller
is gone, and this process ends too. Output: frames, each a length of 4 bytes and that much JSON: the columns, the rows,
and a last object with the outcome. The process ends after a statement that exceeded a limit.
"""

import binascii
import json
import os
import select
import sqlite3
import struct
import sys
import threading
import time
import zlib
from functools import lru_cache

try:
    import resource
except ImportError:  # Windows
    resource = None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

OVERRUN = 3
"""Exit code of a process that stopped itself at its time limit."""

GRACE = 0.2
"""Seconds that SQLite gets to stop without being killed."""

IDLE = 60.0
"""Seconds that a process waits for the next statement."""

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_FORBIDDEN_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts5", "fts3_tokenizer"}

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 2000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 500,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_HEAP = 256 << 20
"""Bytes that SQLite may allocate."""
_MEMORY = 1 << 30
"""Bytes of address space of this process."""
_TEMPORARY = 1 << 30
"""Bytes of one temporary file of a large sort."""


def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Allow reading, and nothing else."""
    if action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def is_within_limits(end: "dict[str, Any]") -> bool:
    """True if the process can run another statement after this outcome."""
    return end.get("error", "sql") == "sql"


def main() -> None:
    """Read requests, run their statements and send the results."""
    _limit_memory()
    while select.select([0], [], [], IDLE)[0] and (line := sys.stdin.buffer.readline()):
        request = json.loads(line)
        _limit_time(request["seconds"])
        done, finished = os.pipe()
        watching = threading.Thread(target=_watch, args=(request["seconds"] + GRACE, done), daemon=True)
        watching.start()
        connection, end = _open(request)
        if connection is not None:
            end = _run(connection, request)
        # The next request must not look like the end of the input to the thread.
        os.close(finished)
        watching.join()
        os.close(done)
        _send(end)
        sys.stdout.buffer.flush()
        if not is_within_limits(end):
            break
        if connection is not None:
            connection.close()
    # Exit without returning: closing a connection with a large heap takes time, and there is nothing to save.
    os._exit(0)


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that views of lenses call, `lockstitch_request`, and functions of PostgreSQL.

    `lockstitch_request` reads a view that lenses share.
    """

    def request(stitch: str | None) -> str | None:
        sql = "SELECT request FROM temp.lens_model_requests WHERE stitch_id = ?"
        row = connection.execute(sql, (stitch,)).fetchone()
        return row[0] if row else None

    connection.create_function("lockstitch_unpacked", 1, _unpacked, deterministic=True)
    connection.create_function("lockstitch_data", 2, unpacked_data, deterministic=True)
    connection.create_function("lockstitch_request", 1, request)
    for name, arguments, function in _POSTGRES_FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)


class _Literal(str):
    """A number of a JSON text, with its digits unchanged."""

    __slots__ = ()


_KINDS = {dict: "object", list: "array", str: "string", _Literal: "number", bool: "boolean", type(None): "null"}


def _is_object(value: "Any") -> "TypeGuard[dict[str, Any]]":
    return isinstance(value, dict)


def _is_array(value: "Any") -> "TypeGuard[list[Any]]":
    return isinstance(value, list)


def _parsed(text: "Any") -> "Any":
    """Return the value of a JSON text. Raises `ValueError` if it is not JSON."""
    if not isinstance(text, str):
        # SQLite has no type for JSON: a number or NULL of a column is itself.
        return None if text is None else _Literal(text)
    return json.loads(text, parse_float=_Literal, parse_int=_Literal, parse_constant=_Literal)


def _written(value: "Any") -> str:
    """Return the JSON text of a parsed value, with its numbers unchanged."""
    if isinstance(value, _Literal):
        return value
    if _is_object(value):
        members = (f"{json.dumps(key, ensure_ascii=False)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(members)}}}"
    if _is_array(value):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _array_length(text: "Any") -> "int | None":
    try:
        value = _parsed(text)
    except (ValueError, RecursionError):
        return None
    return len(value) if _is_array(value) else None


def _typeof(text: "Any") -> "str | None":
    if text is None:
        return None
    try:
        return _KINDS[type(_parsed(text))]
    except (ValueError, RecursionError):
        return None


def _at(text: "Any", path: "tuple[Any, ...]") -> "Any":
    """Return the parsed value at a path of keys and indexes, or None if there is none."""
    try:
        value = _parsed(text)
        for step in path:
            value = value[int(step)] if _is_array(value) else value[str(step)]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return value


def _extract_path(text: "Any", *path: "Any") -> "str | None":
    value = _at(text, path)
    return None if value is None else _written(value)


def _extract_path_text(text: "Any", *path: "Any") -> "str | None":
    value = _at(text, path)
    return value if value is None or isinstance(value, str) else _written(value)


_POSTGRES_FUNCTIONS = (
    ("jsonb_array_length", 1, _array_length),
    ("jsonb_typeof", 1, _typeof),
    ("json_typeof", 1, _typeof),
    ("jsonb_extract_path", -1, _extract_path),
    ("json_extract_path", -1, _extract_path),
    ("jsonb_extract_path_text", -1, _extract_path_text),
    ("json_extract_path_text", -1, _extract_path_text),
)
"""Functions of PostgreSQL that statements of the documents use: name, number of arguments, function.

They return NULL where PostgreSQL raises an error, for example for a text that is not JSON.
"""


def _unpacked(content: bytes) -> str:
    """Return the stitches of an archive as a JSON array. An archive has one line of JSON per stitch."""
    lines = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, _LIMITS[sqlite3.SQLITE_LIMIT_LENGTH])
    return f"[{lines.decode().rstrip().replace(chr(10), ',')}]"


def unpacked_data(content: bytes, position: int) -> str:
    """Return the data of the stitch at a position."""
    return _lines(content)[position]


@lru_cache(maxsize=4)
def _lines(content: bytes) -> "dict[int, str]":
    """Return the data by position: each line has both. Cached, because most readers need all of them."""
    lines = [line.partition(" ") for line in zlib.decompress(content).decode().split("\n")]
    return {int(position): text for position, _, text in lines}


def _open(request: "dict[str, Any]") -> "tuple[sqlite3.Connection | None, dict[str, Any]]":
    """Return a connection with the views of the request, or None and the error."""
    try:
        connection = sqlite3.connect(request["uri"], uri=True, isolation_level=None, timeout=5)
        connection.execute(f"PRAGMA hard_heap_limit = {_HEAP}")
        add_functions(connection)
        for statement in request["before"]:
            connection.execute(statement)
        for function in ("json_each", "json_tree"):
            # SQLite declares the table of such a function at its first use, which the authorizer would reject.
            connection.execute(f"SELECT 1 FROM {function}('[]')")
        connection.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.set_authorizer(authorize)
    except sqlite3.Error as exc:
        return None, {"opening": str(exc), "code": getattr(exc, "sqlite_errorcode", 0)}
    return connection, {}


def _run(connection: sqlite3.Connection, request: "dict[str, Any]") -> "dict[str, Any]":
    """Execute the statement and send its columns and rows. Return the outcome."""
    deadline = time.monotonic() + request["seconds"]
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        return _fetch(connection.execute(request["sql"]), request["limit"], request["bytes"])
    except MemoryError:
        return {"error": "memory"}
    except (sqlite3.Error, sqlite3.Warning) as exc:
        # A function that was interrupted raises another error.
        if getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT or time.monotonic() > deadline:
            return {"error": "time"}
        return {"error": "sql", "message": str(exc)[:2000]}


def _fetch(cursor: sqlite3.Cursor, limit: int, most: int) -> "dict[str, Any]":
    """Send columns and rows until a row or byte limit is reached."""
    _send([column[0] for column in cursor.description or ()])
    size = 0
    for number, row in enumerate(cursor):
        size += sum(len(value) if isinstance(value, str | bytes) else 16 for value in row) + 64
        if number == limit or size > most:
            return {"error": "size"} if number == 0 and limit else {"more": True}
        _send([_plain(value) for value in row])
    return {"more": False}


def _plain(value: "Any") -> "Any":
    return {"bytes": binascii.b2a_base64(value, newline=False).decode()} if isinstance(value, bytes) else value


def _send(value: "Any") -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(text)) + text)


def _watch(seconds: float, done: int) -> None:
    """End this process when its caller is gone or its time limit is reached, also while SQLite is working."""
    ready, _, _ = select.select([0, done], [], [], seconds)
    if done not in ready:
        os._exit(1 if ready else OVERRUN)


def _limit_memory() -> None:
    if resource is None:
        return
    for kind, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, _TEMPORARY),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))


def _limit_time(seconds: float) -> None:
    """Limit the processor time of the next statement. Only the soft limit can be raised again."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = int(time.process_time() + seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


if __name__ == "__main__":
    main()
