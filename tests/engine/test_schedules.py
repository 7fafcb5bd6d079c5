"""A worker starts the threads of schedules and executes them."""

from datetime import timedelta

import pytest

from lockstitch.agents import Agent, App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.worker import run_worker
from lockstitch.model import Schedule
from lockstitch.store import Store

pytestmark = pytest.mark.anyio


async def test_worker_executes_threads_of_due_ticks_of_all_projects(store: Store) -> None:
    now = store.clock.now()
    other = store.in_project("other")
    for view, name in ((store, "nightly"), (other, "hourly")):
        made = await view.schedules.add("helper", "Report", name=name, every=3600)
        # The schedule is two hours old, and no worker has run since.
        ago = {"created_at": now - timedelta(hours=2, minutes=5), "next_tick": now - timedelta(minutes=65)}
        await store.table(Schedule).put(made.changed(**ago))
    helper = Agent("helper", model=Scripted(["Done."] * 2), title=False)
    await run_worker(App([helper]), store=store, until_idle=True)

    (thread,) = await store.threads(metadata={"schedule": "nightly"})
    assert (thread.status, thread.goal) == ("completed", "Report")
    assert [run.metadata for run in await store.runs(thread)] == [{"schedule": "nightly"}]
    (elsewhere,) = await other.threads(metadata={"schedule": "hourly"})
    assert elsewhere.status == "completed"
    assert (await other.schedules.get("hourly")).last_thread_id == elsewhere.id
