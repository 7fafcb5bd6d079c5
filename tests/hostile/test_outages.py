"""A store that fails under a running process: afterwards its threads are executed again, and can be cancelled.

One thread fails in the outage and has to be released. Then the executor of another thread, the last one, fails too.
"""

import asyncio
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from lockstitch import Client, open_store
from lockstitch.model import Thread
from lockstitch.store import Store
from tests.cli.calling import environment
from tests.engine.agents import until
from tests.hostile.impatient import sleeper, walker
from tests.liveness import Liveness
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A separate server, because the test kills it."""
    server = PostgresServer(fsync="off")
    if not server.own:
        pytest.skip("this server is not ours to kill")
    yield server
    server.close()


class Process:
    """A process of `lockstitch` whose output is read line by line."""

    def __init__(self, url: str, gate: Path, *command: str) -> None:
        arguments = ["--store", url, "--app", "tests.hostile.impatient:app", "--json", *command]
        self.gate = gate
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.impatient", *arguments],
            env=environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", GATE=str(gate)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.out: list[str] = []
        self.complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.complaints)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Iterator[str], lines: list[str]) -> None:
        lines.extend(stream)

    async def says(self, *parts: str) -> str:
        """Wait for a line that contains all of these parts, and return it."""

        async def found() -> str | None:
            lines = [*self.out, *self.complaints]
            return next((line for line in lines if all(part in line for part in parts)), None)

        return await until(found)

    def end(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def started(url: str, tmp_path: Path, *command: str) -> Iterator[Process]:
    process = Process(url, tmp_path / "gate", *command)
    try:
        yield process
    finally:
        process.end()


async def executed(store: Store, head: Thread, position: int) -> bool:
    now = await store.thread(head.id)
    return now.held and now.position >= position


async def fail_under(
    process: Process, store: Store, begin: Callable[[], None], end: Callable[[], None]
) -> list[Thread]:
    """Cause an outage in which one thread fails, and then the last one that the process executes."""
    walks = await walker.start(store=store, goal="walk")
    sleeps = await sleeper.start(store=store, goal="sleep")
    await until(lambda: executed(store, walks, 6))
    await until(lambda: executed(store, sleeps, 3))
    await asyncio.to_thread(begin)
    try:
        await process.says(str(walks.id), "Cannot release")
        process.gate.touch()
        await process.says(str(sleeps.id), "Cannot release")
    finally:
        await asyncio.to_thread(end)
    return [walks, sleeps]


async def ends(store: Store, heads: list[Thread]) -> list[str]:
    """Return the statuses of threads once all have ended. Until then, no thread may be held without being executed."""
    liveness = Liveness(patience=12)

    async def all_ended() -> bool:
        await liveness.look(store)
        assert not liveness.problems, liveness.problems
        return all([(await store.thread(head.id)).ended for head in heads])

    await until(all_ended)
    assert (await store.verify()).ok
    return [(await store.thread(head.id)).status for head in heads]


@pytest.mark.parametrize(("how", "then"), [("SIGKILL", "wait"), ("immediate", "cancel")])
async def test_threads_continue_after_postmaster_was_killed(
    server: PostgresServer, tmp_path: Path, how: str, then: str
) -> None:
    url = server.create_database()
    stop = server.kill if how == "SIGKILL" else lambda: server.stop("immediate")
    async with open_store(url) as store:
        with started(url, tmp_path, "serve", "--port", "0") as process:
            address = json.loads(await process.says("serves"))["url"]
            heads = await fail_under(process, store, stop, server.start)
            if then == "cancel":
                async with httpx2.AsyncClient(base_url=address, timeout=60, verify=False) as http:
                    answer = await http.post(f"/api/threads/{heads[0].id}/cancel")
                    assert answer.status_code == 202, answer.text
            assert await ends(store, heads) == ["cancelled" if then == "cancel" else "completed", "completed"]
            # The loop of the worker, its watch of the store and the feeds of the server continue.
            async with Client(address) as client, asyncio.timeout(60):
                new_thread = await client.start("sleeper", "sleep")
                assert [stitch.type async for stitch in client.watch(new_thread.id)][-1] == "run_completed"


@pytest.mark.parametrize("backend", ["files", "sqlite"])
async def test_threads_continue_after_disk_was_full(store_url: str, tmp_path: Path) -> None:
    async with open_store(store_url) as store:
        with started(store_url, tmp_path, "worker") as process:
            pid, kind = process.process.pid, resource.RLIMIT_FSIZE
            unlimited = resource.prlimit(pid, kind)
            heads = await fail_under(
                process,
                store,
                # Every write of the process to a file fails, as on a full disk.
                lambda: resource.prlimit(pid, kind, (0, unlimited[1])),
                lambda: resource.prlimit(pid, kind, unlimited),
            )
            assert await ends(store, heads) == ["completed", "completed"]


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_threads_continue_after_file_was_locked(store_url: str, tmp_path: Path) -> None:
    async with open_store(store_url) as store:
        with (
            started(store_url, tmp_path, "worker") as process,
            sqlite3.connect(
                tmp_path / "store.db", isolation_level=None, check_same_thread=False, timeout=60
            ) as other_connection,
        ):
            heads = await fail_under(
                process,
                store,
                lambda: other_connection.execute("BEGIN IMMEDIATE"),
                lambda: other_connection.execute("ROLLBACK"),
            )
            assert await ends(store, heads) == ["completed", "completed"]
        other_connection.close()
