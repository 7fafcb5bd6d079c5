"""Group commits of SQLite: a failed group is repeated once, and a single writer blocks no other."""

import asyncio
import sqlite3
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.backend import Commit
from lockstitch.backends.sqlite.writer import IN_A_ROW, GroupCommitWriter
from lockstitch.errors import Conflict, LockstitchError, Refused
from lockstitch.model import new_id
from lockstitch.store import open_store
from tests.engine.agents import until
from tests.samples import said

pytestmark = pytest.mark.anyio


def _timer(connection: sqlite3.Connection) -> threading.Timer:
    """Release the file soon. Join this thread before closing the connection: other tasks continue while it runs."""
    return threading.Timer(0.05, connection.execute, ("ROLLBACK",))


async def test_writes_once_when_lock_is_taken_within_a_group(tmp_path: Path) -> None:
    """The second of three fails, so they are repeated one by one. Before the third, another process locks the file."""
    path = tmp_path / "store.db"
    async with open_store(f"sqlite:///{path}") as store:
        heads = [await store.create() for _ in range(3)]
        other_connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        started: list[str] = []
        unlock_timer = _timer(other_connection)

        def listen(sql: str) -> None:
            if sql.startswith("BEGIN IMMEDIATE"):
                started.append(sql)
                # The group, the first, the second; the file is free just before the third.
                if len(started) == 4:
                    other_connection.execute("BEGIN IMMEDIATE")
                    unlock_timer.start()

        connection = store._backend._writer.connection  # type: ignore[attr-defined]
        connection.set_trace_callback(listen)
        entries = [said("1"), said("2", run_id=new_id()), said("3")]
        outcomes = await asyncio.gather(
            *(store.append(head, [entry]) for head, entry in zip(heads, entries, strict=True)),
            return_exceptions=True,
        )
        connection.set_trace_callback(None)
        assert len(started) >= 5, "it was not as the test wanted it"
        unlock_timer.join()
        other_connection.close()
        assert [isinstance(outcome, LockstitchError) for outcome in outcomes] == [False, True, False]
        assert [(await store.thread(head)).position for head in heads] == [1, 0, 1]
        assert await store._backend.append(Commit()) == []


async def test_single_writer_yields_to_other_tasks(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        head = await store.create()
        turns: list[int] = []

        async def look() -> None:
            while True:
                turns.append(head.position)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        for number in range(40):
            head = (await store.append(head, [said(str(number))])).head
        looking.cancel()
        assert max(later - earlier for earlier, later in pairwise([*turns, head.position])) <= IN_A_ROW + 1


async def test_repeated_writer_waits_for_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(f"sqlite:///{path}") as store:
        head = (await store.append(await store.create(), [said("1")])).head
        other_connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        other_connection.execute("BEGIN IMMEDIATE")
        unlock_timer = _timer(other_connection)
        unlock_timer.start()
        head = (await store.append(head, [said("2")])).head
        unlock_timer.join()
        other_connection.close()
        assert (await store.thread(head)).position == head.position == 2


async def test_repeated_writer_gets_conflict(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        head = await store.create()
        await store.append(head, [said("1")])
        with pytest.raises(Conflict, match="position 1, expected 0"):
            await store.append(head, [said("again")])
        with pytest.raises(Refused):
            await store.append(await store.thread(head), [said("2", run_id=new_id())])
        assert (await store.append(await store.thread(head), [said("3")])).head.position == 2


async def _is_locked(writer: GroupCommitWriter) -> bool:
    return writer.lock.locked()


async def test_task_cancelled_during_commit_learns_the_outcome(tmp_path: Path) -> None:
    """If a thread were created after its creator got an error, no task would execute it."""
    path = tmp_path / "store.db"
    async with open_store(f"sqlite:///{path}") as store:
        writer = store._backend._writer  # type: ignore[attr-defined]
        other_connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)

        async def instructions(_: object) -> str:
            # The next commit is the first one of the thread.
            other_connection.execute("BEGIN IMMEDIATE")
            return ""

        clerk = Agent("helper", model=Scripted(["Yes."]), title=False, instructions=instructions)
        running = asyncio.create_task(clerk.run("Go", store=store, thread="t"))
        await until(lambda: _is_locked(writer))
        running.cancel()
        for _ in range(20):
            await asyncio.sleep(0.001)
        other_connection.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await running
        other_connection.close()
        head = await store.thread("t")
        assert (head.status, head.worker_id) == ("pending", None)


async def test_cancelled_task_writes_nothing_when_commit_has_not_started(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(f"sqlite:///{path}") as store:
        writer = store._backend._writer  # type: ignore[attr-defined]
        heads = [await store.create() for _ in range(2)]
        other_connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        other_connection.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(store.append(heads[0], [said("1")]))
        await until(lambda: _is_locked(writer))
        waiting = asyncio.create_task(store.append(heads[1], [said("2")]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other_connection.execute("ROLLBACK")
        await task
        other_connection.close()
        assert [(await store.thread(head)).position for head in heads] == [1, 0]
