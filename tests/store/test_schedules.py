"""Schedules: a tick starts one thread, under kills, races and clocks that jump."""

import asyncio
from datetime import timedelta

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.model import FakeClock, Schedule, Thread
from lockstitch.store import Store
from lockstitch.store.transaction import Transaction
from tests.races.processes import call, run

pytestmark = pytest.mark.anyio


async def ticks(store: Store) -> list[str]:
    """Return the minute of each tick that started a thread, in the order of the ticks."""
    threads = await store.threads(limit=1000, all_projects=True)
    return sorted(thread.state["schedule"]["tick"][14:16] for thread in threads)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/b", "a\nb"])
async def test_refuses_names_that_urls_cannot_have(store: Store, name: str) -> None:
    with pytest.raises(Refused, match="not valid for a schedule"):
        await store.schedules.add("helper", "Write the report", name=name, every=60)
    assert await store.schedules.all() == []


async def test_unknown_zones_do_not_keep_other_schedules_from_starting(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time zones of these schedules are known only on the machine that added them."""
    store = timed_store
    monkeypatch.setattr("lockstitch.store.schedules._AT_ONCE", 2)
    for number in range(4):
        await store.schedules.add("helper", "Write", name=f"unknown {number}", cron="* * * * *")
    schedules = await store._backend.find(Find(Schedule))
    await store._backend.put([schedule.changed(time_zone="Nowhere/Unknown") for schedule in schedules])
    await store.schedules.add("helper", "Write", name="known", every=61)
    clock.advance(120)
    (thread,) = (await store.schedules.start_due()).threads
    assert thread.state["schedule"]["name"] == "known"
    assert await store.schedules.start_due() == ([], 2.0)


async def test_starts_pauses_and_removes(timed_store: Store, clock: FakeClock) -> None:
    store = timed_store
    schedule = await store.schedules.add(
        "helper", "Write the report", cron=" */5  * * * *", title="Report", user_id="ada", priority=2, extras={"n": 1}
    )
    assert (schedule.name, schedule.cron, schedule.next_tick) == ("helper", "*/5 * * * *", clock.now() + MINUTE * 5)
    await store.in_project("other").schedules.add("helper", "Clean up", every=timedelta(hours=1), name="hourly")
    with pytest.raises(Conflict, match="Schedule helper already exists in project default"):
        await store.schedules.add("helper", "Again", every=60)
    with pytest.raises(Refused, match="whole seconds"):
        await store.schedules.add("helper", "Again", name="x", every=0.5)
    assert [each.name for each in await store.schedules.all()] == ["helper"]
    assert await store.schedules.all(agent="other") == await store.schedules.all(after="helper") == []

    assert await store.schedules.start_due(all_projects=True) == ([], 300.0)
    clock.advance(300)
    ((thread,), seconds) = await store.schedules.start_due()
    assert seconds == 0.0
    about = {"id": str(schedule.id), "name": "helper", "tick": "2026-01-01T00:05:00.000000Z"}
    assert thread.state == {"schedule": about}
    expected = ("goal", "pending", "helper", "Write the report", "Report", "ada", 2, {"n": 1})
    stored = await store.thread(thread.id)
    fields = ("kind", "status", "agent", "goal", "title", "user_id", "priority", "extras")
    assert tuple(getattr(stored, name) for name in fields) == expected
    schedule = await store.schedules.get("helper")
    assert (schedule.last_tick, schedule.last_thread_id) == (clock.now(), thread.id)
    assert await store.schedules.start_due() == ([], 300.0)

    assert (await store.schedules.pause("helper")).next_tick is None
    clock.advance(3600)
    assert await store.schedules.start_due() == ([], None)
    ((hourly,), _) = await store.schedules.start_due(all_projects=True)
    assert (hourly.project, hourly.goal) == ("other", "Clean up")
    by_hand = await store.schedules.run_now("helper")
    assert by_hand.state["schedule"]["tick"] is None
    assert (await store.schedules.get("helper")).last_thread_id == by_hand.id
    # The ticks of the pause do not count as missed.
    assert (await store.schedules.resume("helper")).next_tick == clock.now() + MINUTE * 5
    await store.schedules.remove("helper")
    with pytest.raises(NotFound, match="Schedule helper not found"):
        await store.schedules.pause("helper")
    assert (await store.thread(thread.id)).id == thread.id

    await store.schedules.add("helper", "Write the report", every=60, user_id="ada")
    await store.purge(user_id="ada")
    assert await store.schedules.all() == []


MINUTE = timedelta(minutes=1)


async def test_clock_that_jumps_never_repeats_a_tick(timed_store: Store, clock: FakeClock) -> None:
    store = timed_store
    for missed in ("once", "skip", "all"):
        await store.schedules.add("helper", "Go", name=missed, every=60, missed=missed)

    async def started() -> list[tuple[str, str]]:
        threads: list[Thread] = []
        while (due := await store.schedules.start_due()).seconds == 0.0:
            threads += due.threads
        return sorted((each.state["schedule"]["name"], each.state["schedule"]["tick"][14:16]) for each in threads)

    clock.advance(60)
    assert await started() == [("all", "01"), ("once", "01"), ("skip", "01")]
    clock.advance(-50)
    assert await started() == [], "the clock was set back"
    clock.advance(50)
    assert await started() == []
    clock.advance(4 * 60 + 10)
    assert await started() == [
        ("all", "02"),
        ("all", "03"),
        ("all", "04"),
        ("all", "05"),
        ("once", "05"),
        ("skip", "05"),
    ]
    # Ticks of the future of a wrong clock have happened. A pause does not repeat them either.
    clock.advance(-300)
    await store.schedules.pause("all")
    assert (await store.schedules.resume("all")).next_tick == clock.now() + timedelta(seconds=350)
    assert await started() == []

    # A schedule that was restored from a backup knows nothing of its last ticks. Its threads do.
    clock.advance(300)
    old = (await store.schedules.get("all")).changed(next_tick=clock.now() - timedelta(seconds=70), last_tick=None)
    await store.table(Schedule).put(old)
    assert await started() == []
    assert (await store.schedules.get("all")).next_tick == clock.now() + timedelta(seconds=50)


async def test_a_change_by_a_user_is_not_lost_to_a_tick(timed_store: Store, clock: FakeClock) -> None:
    store = timed_store
    await store.schedules.add("helper", "Go", every=60)
    seen = await store.schedules.get("helper")
    clock.advance(60)
    await store.schedules.pause("helper")
    # A worker has read the schedule before the pause, and writes after it.
    transaction = Transaction(new_threads=[store.new_thread(kind="goal", goal="Go")])
    transaction.change(seen, {"next_tick": clock.now()}, seen=("id", "next_tick"))
    with pytest.raises(Conflict, match="changed or deleted"):
        await store.commit(transaction)
    assert await store.threads() == []
    await store.schedules.remove("helper")
    with pytest.raises(Conflict, match="changed or deleted"):
        await store.commit(transaction)
    assert await store.schedules.all() == []


async def test_edits_schedule_without_losing_ticks_or_other_changes(timed_store: Store, clock: FakeClock) -> None:
    store = timed_store
    first = await store.schedules.add("helper", "Go", every=60, title="Report")
    clock.advance(59)
    edited = await store.schedules.edit("helper", goal="Go out", title="", missed="skip", priority=3)
    assert (edited.goal, edited.title, edited.missed, edited.priority) == ("Go out", None, "skip", 3)
    assert (edited.id, edited.created_at, edited.next_tick) == (first.id, first.created_at, first.next_tick)
    assert await store.schedules.get("helper") == edited
    # A worker has read the schedule before the change of its goal. Its tick starts again, with the new goal.
    clock.advance(1)
    again = await store.schedules.edit("helper", goal="Go home")
    assert await store.schedules._start_ticks(edited, clock.now()) == ()
    (thread,) = (await store.schedules.start_due()).threads
    assert thread.goal == "Go home"
    with pytest.raises(Conflict, match=r"was changed since you read it\. Nothing was written"):
        await store.schedules.edit("helper", updated_at=edited.updated_at, goal="Overwrite")
    assert (await store.schedules.edit("helper", updated_at=again.updated_at, agent="other")).goal == "Go home"

    # The tick at 00:02 of the old times has not happened, and is dropped with them.
    clock.advance(61)
    daily = await store.schedules.edit("helper", cron=" 0 7  * * *", time_zone="Europe/Berlin")
    assert (daily.cron, daily.interval_seconds, daily.times) == ("0 7 * * *", None, "0 7 * * * Europe/Berlin")
    assert daily.next_tick is not None
    assert daily.next_tick.hour == 6
    assert (await store.schedules.start_due()).threads == []
    for fields in ({"cron": "0 25 * * *"}, {"every": 0.5}, {"goal": ""}, {"time_zone": "Nowhere"}, {"priority": 2**40}):
        with pytest.raises(Refused):
            await store.schedules.edit("helper", **fields)  # pyright: ignore[reportArgumentType]
    with pytest.raises(Refused, match="either a cron expression or an interval"):
        await store.schedules.edit("helper", cron="* * * * *", every=60)
    assert await store.schedules.edit("helper", agent="other") == daily, "nothing to change"
    assert (await store.schedules.pause("helper")).next_tick is None
    assert (await store.schedules.edit("helper", every=60)).next_tick is None
    resumed = await store.schedules.resume("helper")
    assert (resumed.cron, resumed.next_tick) == (None, first.created_at + 3 * MINUTE)
    with pytest.raises(NotFound):
        await store.schedules.edit("missing", goal="Go")

    # Changes of different fields at the same time: none is lost.
    changes = ({"goal": "A"}, {"title": "B"}, {"user_id": "C"}, {"priority": 9}, {"agent": "D"}, {"missed": "all"})
    await asyncio.gather(*(store.schedules.edit("helper", **change) for change in changes))
    last = await store.schedules.get("helper")
    assert (last.goal, last.title, last.user_id) == ("A", "B", "C")
    assert (last.priority, last.agent, last.missed) == (9, "D", "all")


async def test_one_thread_per_tick_of_many_processes_and_after_kills(store: Store, store_url: str) -> None:
    await store.schedules.add("helper", "Go", every=3600, missed="all")
    made = (await store.schedules.get("helper")).created_at.timestamp()

    async def state() -> tuple[int, float]:
        schedule = await store.schedules.get("helper")
        assert schedule.next_tick is not None
        return await store._backend.count(Find(Thread)), (schedule.next_tick.timestamp() - made) / 3600

    kill = "tests.races.schedules:killed_at"
    assert await asyncio.to_thread(call, kill, store_url, made + 3600, "append.before:1") == 9
    assert await state() == (0, 1.0), "killed before the commit"
    assert await asyncio.to_thread(call, kill, store_url, made + 3600, "append.after:1") == 9
    assert await state() == (1, 2.0), "killed after the commit"

    hours = 20
    calls = [[store_url, made, number, hours] for number in range(4)]
    shares = await asyncio.to_thread(run, "tests.races.schedules:tick_on", calls)
    assert await state() == (hours, hours + 1.0)
    assert sum(shares) == hours - 1, "each tick was started by one process"
    seen = {thread.state["schedule"]["tick"] for thread in await store.threads(limit=1000)}
    assert len(seen) == hours
