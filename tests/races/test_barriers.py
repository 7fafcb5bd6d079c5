"""Pairs of acts that must not come apart, released at the same moment from two processes."""

import os
from collections import Counter

import pytest

from lockstitch.store import Store
from tests.machine.model import SPAWNING_HEEDS_CANCEL
from tests.races.barriers import pairs, play, results_of

pytestmark = pytest.mark.anyio

LONG = os.environ.get("LOCKSTITCH_ROUNDS")


@pytest.fixture
def rounds(backend: str) -> int:
    """The file backend allows one writer at a time, so it has fewer races and needs more time."""
    return int(LONG or (10 if backend == "files" else 25))


@pytest.mark.req("S3-035", "S3-045")
async def test_wakes_parent_that_starts_to_wait_while_last_child_ends(
    store: Store, store_url: str, rounds: int
) -> None:
    families = await pairs(store, rounds, asleep=False)
    waited, finished = await play(store_url, "wait x finish", families)
    assert all(finished)
    for number, pair in enumerate(families):
        head = await store.thread(pair.parent)
        state_after = (head.status, head.waiting_for, head.pending_children, head.delivered)
        assert state_after == ("pending", [], 0, 1), f"round {number}, in which the parent {waited[number]}"
        assert await results_of(store, pair) == [pair.child.id], f"round {number}"
    assert (await store.verify()).problems == []


@pytest.mark.req("S3-035", "S3-037")
async def test_one_writer_wins_when_holder_ends_thread_while_declared_dead(
    store: Store, store_url: str, rounds: int
) -> None:
    families = await pairs(store, rounds, asleep=True)
    reaped, finished = await play(store_url, "reap x finish", families)
    outcomes = Counter(zip(reaped, finished, strict=True))
    assert outcomes.keys() <= {(True, False), (False, True)}, outcomes
    for number, pair in enumerate(families):
        child, head = await store.thread(pair.child), await store.thread(pair.parent)
        assert (child.status, child.worker_id) == ("completed", None), f"round {number}"
        assert child.fence == (3 if reaped[number] else 1), f"round {number}"
        assert (head.status, head.pending_children, head.delivered) == ("pending", 0, 1), f"round {number}"
        assert await results_of(store, pair) == [pair.child.id], f"round {number}"
    assert (await store.verify()).problems == []


async def test_no_child_escapes_a_cancel(store: Store, store_url: str, rounds: int) -> None:
    """The canceller reads the children after its request is committed. Later ones are never created."""
    families = await pairs(store, rounds, asleep=False)
    matches, spawned = await play(store_url, "cancel x spawn", families)
    for number, pair in enumerate(families):
        child, received = spawned[number]
        head = await store.thread(pair.parent)
        assert head.cancel_requested
        assert head.pending_children == (1 if child is None else 2), f"round {number}"
        assert str(pair.child.id) in matches[number]
        # At least the process that spawned a child must learn of the cancel request.
        escaped = child is not None and child not in matches[number]
        assert not escaped or (received and not SPAWNING_HEEDS_CANCEL), f"round {number}: {child} escaped"
    assert (await store.verify()).problems == []
