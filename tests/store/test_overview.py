"""`overview`: figures of threads for a list."""

import pytest

from lockstitch.model import FakeClock
from lockstitch.store import Store
from tests.samples import begin_turn, finish_turn, turn

pytestmark = pytest.mark.anyio


async def test_overview_sums_own_runs_of_thread(timed_store: Store, clock: FakeClock) -> None:
    head = await timed_store.create(key="k", agent="helper", version=2)
    tokens = {"input_tokens": 10, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 1}
    head = await turn(timed_store, head, "q", "a", **tokens, total_cost=0.1)
    head = await turn(timed_store, head, "q", "a", **tokens, total_cost=0.2)
    committed, run = await begin_turn(timed_store, head, "q")
    head = (await finish_turn(timed_store, committed.head, run, "no", status="failed", error="it broke")).head
    fresh = await timed_store.create()

    overview, other_overview = await timed_store.overview([head, fresh])

    assert overview.as_json() == {
        "id": str(head.id),
        "key": "k",
        "project": "default",
        "kind": "chat",
        "status": "waiting",
        "waiting_for": head.waiting_for,
        "agent": "helper",
        "version": 2,
        "title": None,
        "goal": None,
        "user_id": None,
        "parent_id": None,
        "position": 6,
        "runs": 3,
        "usage": {
            "input_tokens": 20,
            "output_tokens": 4,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 6,
        },
        "total_cost": 0.1 + 0.2,
        "error": "it broke",
        "scores": {},
        "created_at": "2026-01-01T00:00:00.000000Z",
        "updated_at": "2026-01-01T00:00:00.000000Z",
    }
    assert (
        other_overview.runs,
        other_overview.total_cost,
        other_overview.error,
        sum(other_overview.usage.values()),
    ) == (0, None, None, 0)
    assert await timed_store.overview([fresh, head]) == [other_overview, overview]
    assert await timed_store.overview([]) == []
