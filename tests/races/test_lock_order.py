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
    """Families on which all roles play at once; the ids of their roots."""
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
            ended = {child.id for child in tree if child.parent_id == parent.id and child.status == "completed"}
            messages = [stitch.child_id for stitch in await store.stitches(parent) if stitch.child_id]
            messages += [
                delivery.as_entry().child_id
                for delivery in (await store.inbox(parent))[1]
                if delivery.kind == "children"
            ]
            # A parent that had ended before accepts no more reports. Each accepted report is stored once.
            assert len(messages) == len(set(messages))
            assert set(messages) == ended or (parent.ended and set(messages) < ended)
    assert (await store.verify()).problems == []
    assert backend != "postgres" or deadlocks(store_url) == before


@pytest.mark.req("S3-036")
async def test_deletes_do_not_deadlock_with_other_writers(store: Store, store_url: str, backend: str) -> None:
    before = deadlocks(store_url) if backend == "postgres" else 0
    roots = await race(store, store_url, backend, (*ROLES, "delete"))
    left = {thread.id for thread in await store.threads(limit=None)}
    assert not left & {thread.parent_id for thread in await store.threads(limit=None)} - left
    assert not {str(thread) for thread in left} & set(roots)
    assert left == set(), "descendants go with the root, whoever is writing to them"
    assert (await store.verify()).problems == []
    assert backend != "postgres" or deadlocks(store_url) == before
