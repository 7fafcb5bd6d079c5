"""The baselines on PostgreSQL: one connection per thread, prepared statements, values known before the clock starts.

One sends three statements in a transaction, the other one data-modifying statement with its own commit.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Literal

import psycopg

from benchmarks.workload import Agent, run_fields, steps
from lockstitch.model import CHAIN_TYPES, new_id
from lockstitch.model.clock import SystemClock

_COLUMNS = """thread_id, position, id, run_id, lane, previous_id, reply_to, call_index, calls, parent_id, child_id,
    fence, step_number, type, name, call_id, status, message, data, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, duration_ms, messages_count, estimated_tokens, at"""
_HEAD = """UPDATE threads SET position = $1, crashes = 0, tip_id = $2, updated_at = $3
WHERE id = $4 AND fence = $5 AND position = $6 AND worker_id = $7"""
_RUN = "UPDATE runs SET steps = $1, input_tokens = $2, output_tokens = $3 WHERE id = $4"
_STITCH = f"INSERT INTO stitches ({_COLUMNS}) VALUES ({', '.join(f'${place}' for place in range(1, 28))})".encode()
_AT_ONCE = f"""WITH head AS ({_HEAD} RETURNING id),
run AS (UPDATE runs SET steps = $8, input_tokens = $9, output_tokens = $10 FROM head WHERE runs.id = $11)
INSERT INTO stitches ({_COLUMNS}) SELECT {", ".join(f"${place}" for place in range(12, 39))} FROM head""".encode()

Way = Literal["three statements", "one statement"]
Parameters = tuple[object, ...]


class PostgresFloor:
    """Writes the rows of the store to the threads of `agents`. Their store must not write to them any longer."""

    def __init__(self, threads: "list[_Thread]") -> None:
        self._threads = threads

    @classmethod
    async def open(cls, url: str, agents: list[Agent], way: Way) -> "PostgresFloor":
        return cls([await _Thread.open(url, agent, way) for agent in agents])

    async def append(self, number: int) -> float:
        """Make concurrent appends, spread over the threads. Return appends per second."""
        per_agent = max(number // len(self._threads), 1)
        pending = [thread.take(per_agent) for thread in self._threads]
        started = time.perf_counter()
        await asyncio.gather(*(thread.append(appends) for thread, appends in zip(self._threads, pending, strict=True)))
        return per_agent * len(self._threads) / (time.perf_counter() - started)

    async def close(self) -> None:
        for thread in self._threads:
            await thread.close()


class _Thread:
    """One thread of the baseline and its connection."""

    def __init__(self, connection: psycopg.AsyncConnection, agent: Agent, way: Way) -> None:
        self._connection = connection
        self._cursor = psycopg.AsyncRawCursor(connection)
        self._agent = agent
        self._way = way
        self._position = agent.head.position
        self._pending = self._appends()

    @classmethod
    async def open(cls, url: str, agent: Agent, way: Way) -> "_Thread":
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await connection.execute("SET search_path TO lockstitch")
        return cls(connection, agent, way)

    def take(self, number: int) -> list[tuple[Parameters, Parameters, Parameters]]:
        """Return the parameters of the next appends: head, run, stitch."""
        return [next(self._pending) for _ in range(number)]

    async def append(self, appends: list[tuple[Parameters, Parameters, Parameters]]) -> None:
        execute = self._cursor.execute
        if self._way == "one statement":
            for head, run, stitch in appends:
                await execute(_AT_ONCE, head + run + stitch, prepare=True)
                self._check()
            return
        for head, run, stitch in appends:
            await execute("BEGIN", prepare=True)
            await execute(_HEAD, head, prepare=True)
            self._check()
            await execute(_STITCH, stitch, prepare=True)
            await execute(_RUN, run, prepare=True)
            await execute("COMMIT", prepare=True)

    async def close(self) -> None:
        await self._connection.close()

    def _check(self) -> None:
        if self._cursor.rowcount != 1:
            raise RuntimeError("another writer changed the thread of the baseline")

    def _appends(self) -> Iterator[tuple[Parameters, Parameters, Parameters]]:
        bodies = steps()
        thread, run_id = self._agent.head, self._agent.run.id
        previous = thread.tip_id
        while True:
            position = self._position + 1
            step = bodies[(position - 1) % len(bodies)]
            answers = step.type == "tool_call"
            stitch_id, now = new_id(), SystemClock().now()
            head = (position, stitch_id, now, thread.id, thread.fence, self._position, thread.worker_id)
            run = (*run_fields(position).values(), run_id)
            stitch = (
                *(thread.id, position, stitch_id, run_id, None, previous),
                *((position - 1, 0) if answers else (None, None)),
                *(None if answers else 1, None, None),
                *(thread.fence, (position + 1) // 2, step.type, step.name, step.call_id, step.status),
                *(step.text, "{}", step.input_tokens, step.output_tokens, None, None),
                *(step.duration_ms, None, None, now),
            )
            yield head, run, stitch
            self._position = position
            previous = stitch_id if step.type in CHAIN_TYPES else previous
