"""`start`: a goal for a worker, immediately or at a time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lockstitch.errors import KeyTaken, Refused
from lockstitch.model import FakeClock, format_time
from lockstitch.store import Store

pytestmark = pytest.mark.anyio


async def test_start_creates_pending_goal(store: Store) -> None:
    tasks = ["Count the coins", {"description": "Lock the door", "status": "blocked", "why": "no key"}]
    thread = await store.start(
        "clerk", "Close the day", key="day-1", tasks=tasks, priority=3, user_id="ada", extras={"shop": 7}
    )
    assert await store.thread("day-1") == thread
    assert (thread.kind, thread.status, thread.agent, thread.goal) == ("goal", "pending", "clerk", "Close the day")
    assert (thread.priority, thread.user_id, thread.extras, thread.waiting_for) == (3, "ada", {"shop": 7}, [])
    assert thread.tasks == [
        {"id": "1", "status": "pending", "description": "Count the coins"},
        {"id": "2", "status": "blocked", "description": "Lock the door", "why": "no key"},
    ]
    with pytest.raises(KeyTaken):
        await store.start("clerk", "Close the day", key="day-1")
    await store.start("clerk", "Tidy up", priority=9)
    assert [head.goal for head in await store.claim_next(limit=5)] == ["Tidy up", "Close the day"], "by urgency"


async def test_start_with_time_waits_until_then(timed_store: Store, clock: FakeClock) -> None:
    at = clock.now() + timedelta(minutes=5)
    thread = await timed_store.start("clerk", "Later", at=at.astimezone(timezone(timedelta(hours=2))))
    assert (thread.status, thread.wake_at) == ("waiting", at)
    assert thread.waiting_for == [
        {"kind": "timer", "id": None, "since": format_time(clock.now()), "until": format_time(at)}
    ]
    assert await timed_store.claim_next() == []
    assert await timed_store.execution.seconds_until_ready(["clerk"], None) == 300
    clock.advance(300)
    await timed_store.register_worker()
    assert [head.id for head in await timed_store.claim_next()] == [thread.id]


async def test_start_with_past_time_is_pending(timed_store: Store, clock: FakeClock) -> None:
    thread = await timed_store.start("clerk", "Now", at=clock.now())
    assert (thread.status, thread.waiting_for) == ("pending", [])
    with pytest.raises(Refused, match="time zone"):
        await timed_store.start("clerk", "When?", at=datetime(2999, 1, 1))  # noqa: DTZ001
    assert (await timed_store.start("clerk", "Some day", at=datetime(2999, 1, 1, tzinfo=UTC))).status == "waiting"


async def test_only_postgresql_joins_transaction_of_caller(store: Store, backend: str) -> None:
    with pytest.raises(Refused, match="psycopg" if backend == "postgres" else "PostgreSQL"):
        await store.start("clerk", "g", connection=object())
    assert await store.count() == 0
