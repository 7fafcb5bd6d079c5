"""The baseline of reading: the same rows with one hand-written query each, as the driver returns them."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import UUID

import psycopg

from benchmarks.places import sqlite_path

_PAGE = """SELECT r.*, said.message, answered.message FROM {runs} r
LEFT JOIN {stitches} said ON said.{thread} = r.{thread} AND said.position = r.input_position
LEFT JOIN {stitches} answered ON answered.{thread} = r.{thread} AND answered.position = r.output_position
WHERE r.{thread} = {its} AND r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled')
ORDER BY r.turn DESC LIMIT 20"""
_LOGS = {
    "log of a run": "SELECT * FROM stitches WHERE run_id = ? ORDER BY position",
    "thread": "SELECT * FROM stitches WHERE thread_id = ? ORDER BY position",
    "last stitch": "SELECT * FROM stitches WHERE id = (SELECT tip_id FROM threads WHERE id = ?)",
}
# SQLite refers by row number internally, so its joins use the tables behind the views.
_SQLITE = {
    "runs": "run_rows",
    "stitches": "stitch_rows",
    "thread": "thread_no",
    "its": "(SELECT no FROM threads WHERE id = ?)",
}
_POSTGRES = {"runs": "runs", "stitches": "stitches", "thread": "thread_id", "its": "?"}

Question = Literal["page of history", "log of a run", "thread", "last stitch"]
Ask = Callable[[Question, UUID], Awaitable[list[Any]]]


class ReadingFloor:
    """One connection that runs queries and fetches rows."""

    def __init__(self, ask: Ask, close: Callable[[], Awaitable[None]]) -> None:
        self.ask = ask
        self.close = close

    @classmethod
    async def open(cls, url: str, backend: str) -> "ReadingFloor":
        return await (_sqlite(url) if backend == "sqlite" else _postgres(url))


async def _sqlite(url: str) -> ReadingFloor:
    connection = sqlite3.connect(sqlite_path(url))
    queries = {**_LOGS, "page of history": _PAGE.format(**_SQLITE)}

    async def ask(question: Question, key: UUID) -> list[Any]:
        return connection.execute(queries[question], (str(key),)).fetchall()

    async def close() -> None:
        connection.close()

    return ReadingFloor(ask, close)


async def _postgres(url: str) -> ReadingFloor:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("SET search_path TO lockstitch")

    queries = {**_LOGS, "page of history": _PAGE.format(**_POSTGRES)}

    async def ask(question: Question, key: UUID) -> list[Any]:
        cursor = await connection.execute(queries[question].replace("?", "%s").encode(), (key,), prepare=True)
        return await cursor.fetchall()

    return ReadingFloor(ask, connection.close)
