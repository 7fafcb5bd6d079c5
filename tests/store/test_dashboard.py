"""`DashboardReader`: open threads, workers and costs of a store."""

from datetime import timedelta

import pytest

from lockstitch.model import FakeClock
from lockstitch.store import Store
from lockstitch.store.reports.dashboard import Costs, DashboardReader
from tests.samples import turn
from tests.waits import waiting

pytestmark = pytest.mark.anyio


async def test_shows_open_threads_and_counts_idle_chats(store: Store) -> None:
    await turn(store, await store.create(key="idle"), "Hello", "Hi", total_cost=0.5)
    now = store.clock.now()
    approval = [waiting("approval", now, id="c1", name="pay")]
    asking = await store.create(key="asking", status="waiting", waiting_for=approval)
    await store.start("clerk", "Later")
    goal = await store.start("clerk", "Now", priority=1, tasks=["a", "b"])
    (held_thread,) = await store.claim_next()
    child = await store.create(kind="task", goal="part", parent_id=goal.id, status="waiting", waiting_for=approval)
    dashboard = await DashboardReader(store, all_projects=True).read()
    assert dashboard.counts == {"running": 1, "waiting": 3, "pending": 1}
    nodes = {tree.thread.id: tree for tree in dashboard.trees}
    assert set(nodes) == {goal.id, asking.id}
    assert [node.thread.id for node in nodes[goal.id].children] == [child.id]
    (worker,) = dashboard.workers
    assert worker.id == held_thread.worker_id
    assert [thread.id for thread in dashboard.held[worker.id]] == [goal.id]
    assert (dashboard.cost_today, dashboard.cost_shown) == (0.5, None)
    only = await DashboardReader(store, all_projects=True, thread_id=asking.id).read()
    assert ([tree.thread.id for tree in only.trees], only.workers) == ([asking.id], [])


async def test_hides_dead_workers_after_a_minute(timed_store: Store, clock: FakeClock) -> None:
    worker = await timed_store.register_worker()
    painter = DashboardReader(timed_store, all_projects=True)
    clock.advance(7)
    dashboard = await painter.read()
    assert (dashboard.workers[0].dead, dashboard.seconds_since_heartbeat(worker)) == (False, 7.0)
    await timed_store._backend.release(worker.id)
    assert [worker.dead for worker in (await painter.read()).workers] == [True]
    clock.advance(60)
    assert (await painter.read()).workers == []


async def test_shows_one_project_or_all_projects(store: Store) -> None:
    acme = store.in_project("acme")
    await turn(store, await store.create(), "Hello", "Hi", total_cost=0.5)
    await turn(acme, await acme.create(), "Hello", "Hi", total_cost=0.25)
    await acme.start("clerk", "g")
    dashboard_reader, all_of_them = DashboardReader(acme, all_projects=False), DashboardReader(acme, all_projects=True)
    assert ((await dashboard_reader.read()).counts["pending"], (await dashboard_reader.read()).cost_today) == (1, 0.25)
    assert (await all_of_them.read()).counts == {"running": 0, "waiting": 2, "pending": 1}
    assert (await all_of_them.read()).cost_today == 0.75
    assert (await DashboardReader(store, all_projects=False).read()).counts["pending"] == 0


async def test_cost_of_today_includes_open_runs_and_restarts_at_midnight(timed_store: Store, clock: FakeClock) -> None:
    store, costs = timed_store, Costs(timed_store, all_projects=True)
    assert await costs.today() is None
    head = await store.create()
    run = store.new_run(head).changed(total_cost=1.0)
    head = (await store.append(head, new_runs=[run])).head
    assert await costs.today() == 1.0
    clock.advance(3600)
    await turn(store, await store.create(), "Hello", "Hi", total_cost=0.5)
    await store.append(head, run_updates=[(run, {"total_cost": 3.0})])
    assert await costs.today() == 3.5, "an open run continues to cost"
    clock.advance(timedelta(days=1).total_seconds())
    assert await costs.today() is None
    assert await Costs(store, all_projects=True).today() is None
