"""The baseline of a worker on PostgreSQL: one connection per slot, one statement per claim and per append."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from benchmarks.floors.plan import TEMPLATE, Append, Row, plan
from lockstitch.model import CHAIN_TYPES, current_process, new_id
from lockstitch.model.clock import SystemClock

_REGISTER = b"""INSERT INTO workers (id, host, boot_id, pid, process_started, lease_seconds, started_at, beat_at, dead,
    doing) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, false, '{}')"""
_CLAIM = b"""WITH chosen AS MATERIALIZED (
    SELECT id AS chosen_id FROM threads
    WHERE status = 'pending' AND wake_at <= clock_timestamp() AND agent IN ($2)
      AND EXISTS (SELECT 1 FROM workers WHERE id = $1 AND NOT dead)
    ORDER BY priority DESC, wake_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE threads SET status = 'running', fence = fence + 1, worker_id = $1, crashes = crashes + 1,
    updated_at = clock_timestamp()
FROM chosen WHERE id = chosen_id RETURNING id, fence"""


class _Shape(NamedTuple):
    """The values that determine the SQL text of an append."""

    head: tuple[str, ...]
    new_run: tuple[str, ...]
    run: tuple[str, ...]
    stitch: tuple[str, ...]
    stitches: int
    uses: int


class PostgresThreads:
    """Executes every ready thread."""

    def __init__(
        self, url: str, connections: list[psycopg.AsyncConnection], agent: str, template: "_ThreadTemplate"
    ) -> None:
        self._url = url
        self._connections = connections
        self._agent = agent
        self._thread_template = template

    @classmethod
    async def open(cls, url: str, concurrency: int) -> "PostgresThreads":
        connections = [await _connect(url) for _ in range(concurrency)]
        async with await _connect(url) as connection:
            template, agent = await _template(connection)
        return cls(url, connections, agent, template)

    async def work(self) -> None:
        worker = current_process(SystemClock().now())
        first = psycopg.AsyncRawCursor(self._connections[0])
        values = (worker.id, worker.host, worker.boot_id, worker.pid, worker.process_started, worker.lease_seconds)
        await first.execute(_REGISTER, (*values, worker.started_at, worker.beat_at))
        await asyncio.gather(*(self._place(connection, worker.id) for connection in self._connections))

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def _place(self, connection: psycopg.AsyncConnection, worker_id: UUID) -> None:
        """Execute one thread after the other, until none is ready."""
        cursor = psycopg.AsyncRawCursor(connection)
        while True:
            await cursor.execute(_CLAIM, (worker_id, self._agent), prepare=True)
            claimed = await cursor.fetchone()
            if claimed is None:
                return
            thread_id, fence = claimed
            for sql, values in self._thread_template.appends(thread_id, fence, worker_id):
                await cursor.execute(sql, values, prepare=True)
                if cursor.rowcount != 1:
                    raise RuntimeError("another writer changed the thread of the baseline")


class _ThreadTemplate:
    """The appends of one thread, as statements with their values."""

    def __init__(self, planned: list[Append], texts: list[str]) -> None:
        self._planned = planned
        self._texts = texts

    def appends(self, thread_id: UUID, fence: int, worker_id: UUID) -> Iterator[tuple[bytes, list[Any]]]:
        """Run them one after the other, so that each has its own time."""
        run_id, position, tip = new_id(), 0, None
        for append in self._planned:
            now = SystemClock().now()
            stitches: list[Row] = []
            for stitch in append.stitches:
                entry: Row = {"id": new_id(), "thread_id": thread_id, "run_id": run_id, "previous_id": None}
                if stitch["type"] in CHAIN_TYPES:
                    entry["previous_id"], tip = tip, entry["id"]
                stitches.append({**stitch, **entry, "fence": fence, "at": now})
            head = {**append.head, "tip_id": tip, "updated_at": now}
            if append.last:
                head["worker_id"] = None
            texts = self._texts if append.new_run else []
            new_run = {**append.new_run, "id": run_id, "thread_id": thread_id} if append.new_run else {}
            shape = _Shape(
                tuple(head), tuple(new_run), tuple(append.run), tuple(stitches[0]), len(stitches), len(texts)
            )
            values: list[Any] = [thread_id, fence, position, worker_id, position + len(stitches)]
            values += [*head.values(), *new_run.values()]
            values += [*append.run.values(), run_id] if append.run else []
            values += texts
            for stitch in stitches:
                values += stitch.values()
            yield _text(shape), values
            position += len(stitches)


@cache
def _text(shape: _Shape) -> bytes:
    numbers = iter(range(6, 1000))

    def marks(names: Sequence[str]) -> str:
        return ", ".join(f"${next(numbers)}" for _ in names)

    head = "".join(f", {name} = ${next(numbers)}" for name in shape.head)
    parts = [
        f"""WITH head AS (UPDATE threads SET position = $5, crashes = 0{head}
WHERE id = $1 AND fence = $2 AND position = $3 AND worker_id = $4 RETURNING id)"""
    ]
    if shape.new_run:
        parts.append(f"run AS (INSERT INTO runs ({', '.join(shape.new_run)}) SELECT {marks(shape.new_run)} FROM head)")
    if shape.run:
        changes = ", ".join(f"{name} = ${next(numbers)}" for name in shape.run)
        parts.append(f"run AS (UPDATE runs SET {changes} FROM head WHERE runs.id = ${next(numbers)})")
    parts += [
        f"use{use} AS (INSERT INTO blob_uses (thread_id, sha256) SELECT id, ${next(numbers)} FROM head)"
        for use in range(shape.uses)
    ]
    inserts = [
        f"INSERT INTO stitches ({', '.join(shape.stitch)}) SELECT {marks(shape.stitch)} FROM head"
        for _ in range(shape.stitches)
    ]
    parts += [f"stitch{place} AS ({insert})" for place, insert in enumerate(inserts[:-1])]
    return f"{', '.join(parts)} {inserts[-1]}".encode()


async def _template(connection: psycopg.AsyncConnection) -> tuple[_ThreadTemplate, str]:
    # Unchanged from the table, because the rows must have the same bytes.
    set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), connection)
    cursor = connection.cursor(row_factory=dict_row)
    head = await (await cursor.execute("SELECT * FROM threads WHERE key = %s", (TEMPLATE,))).fetchone()
    if head is None:
        raise RuntimeError("no template thread found")
    run = await (await cursor.execute("SELECT * FROM runs WHERE thread_id = %s", (head["id"],))).fetchone() or {}
    # The database sets these.
    run.pop("shown_id", None)
    generated = ("log_id", "llm_call_id")
    await cursor.execute("SELECT * FROM stitches WHERE thread_id = %s ORDER BY position", (head["id"],))
    stitches = [
        {name: value for name, value in row.items() if name not in generated} for row in await cursor.fetchall()
    ]
    await cursor.execute("SELECT sha256 FROM blob_uses WHERE thread_id = %s", (head["id"],))
    texts = [row["sha256"] for row in await cursor.fetchall()]
    return _ThreadTemplate(plan(head, run, stitches), texts), head["agent"]


async def _connect(url: str) -> psycopg.AsyncConnection:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("SET search_path TO lockstitch")
    return connection
