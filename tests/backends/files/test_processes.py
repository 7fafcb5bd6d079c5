"""Many processes on one folder. Some are killed at any point of their work."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstitch.backend import Find
from lockstitch.backends.files import disk
from lockstitch.model import Blob, Run, Thread, codec
from tests.backends.files.writing import create, opened

pytestmark = pytest.mark.anyio

KILLS = 20


class Nursery:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def bear(self, number: int = 1) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()

    def hear(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        word, _, number = self._process.stdout.readline().strip().partition(" ")
        assert word, "the nursery died"
        return word, int(number or 0)


@contextmanager
def nursery(root: Path, duty: str) -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.backends.files.nursery", str(root), duty]
    here = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


async def check(root: Path, acknowledged: int) -> None:
    """No acknowledged commit is lost, no commit is incomplete, and the projections contain it."""
    backend = await opened(root)
    heads = await backend.find(Find(Thread))
    if not heads:
        assert not acknowledged
        return
    (head,) = heads
    assert head.position >= acknowledged
    stitches = await backend.read(head.id, [(1, None)])
    assert [stitch.position for stitch in stitches] == list(range(1, head.position + 1))
    log_ids = [stitch.log_id or 0 for stitch in stitches]
    assert log_ids == sorted(set(log_ids))
    runs = await backend.find(Find(Run, order=("sequence",)))
    assert [run.sequence for run in runs] == list(range(1, len(runs) + 1))
    completed_runs = [run for run in runs if run.status == "completed"]
    assert head.total_runs == len(completed_runs) == head.position // 2
    for blob in await backend.find(Find(Blob)):
        assert blob.content
    # Every file contains a complete document, no matter at which point the process died.
    for path in root.rglob("[!.]*.json"):
        codec.loads(path.read_bytes())
    if completed_runs:
        index = codec.loads((root / disk.histories(head.id) / "index.json").read_bytes())
        assert index == {"last_sequence": len(completed_runs), "total_conversations": len(completed_runs)}
    # Not closed: closing would complete the work that this process has left.


@pytest.mark.req("S0-040", "S0-089")
async def test_killed_writer_loses_no_acknowledged_commit(root: Path) -> None:
    chance = random.Random(7)
    acknowledged = 0
    with nursery(root, "write") as writers:
        for _ in range(KILLS):
            writers.bear()
            word, pid = writers.hear()
            assert word == "pid"
            for _ in range(chance.randint(0, 6)):
                _, acknowledged = writers.hear()
            time.sleep(chance.uniform(0, 0.008))
            os.kill(pid, signal.SIGKILL)
            while (reply := writers.hear())[0] != "dead":
                acknowledged = reply[1]
            await check(root, acknowledged)
    assert acknowledged > KILLS


async def test_competing_processes_append_in_turns(root: Path) -> None:
    backend = await opened(root)
    head = await create(backend)
    number = 20
    with nursery(root, "take_a_turn") as competitors:
        competitors.bear(number)
        turns: list[int] = []
        while (reply := competitors.hear())[0] != "dead":
            if reply[0] == "did":
                turns.append(reply[1])
    assert sorted(turns) == list(range(1, number + 1))
    stitches = await backend.read(head.id, [(1, None)])
    assert [stitch.position for stitch in stitches] == list(range(1, 2 * number + 1))
    names = sorted(path.name for path in (root / disk.histories(head.id)).iterdir())
    assert names == [*(f"{turn:03d}.json" for turn in range(1, number + 1)), "index.json"]
    await backend.close()
