"""Statistics and search over a folder."""

from datetime import timedelta
from pathlib import Path

import pytest

from lockstitch.backend import Find, SearchHit, ThreadUsage, Where
from lockstitch.backends.files import FilesBackend, disk
from lockstitch.model import Blob, BlobUse, Run, Thread, codec
from tests.backends.files.writing import START, append, asked, begin, create, finish, head_of, next_run, turn

pytestmark = pytest.mark.anyio


async def spend(files: FilesBackend, head: Thread, tokens: int, **fields: object) -> Thread:
    head, run = await begin(files, head, "q", **fields)
    return await finish(files, head, run, "a", input_tokens=tokens, output_tokens=1)


async def test_average_tokens_counts_top_level_runs(files: FilesBackend) -> None:
    first, second = await create(files), await create(files)
    later = START + timedelta(days=2)
    first = await spend(files, first, 1_000_000)
    first = await spend(files, first, 9, started_at=later)
    first = await spend(files, first, 19, started_at=later)
    leader = (await files.find(Find(Run, (Where("turn", "=", 3),))))[0]
    member = next_run(first, turn=3, parent_run_id=leader.id, input_tokens=10**6, started_at=later)
    await append(files, first, new_runs=[member])
    await spend(files, second, 4, started_at=later)
    await spend(files, await create(files, project="other"), 4, started_at=later)
    since = START + timedelta(days=1)
    assert await files.average_tokens("default", since) == [
        ThreadUsage(first.id, 2, 15.0),
        ThreadUsage(second.id, 1, 5.0),
    ]


async def test_search_finds_every_word_in_titles_inputs_and_answers(files: FilesBackend) -> None:
    titled = await create(files, title="The RED balloon")
    head = await turn(files, await create(files), "Where is the red balloon?", "A red balloon, a red one, flew away.")
    await turn(files, await create(files, project="other"), "red balloon", "red balloon")
    started, run = await begin(files, head, "balloons redden")
    thinking = asked("c1", run_id=run.id)
    await append(files, started, thinking.changed(message={"role": "assistant", "content": "red balloon"}))
    head = await head_of(files, head.id)
    hits = await files.search("default", "Balloon red", 10)
    assert hits[:2] == [SearchHit(head.id, 2, 3.0), SearchHit(titled.id, None, 2.0)]
    assert [hit.position for hit in hits[2:]] == [1, 4]
    assert await files.search("default", "Balloon red", 1) == hits[:1]
    assert await files.search("default", "red submarine", 10) == []
    assert await files.search("default", " ?! ", 10) == []


async def test_size_reports_bytes_of_thread_and_store(files: FilesBackend, root: Path) -> None:
    head = await turn(files, await create(files), "q" * 1000, "a" * 1000)
    await turn(files, await create(files), "q", "a")
    blob = Blob(sha256=codec.digest("b"), size=5000, content=b"b" * 5000, created_at=START)
    await files.put([blob])
    await files.put([BlobUse(thread_id=head.id, sha256=blob.sha256)])
    of_thread, of_store = await files.size(head.id), await files.size(None)
    assert list(of_thread) == ["heads", "runs", "stitches", "blobs", "archives"]
    assert of_thread["heads"] == (root / disk.head(head.id)).stat().st_size
    assert of_thread["stitches"] > 2000
    assert (of_thread["blobs"], of_store["blobs"]) == (5000, 5000)
    for part in ("heads", "runs", "stitches"):
        assert 0 < of_thread[part] < of_store[part]
    assert of_store["disk"] >= sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


async def test_file_backend_has_no_sql(files: FilesBackend) -> None:
    assert await files.query("SELECT 1", limit=1, seconds=1) is None
    assert files.archive_encoding == "gzip"
