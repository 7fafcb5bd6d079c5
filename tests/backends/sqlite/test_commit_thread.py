"""`CommitThread`: the loop gets results and errors in the order of the jobs, and the thread ends."""

import asyncio
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstitch import open_store
from lockstitch.backends.sqlite import writer
from lockstitch.backends.sqlite.commit_thread import CommitThread
from tests.samples import said

pytestmark = pytest.mark.anyio


async def test_returns_results_and_errors_in_order() -> None:
    loop = asyncio.get_running_loop()
    thread = CommitThread()
    problem = ValueError("no")
    outcomes: list[tuple[int, Any]] = []
    done = asyncio.Event()

    def fail() -> None:
        raise problem

    def keep(number: int, outcome: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        outcomes.append((number, outcome))
        if number == 2:
            done.set()

    for number, work in enumerate((threading.current_thread, fail, threading.current_thread)):
        thread.submit(work, loop, partial(keep, number))
    await done.wait()
    first, second, third = (outcome for _, outcome in outcomes)
    assert [number for number, _ in outcomes] == [0, 1, 2]
    assert first is third is not threading.main_thread()
    assert second is problem
    thread.close()
    assert not first.is_alive()


async def test_thread_ends_with_its_owner() -> None:
    loop = asyncio.get_running_loop()
    started = loop.create_future()
    thread = CommitThread()
    thread.submit(threading.current_thread, loop, started.set_result)
    worker = await started
    del thread
    await asyncio.to_thread(worker.join, 10)
    assert not worker.is_alive()


async def test_one_slow_commit_does_not_move_later_ones_to_the_thread() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    commits = writer.GroupCommitWriter(connection, ":memory:")
    await commits.run(lambda cursor: time.sleep(0.05))
    assert 0 < commits._average < writer.SLOW_COMMIT
    # A slow disk moves all commits, also those of a task that writes alone.
    for _ in range(5):
        await commits.run(lambda cursor: time.sleep(0.01))
    assert commits._average > writer.SLOW_ALONE
    commits.close()


async def test_slow_commits_are_durable_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every commit is slow then.
    monkeypatch.setattr(writer, "SLOW_COMMIT", 0.0)
    before = set(threading.enumerate())

    def commit_threads() -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - before if thread.name == "lockstitch-commits"]

    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with open_store(url) as store:
        heads = [await store.create() for _ in range(5)]
        await asyncio.gather(*(store.append(head, [said("Hi")]) for head in heads))
        assert len(commit_threads()) == 1
    assert not commit_threads()
    async with open_store(url) as store:
        assert [(await store.thread(head)).position for head in heads] == [1] * 5
