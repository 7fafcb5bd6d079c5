"""Writers that need several threads lock them in one order, so they never deadlock."""

import asyncio

import psycopg
import pytest

from lockstitch.store import Store
from tests.races.families import family
from tests.races.processes import run

pytestmark = pytest.mark.anyio

ROUNDS = {"files": 3, "sqlite": 6, "postgres": 6}
"""The file backend allows one writer at a time, so it has fewer races and needs more time."""

ROLES = ("end", "end", "cancel", "edit", "deliver")


async def race(store: Store, url: str, backend: str, roles: tuple[str, ...]) -> list[str]:
    """Let all roles act on families concurrently. Return the ids of the roots."""
    roots = [str((await family(store)).id) for _ in range(ROUNDS[backend])]
    calls = [[url, role, roots, seed] for seed, role in enumerate(roles)]
    await asyncio.to_thread(run, "tests.races.families:parts", calls, seconds=100)
    return roots


def deadlocks(url: str) -> int:
    """Return the deadlocks in this database so far. Earlier tests may have used it, some without safeguards."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
        return row[0] if row else 0


@pytest.mark.req("S3-034", "S3-036")
async def test_ends_do_not_deadlock_with_cancels_edits_and_deliveries(
    store: Store, store_url: str, backend: str
) -> None:
    before = deadlocks(store_url) if backend == "postgres" else 0
    for root in await race(store, store_url, backend, ROLES):
        tree = await store.tree(root)
        assert len(tree) == 13
        for parent in tree:
            finished_ids = {child.id for child in tree if child.parent_id == parent.id and child.status == "completed"}
            reported_ids = [stitch.child_id for stitch in await store.stitches(parent) if stitch.child_id]
            reported_ids += [
                delivery.as_entry().child_id
                for delivery in (await store.inbox(parent))[1]
                if delivery.kind == "children"
            ]
            # A parent that had ended before accepts no further reports. Each accepted report is stored once.
            assert len(reported_ids) == len(set(reported_ids))
            assert set(reported_ids) == finished_ids or (parent.ended and set(reported_ids) < finished_ids)
    assert (await store.verify()).problems == []
    assert backend != "postgres" or deadlocks(store_url) == before


@pytest.mark.req("S3-036")
async def test_deletes_do_not_deadlock_with_other_writers(store: Store, store_url: str, backend: str) -> None:
    before = deadlocks(store_url) if backend == "postgres" else 0
    roots = await race(store, store_url, backend, (*ROLES, "delete"))
    remaining_ids = {thread.id for thread in await store.threads(limit=None)}
    assert not remaining_ids & {thread.parent_id for thread in await store.threads(limit=None)} - remaining_ids
    assert not {str(thread) for thread in remaining_ids} & set(roots)
    assert remaining_ids == set(), "descendants are deleted with the root, also while other processes write to them"
    assert (await store.verify()).problems == []
    assert backend != "postgres" or deadlocks(store_url) == before
