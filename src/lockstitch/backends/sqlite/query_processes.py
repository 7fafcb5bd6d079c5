"""`query()`: run statements of users in separate processes, which are used again."""

import asyncio
import json
import os
import sqlite3
import struct
import subprocess
import sys
from base64 import b64decode
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from lockstitch.backend import ANSWER, QueryResult
from lockstitch.backends.sqlite import query_process
from lockstitch.backends.sqlite.connection import translate
from lockstitch.errors import LockstitchError, Refused, StoreError

AT_ONCE = 4
"""Maximum number of concurrent statements of users in one store. Further statements wait."""

_PROGRAM = Path(query_process.__file__)
_START = 10.0
"""Seconds that a process may take to start and to be stopped, in addition to the time of its statement."""
_LARGEST_FRAME = 8 * ANSWER
"""Maximum size of one row in bytes. JSON writes a control character in six bytes."""

_idle: list["QueryProcess"] = []
"""At most one process that waits for a statement. Starting one takes longer than most statements.

All stores of this process share it, because each statement opens its own connection. It ends with this process, or
after a minute without a statement.
"""

if hasattr(os, "register_at_fork"):
    # Both processes would write to the same pipe.
    os.register_at_fork(after_in_child=_idle.clear)


async def query(
    path: str, uri: str, sql: str, *, limit: int, seconds: float, threads: Executor, before: Sequence[str] = ()
) -> QueryResult:
    """Run one statement of a user in a separate process. `before` creates the views of a lens.

    The process has a memory limit and stops itself after `seconds`. It is killed when the call fails or is cancelled,
    and ends when this process dies.
    """
    request = {"uri": uri, "sql": _encodable(sql), "limit": limit, "seconds": seconds, "bytes": ANSWER}
    line = json.dumps({**request, "before": list(before)}).encode() + b"\n"
    while True:
        process = _idle.pop() if _idle else QueryProcess()
        try:
            return await _asked(process, line, path, seconds, threads)
        except _EndedBefore:
            continue


async def _asked(process: "QueryProcess", line: bytes, path: str, seconds: float, threads: Executor) -> QueryResult:
    def ask() -> QueryResult | Exception:
        # An error is a result here: asyncio would log it if an interrupt stops the event loop before it is read.
        try:
            return process.ask(line, path, seconds)
        except Exception as exc:
            return exc

    asking = asyncio.get_running_loop().run_in_executor(threads, ask)
    try:
        async with asyncio.timeout(seconds + _START):
            result = await asyncio.shield(asking)
    except BaseException as exc:
        if not asking.done():
            process.kill()
            # The process has ended when the thread has.
            await asyncio.wait([asking])
        if isinstance(exc, TimeoutError):
            raise Refused(overrun(seconds)) from exc
        raise
    finally:
        if process.reusable and not _idle:
            _idle.append(process)
        else:
            process.end()
    if isinstance(result, Exception):
        raise result
    return result


class _EndedBefore(Exception):
    """A process that was used before has ended without a response, for example after a minute without a statement."""


class QueryProcess:
    """One process with the program `query_process`. `ask` blocks, so it runs in a thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._used = False
        self.reusable = False
        """True if the last statement ended within its limits."""

    def ask(self, line: bytes, path: str, seconds: float) -> QueryResult:
        """Send a request and return the result. Raises an error if the statement fails, or if the process ends."""
        used, self._used, self.reusable = self._used, True, False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answered = False
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            columns = rows = None
            while True:
                frame = _frame(self._process.stdout)
                answered = True
                if isinstance(frame, dict):
                    return self._result(columns or [], rows or [], cast("dict[str, Any]", frame), path, seconds)
                values = cast("list[Any]", frame)
                if columns is None or rows is None:
                    columns, rows = values, list[tuple[Any, ...]]()
                else:
                    rows.append(tuple(_rich(value) for value in values))
        except LockstitchError:
            # Some subclasses of LockstitchError are ConnectionErrors too.
            raise
        except (EOFError, ConnectionError) as exc:
            # The process has ended: at its time limit, or because it had no memory left to report the error.
            code = self._process.wait()
            if used and not answered:
                raise _EndedBefore from exc
            raise Refused(overrun(seconds) if code == query_process.OVERRUN else _exhausted()) from exc

    def kill(self) -> None:
        """End the process at once. The thread in `ask` notices it."""
        self.reusable = False
        self._process.kill()

    def end(self) -> None:
        """End the process and close its pipes."""
        self.kill()
        # A request that was not sent cannot be flushed.
        with suppress(BrokenPipeError), self._process:
            pass

    def _result(
        self, columns: list[str], rows: list[tuple[Any, ...]], end: dict[str, Any], path: str, seconds: float
    ) -> QueryResult:
        self.reusable = query_process.is_within_limits(end)
        if "more" not in end:
            raise _failure(end, path, seconds)
        return QueryResult(columns, rows, bool(end["more"]))


def _frame(pipe: IO[bytes]) -> Any:
    (length,) = struct.unpack(">I", _read(pipe, 4))
    if length > _LARGEST_FRAME:
        raise Refused(_exhausted())
    return json.loads(_read(pipe, length))


def _read(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _rich(value: Any) -> Any:
    return b64decode(cast("dict[str, str]", value)["bytes"]) if isinstance(value, dict) else value


def _failure(end: dict[str, Any], path: str, seconds: float) -> LockstitchError:
    if "opening" in end:
        exc = sqlite3.OperationalError(end["opening"])
        exc.sqlite_errorcode = end["code"]
        translated = translate(exc, path)
        return translated if isinstance(translated, StoreError) else StoreError(str(translated))
    if end["error"] == "time":
        return Refused(overrun(seconds))
    if end["error"] == "memory":
        return Refused(_exhausted())
    if end["error"] == "size":
        return Refused(f"The first row of the result is larger than {ANSWER >> 20} MiB. Select fewer columns.")
    return Refused(explain(str(end["message"])))


def _encodable(sql: str) -> str:
    try:
        sql.encode()
    except UnicodeError as exc:
        raise Refused(f"SQLite refused the query: {exc}.") from exc
    if "\0" in sql:
        raise Refused("SQLite refused the query: it contains a NUL character.")
    return sql


def overrun(seconds: float) -> str:
    return f"The query took longer than {seconds:g} s and was stopped."


def _exhausted() -> str:
    return "The query exceeded its memory limit and was stopped. Select fewer rows or smaller values."


def explain(text: str) -> str:
    if "one statement" in text:
        return "Only one statement is allowed."
    if "not authorized" in text or "prohibited" in text:
        return f"Only reading is allowed: {text}."
    return f"SQLite refused the query: {text}."
