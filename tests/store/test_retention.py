"""Retention: a purge deletes whole trees, keeps other records, and keeps the usage figures."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import NotFound, ThreadBusy
from lockstitch.model import DailyMetric, Delivery, FakeClock, Feedback, Memory, Run, Stitch, Thread
from lockstitch.store import Store, Transaction
from lockstitch.store.maintenance import retention
from lockstitch.store.reports.statistics import daily_of_threads
from tests.races.processes import call
from tests.samples import begin_turn, finish_turn, said, turn
from tests.waits import waiting

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def ended(store: Store, **fields: Any) -> Thread:
    head = await store.create(**{"kind": "goal", "goal": "g", **fields})
    return (await store.append(head, [said("go")], fields={"status": "completed", "result": {"summary": "s"}})).head


async def remaining_ids(store: Store) -> set[Any]:
    return {thread.id for thread in await store.threads(limit=None, all_projects=True)}


async def test_purges_old_threads_at_rest(timed_store: Store, clock: FakeClock) -> None:
    chat = await turn(timed_store, await timed_store.create(), "Hello", "Hi")
    goal = await ended(timed_store)
    clock.advance(DAY)
    before = clock.now()
    clock.advance(DAY)
    fresh = await ended(timed_store)
    used = await turn(timed_store, await timed_store.create(), "Hello", "Hi")

    assert await timed_store.purge(before=before - timedelta(days=2)) == 0
    assert await timed_store.purge(before=before) == 2
    assert await remaining_ids(timed_store) == {fresh.id, used.id}
    for thread in (chat, goal):
        with pytest.raises(NotFound):
            await timed_store.thread(thread)
    assert {stitch.thread_id for stitch in await timed_store._backend.find(Find(Stitch))} == {fresh.id, used.id}
    assert await timed_store.purge(before=before) == 0


async def test_keeps_old_threads_that_are_not_at_rest(timed_store: Store, clock: FakeClock) -> None:
    now = clock.now()
    held = await timed_store.claim(await timed_store.create(kind="goal", goal="g"))
    pending = await timed_store.create(kind="goal", goal="g")
    approval = {"status": "waiting", "waiting_for": [waiting("approval", now)]}
    waits = (await timed_store.append(await timed_store.create(), [said("go")], fields=approval)).head
    goal_waits = (await timed_store.append(await timed_store.create(kind="goal", goal="g"), fields=approval)).head
    running = (await begin_turn(timed_store, await timed_store.claim(await timed_store.create()), "Hello"))[0].head
    resting = await timed_store.create()
    clock.advance(30 * DAY)

    assert await timed_store.purge(before=clock.now()) == 1
    remaining = {thread.id for thread in (held, pending, waits, goal_waits, running)}
    assert await remaining_ids(timed_store) == remaining
    assert resting.id not in remaining


async def test_purges_whole_tree_or_nothing(timed_store: Store, clock: FakeClock) -> None:
    old_thread, busy, lively = [await ended(timed_store) for _ in range(3)]
    for root in (old_thread, busy, lively):
        await ended(timed_store, parent_id=root.id)
    open_child = await timed_store.create(kind="task", goal="part", parent_id=busy.id)
    clock.advance(2 * DAY)
    before = clock.now()
    clock.advance(DAY)
    late = await ended(timed_store, parent_id=lively.id)

    assert await timed_store.purge(before=before) == 2
    matches = await remaining_ids(timed_store)
    assert old_thread.id not in matches
    assert {busy.id, lively.id, open_child.id, late.id} <= matches
    assert len(matches) == 6


async def test_purges_expired_threads(timed_store: Store, clock: FakeClock) -> None:
    soon = await turn(timed_store, await timed_store.create(expires_at=clock.now() + timedelta(days=1)), "a", "b")
    child = await ended(timed_store, parent_id=soon.id)
    later = await timed_store.create(expires_at=clock.now() + timedelta(days=9))
    never = await timed_store.create()
    at_work = await timed_store.create(kind="goal", goal="g", expires_at=clock.now())
    assert await timed_store.purge() == 0

    clock.advance(DAY)
    assert await timed_store.purge() == 2
    assert await remaining_ids(timed_store) == {later.id, never.id, at_work.id}
    assert child.id not in await remaining_ids(timed_store)
    clock.advance(9 * DAY)
    # A purge of old threads also deletes expired ones, even if they were active recently.
    moved = await turn(timed_store, await timed_store.thread(later), "still", "here")
    assert await timed_store.purge(before=clock.now() - timedelta(days=9)) == 2
    assert moved.id not in await remaining_ids(timed_store)


async def test_purge_keeps_other_projects(timed_store: Store, clock: FakeClock) -> None:
    far = await timed_store.in_project("elsewhere").create(user_id="ada", expires_at=clock.now())
    clock.advance(DAY)

    assert await timed_store.purge() == await timed_store.purge(before=clock.now()) == 0
    assert await timed_store.purge(user_id="ada") == 0
    assert await remaining_ids(timed_store) == {far.id}


async def test_purges_all_records_of_a_user(timed_store: Store, clock: FakeClock) -> None:
    times = {"created_at": clock.now(), "updated_at": clock.now()}
    thread = await turn(timed_store, await timed_store.create(user_id="ada"), "Hello", "Hi")
    child = await ended(timed_store, parent_id=thread.id, user_id="ada")
    helper = await ended(timed_store, parent_id=child.id)
    waits = await timed_store.create(user_id="ada", kind="goal", goal="g")
    await timed_store.deliver(waits, said("more"), kind="input", sender="ada")
    other_thread = await turn(timed_store, await timed_store.create(user_id="bob"), "Hello", "Hi")
    for user, project in (("ada", "default"), ("bob", "default"), ("ada", "elsewhere"), (None, "default")):
        await timed_store.memories.put(Memory(user_id=user, project=project, text="likes tea", **times))
    await timed_store.feedback.put(
        Feedback(user_id="ada", thread_id=other_thread.id, name="stars", **times),
        Feedback(user_id="bob", thread_id=thread.id, name="stars", **times),
        Feedback(user_id="bob", thread_id=other_thread.id, name="stars", **times),
    )

    assert await timed_store.purge(user_id="ada") == 4

    assert await remaining_ids(timed_store) == {other_thread.id}
    assert helper.id not in await remaining_ids(timed_store)
    memories = await timed_store.memories.list()
    assert {(memory.user_id, memory.project) for memory in memories} == {
        *(("bob", "default"), ("ada", "elsewhere"), (None, "default"))
    }
    assert [(feedback.user_id, feedback.thread_id) for feedback in await timed_store.feedback.list()] == [
        ("bob", other_thread.id)
    ]
    assert await timed_store._backend.find(Find(Delivery)) == []
    assert {run.thread_id for run in await timed_store._backend.find(Find(Run))} == {other_thread.id}
    assert await timed_store.purge(user_id="ada") == 0


async def test_purges_held_threads_only_by_force(timed_store: Store, clock: FakeClock) -> None:
    times = {"created_at": clock.now(), "updated_at": clock.now()}
    resting = await turn(timed_store, await timed_store.create(user_id="ada"), "Hello", "Hi", input_tokens=5)
    idle = await turn(timed_store, await timed_store.create(user_id="bob"), "Hello", "Hi")
    held_thread = await timed_store.claim(await timed_store.create(user_id="bob", kind="goal", goal="g"))
    run = timed_store.new_run(held_thread).changed(input_tokens=7)
    held_thread = (await timed_store.append(held_thread, [said("go", run_id=run.id)], new_runs=[run])).head
    await timed_store.memories.put(Memory(user_id="bob", text="likes tea", **times))

    with pytest.raises(ThreadBusy):
        await timed_store.purge(user_id="bob")
    assert await remaining_ids(timed_store) == {resting.id, idle.id, held_thread.id}
    # Usage of threads that were not deleted is not in the daily metrics.
    assert await timed_store._backend.find(Find(DailyMetric)) == []
    assert await timed_store.purge(user_id="bob", force=True) == 2
    assert await remaining_ids(timed_store) == {resting.id}
    assert [metric.input_tokens for metric in await timed_store._backend.find(Find(DailyMetric))] == [7]
    assert await timed_store.memories.list() == []


async def test_purge_keeps_usage_in_daily_metrics(timed_store: Store, clock: FakeClock) -> None:
    async def run_of(agent: str | None, model: str | None, **fields: Any) -> None:
        head = await timed_store.create(agent=agent)
        committed, run = await begin_turn(timed_store, head, "q", model=model)
        await finish_turn(timed_store, committed.head, run, "a", **fields)

    await run_of("helper", "m", input_tokens=10, output_tokens=1, cache_read_tokens=4, total_cost=0.25)
    await run_of("helper", "m", input_tokens=20, output_tokens=2, cache_write_tokens=5, status="failed")
    await run_of("helper", "n", input_tokens=3, total_cost=0.5)
    await run_of(None, None, input_tokens=4)
    clock.advance(DAY)
    await run_of("helper", "m", input_tokens=100, total_cost=1.0)
    clock.advance(DAY)
    assert await timed_store.purge(before=clock.now()) == 5

    metrics = {(m.day, m.agent, m.model): m for m in await timed_store._backend.find(Find(DailyMetric))}
    assert len(metrics) == 4
    metric = metrics["2026-01-01", "helper", "m"]
    assert (metric.runs, metric.failed_runs, metric.input_tokens, metric.output_tokens) == (2, 1, 30, 3)
    assert (metric.cache_read_tokens, metric.cache_write_tokens, metric.total_cost) == (4, 5, 0.25)
    assert metrics["2026-01-01", "helper", "n"].total_cost == 0.5
    assert metrics["2026-01-01", "", ""].input_tokens == 4
    assert metrics["2026-01-02", "helper", "m"].input_tokens == 100

    await run_of("helper", "m", input_tokens=1)
    clock.advance(DAY)
    await timed_store.purge(before=clock.now())
    assert len(await timed_store._backend.find(Find(DailyMetric))) == 5


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_killed_purge_loses_and_repeats_no_figures(timed_store: Store, clock: FakeClock, store_url: str) -> None:
    for number in range(3):
        head = await timed_store.create()
        committed, run = await begin_turn(timed_store, head, "q")
        await finish_turn(timed_store, committed.head, run, "a", input_tokens=10**number)
    clock.advance(DAY)
    victim, number, left = "tests.races.statements:purge_killed_at", 0, {3}
    while await asyncio.to_thread(call, victim, store_url, clock.now().timestamp(), number := number + 4):
        runs = await timed_store._backend.find(Find(Run))
        metrics = await timed_store._backend.find(Find(DailyMetric))
        assert sum(run.input_tokens for run in runs) + sum(metric.input_tokens for metric in metrics) == 111
        assert await timed_store._backend.count(Find(Stitch)) == 2 * len(runs)
        assert (await timed_store.verify()).ok
        left.add(len(runs))
    assert number > 12
    assert len(left) > 1, "some kills came after a commit"
    assert [metric.input_tokens for metric in await timed_store._backend.find(Find(DailyMetric))] == [111]
    assert await remaining_ids(timed_store) == set()


async def test_purges_more_threads_than_one_page(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_PAGE", 4)
    await timed_store.commit(Transaction(new_threads=[timed_store.new_thread() for _ in range(12)]))
    clock.advance(DAY)

    assert await timed_store.purge(before=clock.now()) == 12
    assert await timed_store.count() == 0


class _Meeting:
    """Lets two purges read the figures of the same tree before either of them deletes it."""

    def __init__(self) -> None:
        self._waiting = 0
        self._both = asyncio.Event()

    async def daily_of_threads(self, *arguments: Any) -> list[DailyMetric]:
        metrics = await daily_of_threads(*arguments)
        self._waiting += 1
        if self._waiting == 2:
            self._both.set()
        await self._both.wait()
        return metrics


@pytest.mark.parametrize("whose", ["old", "user"])
async def test_concurrent_purges_count_a_run_once(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    await turn(timed_store, await timed_store.create(user_id="ada"), "Hello", "Hi", input_tokens=10)
    clock.advance(DAY)
    which: dict[str, Any] = {"before": clock.now()} if whose == "old" else {"user_id": "ada"}
    monkeypatch.setattr(retention, "daily_of_threads", _Meeting().daily_of_threads)

    assert sorted(await asyncio.gather(*(timed_store.purge(**which) for _ in range(2)))) == [0, 1]
    usage = await timed_store.statistics.usage()
    assert (usage.total.runs, usage.total.input_tokens) == (1, 10)


async def test_purge_counts_nothing_if_the_thread_was_used_since(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await turn(timed_store, await timed_store.create(), "Hello", "Hi", input_tokens=10)
    clock.advance(DAY)

    async def used_since(*arguments: Any) -> list[DailyMetric]:
        metrics = await daily_of_threads(*arguments)
        await turn(timed_store, head, "Again", "Hi", input_tokens=5)
        return metrics

    monkeypatch.setattr(retention, "daily_of_threads", used_since)
    assert await timed_store.purge(before=clock.now()) == 0
    usage = await timed_store.statistics.usage()
    assert (usage.total.runs, usage.total.input_tokens) == (2, 15)


async def test_two_purges_of_one_day_add_their_figures(timed_store: Store, clock: FakeClock) -> None:
    for _ in range(2):
        await turn(timed_store, await timed_store.create(user_id="ada"), "Hello", "Hi", input_tokens=10)
        assert await timed_store.purge(user_id="ada") == 1
    usage = await timed_store.statistics.usage()
    assert (usage.total.runs, usage.total.input_tokens) == (2, 20)
