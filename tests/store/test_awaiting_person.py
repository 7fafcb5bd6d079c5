"""`awaiting_person`: threads that wait for a person, longest first."""

from datetime import timedelta

import pytest

from lockstitch.backend import Find, Where
from lockstitch.model import FakeClock, Thread
from lockstitch.store import Store
from tests.waits import waiting

pytestmark = pytest.mark.anyio


async def test_lists_threads_that_wait_for_a_person(timed_store: Store, clock: FakeClock) -> None:
    store = timed_store
    for number in range(5):
        await store.create(key=f"idle-{number}")
    started = clock.now()
    expected = {
        "doubt": [waiting("doubt", started, "c1")],
        "answer": [
            waiting("timer", started - timedelta(days=1)),
            waiting("input", started + timedelta(minutes=1), "c2"),
        ],
        "approval": [waiting("approval", started + timedelta(hours=1), "c3"), waiting("frontend_tools", started, "c4")],
        "children": [waiting("children", started, ids=["x"])],
        "idle": [waiting("input", started)],
    }
    for key, waits in reversed(expected.items()):
        head = await store.create(key=key, kind="goal", goal="g")
        await store.append(head, fields={"status": "waiting", "waiting_for": waits})
    assert [thread.key for thread in await store.awaiting_person()] == ["approval", "doubt", "answer"]
    first = await store.awaiting_person(limit=1)
    assert [thread.key for thread in await store.awaiting_person(limit=5, after=first[0])] == ["doubt", "answer"]
    assert await store.count_awaiting_person() == 3
    assert await store.in_project("other").count_awaiting_person() == 0
    head = await store.thread("doubt")
    await store.append(head, fields={"status": "pending", "waiting_for": []})
    assert [thread.key for thread in await store.awaiting_person()] == ["approval", "answer"]
    threads = await store._backend.find(Find(Thread, (Where("awaiting_person_since", "is not null"),)))
    assert {thread.key for thread in threads} == {"approval", "answer"}
