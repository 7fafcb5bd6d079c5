"""Power loss on SQLite: the write-ahead log ends anywhere, and the store has whole commits from the first one on."""

import random
import shutil
from pathlib import Path

import pytest

from lockstitch.model import Entry
from lockstitch.store import ThreadUpdate, Transaction, open_store

pytestmark = pytest.mark.anyio

HEADER, FRAME = 32, 24 + 8192
COMMITS = 12


async def written(folder: Path) -> Path:
    """Return the files of a store with commits over two threads, before any checkpoint."""
    path = folder / "store.db"
    async with open_store(f"sqlite:///{path}") as store:
        first, second = await store.create(key="one"), await store.create(key="other")
        for number in range(COMMITS):
            entry = {"type": "llm_call", "data": {"commit": number, "text": "x" * (number * 1500)}}
            updates = [ThreadUpdate(first, [Entry(**entry), Entry(**entry)]), ThreadUpdate(second, [Entry(**entry)])]
            first, second = (appended.head for appended in await store.commit(Transaction(updates)))
        copy = folder / "copy.db"
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


async def count_commits(source: Path, place: Path, size: int) -> int:
    """Return the number of commits in a store with a log truncated at this byte. Each must be complete."""
    shutil.copy(source, place)
    Path(f"{place}-shm").unlink(missing_ok=True)
    Path(f"{place}-wal").write_bytes(Path(f"{source}-wal").read_bytes()[:size])
    async with open_store(f"sqlite:///{place}") as store:
        assert (await store.verify()).problems == []
        threads = {thread.key for thread in await store.threads()}
        logs = {key: await store.stitches(key) for key in threads}
    first_commits = [stitch.data["commit"] for stitch in logs.get("one", [])]
    second_commits = [stitch.data["commit"] for stitch in logs.get("other", [])]
    assert second_commits == list(range(len(second_commits)))
    assert first_commits == [number for number in second_commits for _ in range(2)], "both threads or neither"
    return len(second_commits)


async def test_write_ahead_log_truncated_anywhere_keeps_whole_commits(tmp_path: Path) -> None:
    source = await written(tmp_path)
    full_size = Path(f"{source}-wal").stat().st_size
    frames = range(HEADER, full_size + 1, FRAME)
    chance = random.Random(3)
    sizes = {0, HEADER, full_size, *chance.sample(frames, 20), *(chance.randrange(full_size) for _ in range(10))}
    counts = [await count_commits(source, tmp_path / f"{size}.db", size) for size in sorted(sizes)]
    assert counts == sorted(counts), "a longer log never has fewer commits"
    assert (counts[0], counts[-1]) == (0, COMMITS)
    assert len(set(counts)) > 4
