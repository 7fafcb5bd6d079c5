"""`fill`: put two weeks of history and some open threads of the demo into a store."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from lockstitch.agents import cancel
from lockstitch.apps.notebooks import Notebooks
from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.cli.demo import evaluations, notebook, plans
from lockstitch.cli.demo.office import app, pace
from lockstitch.cli.demo.pace import Event
from lockstitch.engine.worker import WorkerLoop
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.langsmith.reader import read
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.model import FakeClock, SystemClock, codec
from lockstitch.store import Store, open_store
from lockstitch.store.annotation import give_feedback

DAYS: Final = 14
_QUESTIONS: Final = ("Where is my parcel?", "Can I change my plan?", "The invoice has the wrong name.")
_PEOPLE: Final = ("ada.l", "bo.h", "cem.y", "dana.o", "eli.r", "fay.m")


async def fill(url: str, *, project: str = "default", now: datetime | None = None) -> None:
    """Play all events into an empty store in their order."""
    now = now or SystemClock().now()
    clock = FakeClock(now - timedelta(days=DAYS))
    pace.clock = clock
    try:
        async with open_store(url, project=project, clock=clock) as store:
            await app.setup(store)
            for moment, happen in sorted([*_everyday(now), *_lately(now)], key=lambda event: event[0]):
                clock.advance(max(0.0, (moment - clock.now()).total_seconds()))
                await happen(store, clock)
    finally:
        pace.clock = None


def _everyday(now: datetime) -> Iterator[Event]:
    """Yield everyday questions, more on working days, so that the statistics have data."""
    for day in range(DAYS):
        morning = now - timedelta(days=DAYS - day)
        busy = 9 if morning.weekday() < 5 else 3
        for number in range(busy):
            requested = _QUESTIONS[(day + number) % len(_QUESTIONS)]
            person = _PEOPLE[(day * busy + number) % len(_PEOPLE)]
            at = morning + timedelta(minutes=23 * number + pace.chance.randint(0, 15))
            key = f"chat-{day:02}-{number}"
            yield at, partial(_say, "support", requested, key=key, user_id=person)
            if number % 3 == 1:
                yield at + timedelta(minutes=4), partial(_rate, key, person, helpful=(day + number) % 4 > 0)
        if day % 3 == 1:
            yield morning, partial(_goal, "writer", "Postmortem draft: checkout latency", f"postmortem-{day:02}")
        if day % 4 == 2:
            requested = "Translate the release notes to Finnish"
            yield morning, partial(_say, "translate", requested, key=f"notes-{day:02}", user_id="bo.h")


def _lately(now: datetime) -> Iterator[Event]:
    """Yield recent events and threads that wait for a reply."""

    def ago(**time: float) -> datetime:
        return now - timedelta(**time)

    yield from evaluations.story(now, app.agents["support"])
    yield ago(hours=50), _in_doubt
    lease = partial(_say, "legal", "Redlines for the Aldermoor lease", key="aldermoor", user_id="dana.o")
    yield ago(hours=5, minutes=14), lease
    goal = "A ranked review of 5 suppliers with sources, for the board"
    yield ago(hours=26), partial(_plan, "mika.s", plans.YEAR, plans.year_tasks())
    yield ago(minutes=52), partial(_plan, "ada.l", plans.CHECKOUT, plans.CHECKOUT_TASKS)
    for moment, happen in notebook.story(now):
        yield moment, partial(happen, app.plugin(Notebooks))
    yield ago(minutes=49), partial(_goal, "review-lead", goal, "suppliers")
    yield ago(minutes=31), _trace
    yield ago(minutes=30), _cancelled_goal
    refund = (
        "I was charged twice for order 10482, please send one of them back. And I have moved, so the parcel should go "
        "to my new address."
    )
    title = "Refund for order 10482, charged twice"
    yield ago(minutes=13), partial(_say, "support", refund, key="customer-42", user_id="ada.l", title=title)
    yield ago(minutes=4), partial(_say, "people", "Onboard Ines Duarte", key="ines", user_id="hr")
    yield now, _still_to_come


async def _still_to_come(store: Store, clock: FakeClock) -> None:
    """Start threads that the server executes while a user looks at the pages."""
    later = clock.now() + timedelta(hours=2, minutes=41)
    await app.agents["watcher"].start(store=store, goal="Watch the tide tables of Rotterdam", key="tides", at=later)
    await app.agents["triage"].start(store=store, goal="Nightly triage of 214 issues", key="triage")


async def _cancelled_goal(store: Store, clock: FakeClock) -> None:
    thread = await app.agents["researcher"].start(store=store, goal="Review supplier Halden Glass", key="halden")
    await cancel(store, thread)


async def _say(
    agent: str, text: str, store: Store, clock: FakeClock, *, key: str, user_id: str, title: str | None = None
) -> None:
    await app.agents[agent].run(text, store=store, thread=key, user_id=user_id)
    await store.edit(key, title=title or text)


async def _rate(key: str, user: str, store: Store, clock: FakeClock, *, helpful: bool) -> None:
    comment = None if helpful else "This did not answer my question."
    run = (await store.runs(key))[-1].id
    await give_feedback(store, "helpful", run=run, score=float(helpful), comment=comment, user_id=user)


async def _goal(agent: str, goal: str, key: str, store: Store, clock: FakeClock) -> None:
    """Start a goal and run a worker until the goal and its children have ended."""
    thread = await app.agents[agent].start(store=store, goal=goal, key=key)
    worker = WorkerLoop(app, store, until_idle=True, poll=0.01)
    moving = asyncio.create_task(worker.run())
    while not moving.done():
        await asyncio.sleep(0.01)
        head = await store.thread(thread.id)
        if head.ended:
            break
        clock.advance(0.05)
    worker.stop()
    await moving


async def _plan(user: str, outcome: str, tasks: str, store: Store, clock: FakeClock) -> None:
    """Prioritise a list of tasks."""
    prioritizer = app.plugin(Prioritizer)
    await repository.add_file(store, user, tasks, "tasks.md")
    wanted = await repository.add_outcome(store, user, outcome)
    await prioritizer.prioritize(store, user, wanted.id)


async def _in_doubt(store: Store, clock: FakeClock) -> None:
    """Interrupt a run during a call that must happen only once, so that the outcome is unknown."""
    infra = app.agents["infra"]
    # Closing the stream releases the thread before the next process resumes it.
    async with aclosing(infra.stream("Renew the wildcard certificate", store=store, thread="certificate")) as events:
        async for event in events:
            if event.type == "tool_call" and event.data.get("name") == "dns_update":
                break
    clock.advance(1)
    await infra.resume("certificate", store=store)
    await store.edit("certificate", title="Renew the wildcard certificate")


async def _trace(store: Store, clock: FakeClock) -> None:
    """Ingest a trace of another system, in the format of its client."""
    await SpanIngest(store, LangSmith()).write(read(codec.dumps(_spans(clock.now())), "checkout-graph.json"))


def _spans(began: datetime) -> list[dict[str, Any]]:
    def span(number: int, name: str, kind: str, start: float, took: float, **fields: Any) -> dict[str, Any]:
        ident = f"0199f2c4-0000-7000-8000-{number:012d}"
        return {
            "id": ident,
            "trace_id": "0199f2c4-0000-7000-8000-000000000001",
            "parent_run_id": None if number == 1 else "0199f2c4-0000-7000-8000-000000000001",
            "name": name,
            "run_type": kind,
            "start_time": (began + timedelta(seconds=start)).isoformat(),
            "end_time": (began + timedelta(seconds=start + took)).isoformat(),
            "session_name": "checkout",
            "extra": {"metadata": {"thread_id": "checkout-graph", "ls_integration": "langgraph"}},
            **fields,
        }

    usage = {"usage_metadata": {"input_tokens": 4_210, "output_tokens": 188, "total_tokens": 4_398}}
    body = {"messages": [[{"type": "human", "data": {"content": "Is the basket still valid?"}}]]}
    message = {"type": "ai", "data": {"content": "Yes, until 18:00.", **usage}}
    answer = {"generations": [[{"text": "Yes, until 18:00.", "message": message}]]}
    return [
        span(1, "checkout-graph", "chain", 0, 6.2, inputs={"basket": "b_81"}, outputs={"ok": True}),
        span(2, "read_basket", "tool", 0.1, 0.9, inputs={"basket": "b_81"}, outputs={"output": "3 items"}),
        span(3, "ChatModel", "llm", 1.1, 3.4, inputs=body, outputs=answer),
        span(4, "reserve_stock", "tool", 4.6, 1.4, inputs={"basket": "b_81"}, outputs={"output": "reserved"}),
    ]
