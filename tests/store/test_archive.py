"""Archives: old turns are compressed, and the same methods read them."""

import gzip
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstitch.backend import Find
from lockstitch.errors import NotFound, StoreDamaged
from lockstitch.model import Archive, Entry, FakeClock, Stitch, Thread, codec
from lockstitch.store import Store, open_store
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn
from tests.store.test_media import base64, media_entry, picture

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def read_all(store: Store, thread: Thread) -> dict[str, Any]:
    """Everything that can be read of a thread."""
    runs = await store.runs(thread)
    return {
        "stitches": await store.stitches(thread),
        "part": await store.stitches(thread, 2, 5),
        "last": await store.last_stitch(thread),
        "context": await store.context(thread),
        "history": await store.history(thread),
        "page": await store.history(thread, limit=1, before=2),
        "runs": runs,
        "logs": [await store.log(run.id) for run in runs],
        "messages": [await store.messages(run.id) for run in runs],
        "lanes": [await store.context(thread, lane=run.id) for run in runs],
    }


async def old_chat(store: Store, clock: FakeClock) -> Thread:
    """Write four turns, one with tools, a member and an image, and a compaction that keeps a part of the first."""
    head = await turn(store, await store.create(), "one", "first")
    committed, run = await begin_turn(store, head, "two")
    member = store.new_run(committed.head, parent_run_id=run.id, status="completed").changed(completed_at=clock.now())
    lane = {"run_id": member.id, "lane": member.id}
    entries = [
        asked("a", run_id=run.id),
        said("part", **lane),
        answered("mine", **lane),
        result("a", 0, 4, run_id=run.id),
    ]
    head = (
        await store.append(committed.head, [*entries, media_entry(picture(base64(40_000)))], new_runs=[member])
    ).head
    head = (await finish_turn(store, head, run, "second")).head
    head = await turn(store, head, "three", "third")
    replace = {"3": {"role": "user", "content": "summary"}}
    compaction = Entry(type="compaction", data={"applied": True, "keep": [[1, 2]], "replace": replace})
    head = (await store.append(head, [compaction])).head
    clock.advance(DAY)
    return await turn(store, head, "four", "fourth")


async def old_goal(store: Store, clock: FakeClock) -> Thread:
    """A thread that has ended, with two turns."""
    head = await store.create(kind="goal", goal="g")
    for number in range(2):
        committed, run = await begin_turn(store, head, f"q{number}")
        head = (await finish_turn(store, committed.head, run, f"a{number}")).head
    head = (await store.append(head, fields={"status": "completed", "result": {"summary": "s"}})).head
    clock.advance(DAY)
    return head


@pytest.mark.req("S0-153")
async def test_reads_archived_turns_unchanged(
    timed_store: Store, clock: FakeClock, store_url: str, backend: str
) -> None:
    for make, turns, first in ((old_chat, 2, 10), (old_goal, 2, 5)):
        thread = await make(timed_store, clock)
        before = await read_all(timed_store, thread)
        rows = await timed_store._backend.read(thread.id, [(1, None)])
        assert await timed_store.archive(clock.now() - timedelta(seconds=1)) == turns

        moved = await timed_store.thread(thread)
        assert moved == thread.changed(first_position=first, crashes=0)
        remaining = await timed_store._backend.read(thread.id, [(1, None)])
        assert [stitch.position for stitch in remaining] == list(range(first, thread.position + 1))
        assert await read_all(timed_store, thread) == before
        assert (await timed_store.size(thread))["archives"] > 0
    archives = await timed_store._backend.find(Find(Archive))
    encoding = "none" if backend == "postgres" else "gzip"
    assert {archive.encoding for archive in archives} == {encoding}
    for archive in archives:
        packed = archive.content
        lines = (packed if backend == "postgres" else gzip.decompress(packed)).splitlines()
        positions = [codec.loads(line)["position"] for line in lines]
        assert positions == list(range(archive.first_position, archive.last_position + 1))
    report = await timed_store.verify()
    assert (report.ok, report.threads) == (True, 2)
    async with open_store(store_url, clock=clock) as reopened:
        assert await read_all(reopened, thread) == before
        assert await reopened.restore(thread) == 2
        assert await reopened.thread(thread) == thread.changed(crashes=0)
        assert await reopened._backend.read(thread.id, [(1, None)]) == rows
        assert await read_all(reopened, thread) == before
        assert (await reopened.verify()).ok


async def test_second_archive_call_archives_nothing(timed_store: Store, clock: FakeClock) -> None:
    threads = [await old_chat(timed_store, clock), await old_goal(timed_store, clock)]
    assert await timed_store.archive(clock.now()) == 4
    heads = [await timed_store.thread(thread) for thread in threads]

    assert await timed_store.archive(clock.now()) == 0
    assert [await timed_store.thread(thread) for thread in threads] == heads


async def test_continues_archived_thread(timed_store: Store, clock: FakeClock) -> None:
    thread = await old_chat(timed_store, clock)
    await timed_store.archive(clock.now())
    head = await turn(timed_store, await timed_store.thread(thread), "five", "fifth")
    head = (await timed_store.append(head, [Entry(type="compaction", data={"applied": True, "keep": [[1, 1]]})])).head
    head = await turn(timed_store, head, "six", "sixth")
    before = await read_all(timed_store, head)
    clock.advance(DAY)

    assert await timed_store.archive(clock.now()) == 2
    assert await read_all(timed_store, head) == before
    assert [message["content"] for message in before["context"] if message["role"] == "user"] == ["one", "six"]
    assert (await timed_store.verify()).ok


async def test_archives_only_old_ended_turns_that_no_context_needs(timed_store: Store, clock: FakeClock) -> None:
    long_ago = clock.now()
    chat = await turn(timed_store, await timed_store.create(), "one", "first")
    goal = await old_goal(timed_store, clock)
    held_thread = await timed_store.claim(await timed_store.create(kind="goal", goal="g"))
    held_thread = (await timed_store.append(held_thread, [said("go")])).head
    open_run = (await begin_turn(timed_store, await timed_store.create(), "two"))[0].head
    clock.advance(DAY)

    assert await timed_store.archive(long_ago) == 0
    assert await timed_store.archive(clock.now()) == 2
    for thread in (chat, held_thread, open_run):
        assert await timed_store.thread(thread) == thread
    assert (await timed_store.thread(goal)).first_position == 5


class Cut:
    """A real backend that fails once, just before the step of our choice."""

    def __init__(self, backend: Any, step: int) -> None:
        self._backend = backend
        self._left = step

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._backend, name)
        if name not in ("put", "append", "delete"):
            return verb

        async def cut(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise ZeroDivisionError
            return await verb(*arguments, **named)

        return cut


@pytest.mark.parametrize("step", range(2))
async def test_continues_archiving_after_interruption_at_any_point(
    timed_store: Store, clock: FakeClock, step: int
) -> None:
    thread = await old_chat(timed_store, clock)
    before = await read_all(timed_store, thread)
    cut = Store(Cut(timed_store._backend, step), clock=clock, project="default")  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        await cut.archive(clock.now())

    assert await read_all(timed_store, thread) == before
    assert (await timed_store.verify()).ok
    assert await timed_store.archive(clock.now()) == 2 - step
    assert await read_all(timed_store, thread) == before
    assert (await timed_store.thread(thread)).first_position == 10
    remaining = await timed_store._backend.read(thread.id, [(1, None)])
    assert remaining[0].position == 10


async def test_archives_other_threads_when_one_changes_concurrently(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, resting = await old_chat(timed_store, clock), await old_chat(timed_store, clock)
    real = timed_store._backend.append

    async def append(commit: Any) -> Any:
        if commit.records and commit.records[0].thread_id == moving.id:
            monkeypatch.undo()
            await timed_store.append(await timed_store.thread(moving), [said("just now")])
        return await real(commit)

    monkeypatch.setattr(timed_store._backend, "append", append)
    assert await timed_store.archive(clock.now()) == 2
    assert (await timed_store.thread(moving)).first_position == 1
    assert (await timed_store.thread(resting)).first_position == 10
    assert await timed_store.archive(clock.now()) == 2
    assert (await timed_store.verify()).ok


@pytest.mark.parametrize("damage", [b"", b"not compressed"])
async def test_raises_damaged_when_archive_is_damaged(timed_store: Store, clock: FakeClock, damage: bytes) -> None:
    thread = await old_goal(timed_store, clock)
    await timed_store.archive(clock.now())
    archive = (await timed_store._backend.find(Find(Archive, order=("first_position",))))[0]
    await timed_store._backend.put([archive.changed(content=damage)])

    with pytest.raises(StoreDamaged, match="positions 1 to 2"):
        await timed_store.stitches(thread)
    report = await timed_store.verify()
    assert [problem["kind"] for problem in report.problems] == ["unreadable"]


async def test_reads_archived_stitch_through_its_run(timed_store: Store, clock: FakeClock) -> None:
    thread = await old_goal(timed_store, clock)
    old_stitch = (await timed_store.stitches(thread))[0]
    await timed_store.archive(clock.now())

    with pytest.raises(NotFound, match="log of its run"):
        await timed_store.stitch(old_stitch.id)
    assert old_stitch in await timed_store.log(old_stitch.run_id or "")


async def test_deletes_archives_with_their_thread(timed_store: Store, clock: FakeClock) -> None:
    thread = await old_goal(timed_store, clock)
    await timed_store.archive(clock.now())
    await timed_store.delete(thread)

    assert await timed_store._backend.find(Find(Archive)) == []
    assert await timed_store._backend.find(Find(Stitch)) == []


@pytest.mark.req("S0-153")
async def test_archives_are_compressed(timed_store: Store, clock: FakeClock, store_url: str, backend: str) -> None:
    """On PostgreSQL by the database, which leaves the text readable to SQL. Elsewhere with gzip."""
    text = "The same words again. " * 1_000
    head = await turn(timed_store, await timed_store.create(kind="goal", goal="g"), "q", text)
    await timed_store.append(head, fields={"status": "completed", "result": {"summary": "s"}})
    clock.advance(DAY)
    assert await timed_store.archive(clock.now()) == 1
    (archive,) = await timed_store._backend.find(Find(Archive))
    if backend == "postgres":
        assert len(archive.content) > len(text)
        with psycopg.connect(store_url) as connection:
            row = connection.execute("SELECT pg_column_size(content) FROM lockstitch.archives").fetchone()
        assert row is not None
        assert row[0] < len(text) / 5
    else:
        assert len(archive.content) < len(text) / 5
    assert (await timed_store.history(head)).turns[0].final_response == text


@pytest.mark.req("S0-153")
async def test_zcat_reads_archives_of_file_backend(clock: FakeClock, tmp_path: Path) -> None:
    async with open_store(f"file://{tmp_path}", clock=clock) as store:
        thread = await old_goal(store, clock)
        run = (await store.runs(thread))[0]
        before = await store.log(run.id)
        await store.archive(clock.now())

    files = sorted(path.name for path in (tmp_path / "agent_runs" / str(thread.id)).iterdir())
    assert f"{run.id}.jsonl.gz" in files
    lines = gzip.decompress((tmp_path / "agent_runs" / str(thread.id) / f"{run.id}.jsonl.gz").read_bytes()).splitlines()
    assert [Stitch.from_json(codec.loads(line)).id for line in lines] == [stitch.id for stitch in before]
