"""Many records with COPY: as exact as single statements, all or none."""

from typing import Any

import psycopg
import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.records import MANY
from lockstitch.errors import KeyTaken, LockstitchError, Refused
from lockstitch.model import Blob, BlobUse, Record, Run, Stitch, Thread, codec, new_id
from tests.backends.postgres.wire import Wire
from tests.conformance.contract import NOW, a_run, a_thread, created, log_of, stitched
from tests.conformance.every_kind import records
from tests.samples import answered, said

pytestmark = pytest.mark.anyio

DEEP: Any = "end"
for _ in range(200):
    DEEP = [DEEP]

HOSTILE: dict[str, Any] = {
    "nul": "\x00",
    "escape": "\\u0000 \\ \\N \\. \t \n \r \b \v \f",
    "end of copy": "\\.",
    "huge": 2**70,
    "minus": -(2**70),
    "float": [1.0, 1e-7, 1.7976931348623157e308, 5e-324, -0.0],
    "text": "é 😀 \u2028 \x7f \x1b",
    "deep": DEEP,
    "empty": [{}, [], "", None, True, False],
}


async def test_hostile_content_is_exact(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    entries = [said("x", data={**HOSTILE, "n": n}, name="\\N") for n in range(2 * MANY)]
    stitches = stitched(thread, *entries)
    await postgres.put(stitches)
    assert [stitch.changed(log_id=None) for stitch in await log_of(postgres, thread)] == stitches
    texts = admin.execute("SELECT data::text FROM lockstitch.stitches ORDER BY position").fetchall()
    assert texts == [(codec.dumps(stitch.data).decode(),) for stitch in stitches]


async def test_bytes_are_exact(postgres: PostgresBackend) -> None:
    blobs = [
        Blob(sha256=f"{n:064x}", size=n, content=bytes([n, 0, 92, 255]) * n, created_at=NOW) for n in range(2 * MANY)
    ]
    await postgres.put(blobs)
    assert await postgres.find(Find(Blob, order=("sha256",))) == blobs


async def test_every_record_class_is_written_by_copy_and_by_statement(postgres: PostgresBackend) -> None:
    """The same record is read back, put alone or among copies of itself."""
    for record in records():
        kind = type(record)
        await postgres.put([record])
        key = [getattr(record, field) for field in kind.primary_key]
        one_by_one = await postgres.get(kind, key)
        await postgres.put([record] * (MANY + 1))
        assert await postgres.get(kind, key) == one_by_one


async def test_put_replaces_existing_and_adds_new_records(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    old_stitches = stitched(thread, *(said(f"old {n}") for n in range(2 * MANY)))
    new_stitches = [stitch.changed(message={"role": "user", "content": "new"}) for stitch in old_stitches]
    await postgres.put(old_stitches[:MANY])
    before = {stitch.position: stitch.log_id for stitch in await log_of(postgres, thread)}
    await postgres.put(new_stitches)
    log = await log_of(postgres, thread)
    assert [stitch.changed(log_id=None) for stitch in log] == new_stitches
    assert {stitch.position: stitch.log_id for stitch in log[:MANY]} == before, "their position in the log is unchanged"


async def test_last_of_two_records_with_same_key_counts(postgres: PostgresBackend) -> None:
    thread = a_thread()
    versions = [thread.changed(title=f"title {n}") for n in range(2 * MANY)]
    await postgres.put(versions)
    assert await postgres.get(Thread, (thread.id,)) == versions[-1]


async def test_put_accepts_children_before_parents(postgres: PostgresBackend) -> None:
    threads = [a_thread()]
    for _ in range(2 * MANY):
        threads.append(a_thread(parent_id=threads[-1].id, depth=threads[-1].depth + 1))
    await postgres.put(threads[::-1])
    assert await postgres.count(Find(Thread)) == len(threads)


@pytest.mark.parametrize(
    ("spoilt", "error"),
    [
        (lambda thread: a_run(thread, sequence=1).changed(thread_id=new_id()), Refused),
        (lambda thread: a_run(thread).changed(sequence=1, turn=1), LockstitchError),
        (lambda thread: a_run(thread, sequence=500).changed(status="no status"), Refused),
        (lambda thread: a_run(thread, sequence=500).changed(input_tokens=2**70), Refused),
        (lambda thread: a_run(thread, sequence=500).changed(model="\ud800"), Refused),
        (lambda thread: a_run(thread, sequence=500).changed(model="\x00"), Refused),
    ],
)
async def test_put_writes_all_or_none(postgres: PostgresBackend, spoilt: Any, error: type[LockstitchError]) -> None:
    thread = await created(postgres)
    runs: list[Record] = [a_run(thread, sequence=n, turn=n) for n in range(1, 2 * MANY)]
    for place in (0, MANY, len(runs)):
        with pytest.raises(error):
            await postgres.put([*runs[:place], spoilt(thread), *runs[place:]])
        assert await postgres.count(Find(Run)) == 0
    await postgres.put(runs)
    assert await postgres.count(Find(Run)) == len(runs)


async def test_put_rejects_key_in_use(postgres: PostgresBackend) -> None:
    threads = [a_thread(key=str(n)) for n in range(2 * MANY)]
    await postgres.put(threads)
    with pytest.raises(KeyTaken):
        await postgres.put([a_thread(key=str(n)) for n in range(2 * MANY)])
    assert await postgres.count(Find(Thread)) == len(threads)


async def test_put_writes_records_with_only_key_columns(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    blobs = [Blob(sha256=f"{n:064x}", size=1, content=b"x", created_at=NOW) for n in range(2 * MANY)]
    await postgres.put(blobs)
    uses = [BlobUse(thread_id=thread.id, sha256=blob.sha256) for blob in blobs]
    await postgres.put(uses[:MANY])
    await postgres.put(uses)
    assert await postgres.count(Find(BlobUse)) == len(uses)


async def test_many_records_are_written_with_copy(wired: PostgresBackend, wire: Wire) -> None:
    thread = await created(wired)
    wire.forget()
    await wired.put(stitched(thread, *(answered(str(n)) for n in range(MANY + 1))))
    assert [text.split()[0] for text in wire.said] == ["BEGIN", "SELECT", "COPY", "COMMIT"]
    where = (Where("thread_id", "=", thread.id),)
    assert await wired.count(Find(Stitch, where)) == MANY + 1
