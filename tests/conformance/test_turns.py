"""claim in turns: no project waits until another one has no ready threads. With a fake clock."""

from collections import Counter
from datetime import timedelta

import pytest

from lockstitch.model import FakeClock, Thread, Worker
from lockstitch.store import Store
from tests.conformance.contract import a_goal, registered

pytestmark = pytest.mark.anyio


async def fill(store: Store, **numbers: int) -> list[Thread]:
    """Create this number of ready threads of each project."""
    now = store.clock.now()
    threads = [
        a_goal(project=project, agent="helper", wake_at=now + timedelta(microseconds=place))
        for project, number in numbers.items()
        for place in range(number)
    ]
    await store._backend.put(threads)
    return threads


async def projects(store: Store, worker: Worker, **more: object) -> str:
    return "".join(head.project for head in await store._backend.claim(worker.id, **more))


@pytest.fixture
async def worker(timed_store: Store, clock: FakeClock) -> Worker:
    worker = await registered(timed_store._backend, lease_seconds=1000.0)
    clock.advance(1)
    return worker


@pytest.mark.parametrize("limit", [1, 10])
async def test_large_project_does_not_delay_another(
    timed_store: Store, clock: FakeClock, worker: Worker, limit: int
) -> None:
    await fill(timed_store, a=1000, b=1)
    clock.advance(1)
    last, claimed = "", ""
    while "b" not in claimed:
        claimed += await projects(timed_store, worker, limit=limit, after=last)
        last = claimed[-1]
        assert len(claimed) <= 20


async def test_projects_take_turns(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    await fill(timed_store, a=5, b=2, c=1)
    clock.advance(1)
    assert await projects(timed_store, worker, limit=20) == "abcabaaa"


@pytest.mark.parametrize(
    ("after", "order"), [("", "abcd"), ("a", "bcda"), ("bb", "cdab"), ("d", "abcd"), ("zzz", "abcd"), ("c", "dabc")]
)
async def test_turns_start_after_last_project_and_wrap_around(
    timed_store: Store, clock: FakeClock, worker: Worker, after: str, order: str
) -> None:
    await fill(timed_store, b=1, d=1, a=1, c=1)
    clock.advance(1)
    assert await projects(timed_store, worker, limit=2, after=after) == order[:2]
    assert await projects(timed_store, worker, limit=3, after=order[1]) == order[2:]


async def test_single_claims_alternate_between_projects(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    await fill(timed_store, a=3, b=2, c=2)
    clock.advance(1)
    order = ""
    while claimed := await projects(timed_store, worker, after=order[-1:]):
        order += claimed
    assert order == "abcabca"


async def test_projects_are_ordered_by_code_point(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    """Two processes on two backends have the same turns, independent of the collation of a database."""
    await fill(timed_store, é=1, b=1, B=1, _=1, z=1)
    clock.advance(1)
    assert await projects(timed_store, worker, limit=9) == "B_bzé"
    await fill(timed_store, é=1, b=1, B=1, _=1, z=1)
    clock.advance(1)
    assert await projects(timed_store, worker, limit=9, after="b") == "zéB_b"


async def test_most_urgent_thread_of_all_agents_comes_first_in_project(
    timed_store: Store, clock: FakeClock, worker: Worker
) -> None:
    now = clock.now()
    threads = [
        a_goal(agent=agent, priority=priority, wake_at=now, project=project)
        for agent, priority, project in (("x", 0, "a"), ("y", 5, "a"), (None, 3, "a"), ("x", 9, "b"), ("y", -1, "b"))
    ]
    await timed_store._backend.put(threads)
    heads = await timed_store._backend.claim(worker.id, limit=9)
    assert [(head.project, head.priority) for head in heads] == [("a", 5), ("b", 9), ("a", 3), ("b", -1), ("a", 0)]


async def test_unknown_agents_do_not_block_claims(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    now = clock.now()
    other_threads = [a_goal(agent="theirs", project=f"p{number}", priority=9, wake_at=now) for number in range(30)]
    own_threads = [a_goal(agent=agent, project="q", wake_at=now) for agent in ("ours", "mine")]
    await timed_store._backend.put([*other_threads, *own_threads])
    claimed = await timed_store._backend.claim(worker.id, agents=["mine", "ours", "unknown", "mine"], limit=9)
    assert {head.id for head in claimed} == {thread.id for thread in own_threads}


async def test_projects_with_later_timers_do_not_block_claims(
    timed_store: Store, clock: FakeClock, worker: Worker
) -> None:
    """More of them than wanted, before and after the ready one, and with higher priority."""
    now = clock.now()
    later = now + timedelta(hours=1)
    other_threads = [a_goal(project=f"{side}{number}", wake_at=later) for side in "az" for number in range(25)]
    urgent = [a_goal(project="m", priority=9, wake_at=later) for _ in range(25)]
    ready = a_goal(project="m", wake_at=now)
    await timed_store._backend.put([*other_threads, *urgent, ready])
    for after in ("", "b", "m", "z5"):
        (claimed,) = await timed_store._backend.claim(worker.id, after=after)
        assert claimed.id == ready.id
        await timed_store._backend.put([ready])


async def test_claims_of_one_project_take_no_turns(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    threads = await fill(timed_store, a=2, b=2)
    clock.advance(1)
    heads = await timed_store._backend.claim(worker.id, project="b", after="b", agents=["helper"], limit=9)
    assert [head.id for head in heads] == [thread.id for thread in threads if thread.project == "b"]


async def test_store_continues_with_next_project(timed_store: Store, clock: FakeClock) -> None:
    await fill(timed_store, a=9, b=3, c=3)
    clock.advance(1)
    claimed = [head.project for _ in range(9) for head in await timed_store.claim_next()]
    assert Counter(claimed) == {"a": 3, "b": 3, "c": 3}
    assert "".join(claimed) == "abcabcabc"
