"""put and delete on files."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.files import FilesBackend, disk
from lockstitch.errors import Conflict, KeyTaken, Refused, ThreadBusy
from lockstitch.model import (
    SIDE_RECORDS,
    Agent,
    Archive,
    Blob,
    BlobUse,
    Delivery,
    Entry,
    FakeClock,
    Feedback,
    File,
    IngestBody,
    LiveDelta,
    Memory,
    Record,
    Run,
    Stitch,
    Thread,
    Token,
    Worker,
    codec,
    new_id,
)
from tests.backends.files.writing import (
    START,
    append,
    begin,
    create,
    finish,
    head_of,
    next_run,
    opened,
    placed,
    said,
    turn,
)

pytestmark = pytest.mark.anyio


def sha(text: str) -> str:
    return codec.digest(text)


def side_records(head: Thread, run: Run) -> list[Record]:
    when: dict[str, Any] = {"created_at": START, "updated_at": START}
    blob = Blob(sha256=sha("blob"), size=4, media_type="image/png", content=b"\x89\x00\nx", created_at=START)
    return [
        Agent(name="../a", metadata={"n": 2**80}, **when),
        blob,
        BlobUse(thread_id=head.id, sha256=blob.sha256),
        File(thread_id=head.id, file_id="../f", filename="f", created_at=START, last_updated_at=START),
        Memory(text="é", **when),
        Feedback(thread_id=head.id, name="n", score=0.1, **when),
        IngestBody(source="otel", body=bytes(range(256)), at=START),
        LiveDelta(thread_id=head.id, run_id=run.id, step_number=1, number=0, text={"t": "x"}),
        Token(sha256=sha("token"), name="n", created_at=START),
        Archive(
            thread_id=head.id,
            first_position=1,
            last_position=2,
            run_id=run.id,
            encoding="gzip",
            sha256=sha("archive"),
            content=gzip.compress(b'{"a":1}\n'),
            created_at=START,
        ),
    ]


async def test_every_side_record_is_read_back(files: FilesBackend) -> None:
    head, run = await begin(files, await create(files), "q")
    for record in side_records(head, run):
        kind = type(record)
        assert kind in SIDE_RECORDS
        await files.put([record])
        key = [getattr(record, field) for field in kind.primary_key]
        assert await files.get(kind, key) == record
        assert await files.find(Find(kind)) == [record]
        await files.put([record])
        assert await files.count(Find(kind)) == 1
        if kind is not Blob:
            assert await files.delete(Find(kind)) == 1
            assert await files.get(kind, key) is None


async def test_archives_are_gzip_files_next_to_the_logs(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files), "q")
    archive = side_records(head, run)[-1]
    assert isinstance(archive, Archive)
    more = archive.changed(first_position=3, last_position=4, content=gzip.compress(b"more"))
    await files.put([archive])
    await files.put([more])
    directory = root / "agent_runs" / str(head.id)
    assert gzip.decompress((directory / f"{run.id}.jsonl.gz").read_bytes()) == b'{"a":1}\n'
    assert gzip.decompress((directory / f"{run.id}.3.jsonl.gz").read_bytes()) == b"more"
    assert await files.find(Find(Archive, (Where("thread_id", "=", head.id),), order=("first_position",))) == [
        archive,
        more,
    ]
    # Archives are not logs, so reading a log ignores them.
    assert len(await files.read(head.id, [(1, None)])) == 1
    await files.delete(Find(Archive, (Where("first_position", "=", 1),)))
    assert sorted(path.name for path in directory.iterdir()) == [f"{run.id}.3.jsonl.gz", f"{run.id}.jsonl"]


async def test_rejects_record_without_thread(files: FilesBackend) -> None:
    head, run = await begin(files, await create(files), "q")
    stranger = head.changed(id=new_id())
    owned = (BlobUse, File, Feedback, LiveDelta, Archive)
    for record in [side_record for side_record in side_records(stranger, run) if isinstance(side_record, owned)]:
        with pytest.raises(Refused):
            await files.put([record])
    for foreign_record in (next_run(stranger), *placed(stranger, said("x"))):
        with pytest.raises(Refused, match="not in this store"):
            await files.put([foreign_record])
    with pytest.raises(Refused, match=r"Run .* not found"):
        await files.put(placed(head, said("x", run_id=new_id())))
    with pytest.raises(Refused, match="the same class"):
        await files.put([head, run])
    with pytest.raises(Refused, match=r"Blob .* not found"):
        await files.put([BlobUse(thread_id=head.id, sha256=sha("missing"))])
    await files.put([])


async def test_put_writes_all_or_nothing(files: FilesBackend) -> None:
    first, second = await create(files, key="a"), await create(files, key="b")
    with pytest.raises(KeyTaken):
        await files.put([first.changed(title="new"), second.changed(key="a")])
    assert await head_of(files, first.id) == first
    await files.put([first.changed(title="new", key="c")])
    assert [head.title for head in await files.find(Find(Thread, _key("c")))] == ["new"]
    assert await files.find(Find(Thread, _key("a"))) == []


def _key(key: str) -> tuple[Where, ...]:
    return (Where("project", "=", "default"), Where("key", "=", key))


async def test_put_checks_deliveries_and_runs(files: FilesBackend) -> None:
    head = await turn(files, await create(files), "q", "a")
    (run,) = await files.find(Find(Run))
    with pytest.raises(Conflict):
        await files.put([next_run(head, sequence=1)])
    await files.put([run.changed(error="changed")])
    assert [run.error for run in await files.find(Find(Run))] == ["changed"]
    delivery = Delivery(thread_id=head.id, sender="ada", kind="input", at=START)
    await files.put([delivery])
    with pytest.raises(Conflict):
        await files.put([delivery.changed(id=new_id())])
    await files.put([delivery.changed(sender="bob")])
    assert [delivery.sender for delivery in await files.find(Find(Delivery))] == ["bob"]


async def test_put_copies_log_unchanged(files: FilesBackend, tmp_path: Path) -> None:
    source = await opened(tmp_path / "source")
    head = await create(source)
    for number in range(5):
        head = await turn(source, head, f"q{number}", f"a{number}")
    log = await source.read(head.id, [(1, None)])
    await files.put([head])
    await files.put(await source.find(Find(Run)))
    await files.put(log[:3])
    await files.put(log[3:])
    await files.put(log)
    assert await files.read(head.id, [(1, None)]) == log
    with pytest.raises(Conflict):
        await files.put([log[0].changed(position=11)])
    await source.close()


async def test_spans_are_replaced_in_place(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files, kind="trace"), "q")
    other_run = next_run(head, sequence=2, turn=1, parent_run_id=run.id)
    await files.put([other_run])
    spans = [Entry(type="span", run_id=run.id, data={"n": number}) for number in range(4)]
    await append(files, head, *spans)
    log = await files.read(head.id, [(1, None)])
    await files.put([log[2].changed(data={"n": "more"}, status="ok")])
    stitches = await files.read(head.id, [(1, None)])
    assert stitches == [*log[:2], log[2].changed(data={"n": "more"}, status="ok"), *log[3:]]
    # A stitch that moves to the file of another run is removed from its old file.
    await files.put([log[1].changed(run_id=other_run.id)])
    numbers = {path.stem: lines(path, "log_id") for path in (root / disk.logs(head.id)).iterdir()}
    assert numbers == {str(run.id): [1, 2, 3, 4], str(other_run.id): [1]}
    stitches = await files.read(head.id, [(1, None)])
    assert [stitch.position for stitch in stitches] == [1, 2, 3, 4, 5]
    # log_ids rise within a file in every case, so a reader that follows them misses nothing.
    await files.put([log[1]])
    for path in (root / disk.logs(head.id)).iterdir():
        assert lines(path, "store_log_id") == sorted(set(lines(path, "store_log_id")))
        assert lines(path, "position") == sorted(lines(path, "position"))
    assert [path.stem for path in (root / disk.logs(head.id)).iterdir()] == [str(run.id)]
    moved = [stitch.changed(log_id=None) for stitch in await files.read(head.id, [(2, 2)])]
    assert moved == [log[1].changed(log_id=None)]


def lines(path: Path, key: str) -> list[Any]:
    return [codec.loads(line)[key] for line in path.read_bytes().splitlines()]


@pytest.mark.req("S0-087", "S0-083")
async def test_log_has_one_object_per_line_and_only_grows(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files), "q")
    path = root / "agent_runs" / str(head.id) / f"{run.id}.jsonl"
    before = path.read_bytes()
    await finish(files, head, run, "a\n\u2028b")
    after = path.read_bytes()
    assert after.startswith(before)
    assert lines(path, "step_number") == [0, 1]
    assert [codec.loads(line)["run_id"] for line in after.split(b"\n")[:-1]] == [str(run.id)] * 2
    await append(files, await head_of(files, head.id), Entry(type="fork", data={"messages": []}))
    outside = root / "agent_runs" / str(head.id) / "thread.jsonl"
    assert lines(outside, "run_id") == [None]


@pytest.mark.req("S0-056", "S0-081", "X0-22")
async def test_delete_removes_everything_of_a_thread(files: FilesBackend, root: Path) -> None:
    head = await turn(files, await create(files, key="k"), "q", "a")
    (run,) = await files.find(Find(Run))
    child = await turn(files, await create(files, parent_id=head.id, depth=1), "q", "a")
    thread = await turn(files, await create(files), "q", "a")
    await files.put([Delivery(thread_id=head.id, sender="ada", kind="input", at=START)])
    for record in side_records(head, run):
        await files.put([record])
    shared = Blob(sha256=sha("shared"), size=1, content=b"s", created_at=START)
    await files.put([shared])
    await files.put([BlobUse(thread_id=thread.id, sha256=shared.sha256) for thread in (head, thread)])
    assert await files.delete(Find(Thread, (Where("id", "=", head.id),))) == 1
    remaining_paths = [path for path in root.rglob("*") if str(head.id) in path.name or str(child.id) in path.name]
    assert remaining_paths == []
    assert [thread.id for thread in await files.find(Find(Thread))] == [thread.id]
    assert [blob.sha256 for blob in await files.find(Find(Blob))] == [shared.sha256]
    for kind in (File, Feedback, LiveDelta, Archive, Delivery):
        assert await files.count(Find(kind)) == 0
    assert await files.count(Find(Memory)) == 1
    assert await files.count(Find(Run)) == 1
    await create(files, key="k")
    await files.delete(Find(Thread, (Where("id", "=", thread.id),)))
    assert await files.find(Find(Blob)) == []


async def test_held_thread_is_deleted_only_with_force(files: FilesBackend, clock: FakeClock) -> None:
    head = await create(files)
    child = await create(files, parent_id=head.id, depth=1)
    worker = Worker(started_at=clock.now(), beat_at=clock.now())
    await files.heartbeat(worker)
    await files.claim(worker.id, thread_id=child.id)
    with pytest.raises(ThreadBusy, match=str(child.id)):
        await files.delete(Find(Thread, (Where("id", "=", head.id),)))
    assert await files.count(Find(Thread)) == 2
    await files.delete(Find(Thread, (Where("id", "=", head.id),)), force=True)
    assert await files.count(Find(Thread)) == 0


async def test_stitches_are_deleted_by_position(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    for number in range(3):
        head = await turn(files, head, f"q{number}", f"a{number}")
    span = (Where("thread_id", "=", head.id), Where("position", ">=", 1), Where("position", "<=", 3))
    assert await files.delete(Find(Stitch, span)) == 3
    assert [stitch.position for stitch in await files.read(head.id, [(1, None)])] == [4, 5, 6]
    assert len(list((root / disk.logs(head.id)).iterdir())) == 2
    await append(files, await head_of(files, head.id), said("on"))
    assert [stitch.log_id for stitch in await files.read(head.id, [(1, None)])] == [4, 5, 6, 7]
    with pytest.raises(Refused):
        await files.delete(Find(Run))
