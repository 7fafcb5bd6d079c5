"""delete: whole trees, any number of threads, and blobs that get new references concurrently."""

import asyncio

import psycopg
import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.sql.dialect import MANY
from lockstitch.errors import ThreadBusy
from lockstitch.model import Blob, BlobUse, Run, Stitch, Thread
from tests.backends.postgres.until import until
from tests.conformance.contract import NOW, a_run, a_thread, change, commit, created, held
from tests.samples import said

pytestmark = pytest.mark.anyio


def named(*threads: Thread) -> Find[Thread]:
    return Find(Thread, (Where("id", "in", [thread.id for thread in threads]),))


async def test_delete_checks_and_removes_descendants(postgres: PostgresBackend) -> None:
    root = await created(postgres)
    child = await created(postgres, parent_id=root.id, depth=1)
    grandchild = await held(postgres, await created(postgres, parent_id=child.id, depth=2))
    run = a_run(grandchild)
    await commit(postgres, change(grandchild, said("x", run_id=run.id), new_runs=[run]))
    with pytest.raises(ThreadBusy) as busy:
        await postgres.delete(named(root))
    assert busy.value.thread_id == grandchild.id
    assert await postgres.count(Find(Thread)) == 3
    assert await postgres.delete(named(root), force=True) == 1
    for kind in (Thread, Run, Stitch):
        assert await postgres.count(Find(kind)) == 0


async def test_deletes_more_threads_than_a_statement_has_parameters(postgres: PostgresBackend) -> None:
    threads = [a_thread(title="x") for _ in range(3 * MANY)]
    remaining = [a_thread(title="kept") for _ in range(10)]
    await postgres.put([*threads, *remaining])
    deleted_ids = [thread.id for thread in threads[: 2 * MANY]]
    assert len(await postgres.find(Find(Thread, (Where("id", "in", deleted_ids),)))) == len(deleted_ids)
    assert await postgres.delete(Find(Thread, (Where("title", "=", "x"),))) == len(threads)
    assert await postgres.count(Find(Thread, (Where("title", "in", ["kept"] * 2 * MANY),))) == len(remaining)
    assert await postgres.count(Find(Thread)) == len(remaining)


async def test_delete_keeps_blob_with_concurrent_new_reference(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    old_thread, new_thread = await created(postgres), await created(postgres)
    blob = Blob(sha256="0" * 64, size=1, content=b"x", created_at=NOW)
    await postgres.put([blob])
    await postgres.put([BlobUse(thread_id=old_thread.id, sha256=blob.sha256)])
    with admin.transaction():
        admin.execute("INSERT INTO lockstitch.blob_uses VALUES (%s, %s)", [new_thread.id, blob.sha256])
        deletion = asyncio.ensure_future(postgres.delete(named(old_thread)))
        blocked = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await until(lambda: admin.execute(blocked).fetchall())
    assert await deletion == 1
    assert await postgres.get(Blob, (blob.sha256,)) == blob


async def test_concurrent_deletes_of_one_tree_succeed(postgres: PostgresBackend) -> None:
    """Locks are taken in one order, so the two cannot deadlock."""
    root = await created(postgres)
    children = [await created(postgres, parent_id=root.id, depth=1) for _ in range(20)]
    finds = [named(root), named(*children), named(root, *children), named(*children[::-1])]
    deleted = await asyncio.gather(*(postgres.delete(find) for find in finds))
    assert await postgres.count(Find(Thread)) == 0
    assert sum(deleted) >= 1
