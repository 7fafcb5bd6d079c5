"""A small store: a chat of four turns, a failed goal with two children, and another project."""

import asyncio
from dataclasses import dataclass
from typing import Any

from lockstitch.model import Entry, Run, Thread
from lockstitch.model.message import build, reference
from lockstitch.store import Store, open_store
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn

HOSTILE = "Charge me twice \x1b[31mplease\x1b[0m [bold]now[/bold]"


@dataclass
class Story:
    url: str
    chat: Thread
    charge: Run
    goal: Thread
    failed: Run
    children: list[Thread]
    elsewhere: Thread


def tell(url: str) -> Story:
    """Write the story into the store at `url`."""
    return asyncio.run(write_story(url))


def within(url: str, work: Any) -> Any:
    """Return the result of `await work(store)` on the store at `url`."""

    async def run() -> Any:
        async with open_store(url) as store:
            return await work(store)

    return asyncio.run(run())


async def write_story(url: str) -> Story:
    async with open_store(url) as store:
        chat = await store.create(
            key="customer-42",
            agent="helper",
            version=3,
            user_id="ada",
            title="The lost parcel",
            settings={"system": "be kind", "max_steps": 50},
        )
        for number in range(3):
            chat = await turn(
                store,
                chat,
                f"Where is parcel {number}?",
                f"Parcel {number} is in Graz.",
                input_tokens=1000 + number,
                output_tokens=100,
                total_cost=0.25,
            )
        chat, charge = await _charge(store, chat)
        goal, failed, children = await _fail(store)
        async with open_store(url, project="elsewhere") as other_store:
            elsewhere = await turn(other_store, await other_store.create(key="customer-42"), "Anybody?", "Nobody.")
            await other_store.append(elsewhere, [Entry(type="error", data={"error": "elsewhere"})])
        return Story(url, chat, charge, goal, failed, children, elsewhere)


async def _charge(store: Store, chat: Thread) -> tuple[Thread, Run]:
    """A turn with two parallel tools, one of which fails, and with requests that can be rebuilt."""
    committed, run = await begin_turn(store, chat, HOSTILE, model="scripted-1")
    system = await store.store_text(chat, "be kind")
    request = build({"model": "scripted-1"}, "be kind", [], await store.context(chat))
    data = {"request": reference({"model": "scripted-1"}, system, None, request)}
    step = await store.append(
        committed.head, [asked("c1", "c2", name="charge", run_id=run.id, data=data, duration_ms=900)]
    )
    reply = step.stitches[0].position
    done = await store.append(
        step.head,
        [
            Entry(type="tool_started", name="charge", call_id="c1", run_id=run.id, step_number=1),
            Entry(
                type="tool_error",
                name="charge",
                call_id="c2",
                run_id=run.id,
                step_number=1,
                data={"error": "card declined"},
            ),
            result("c2", 1, reply, "declined", name="charge", run_id=run.id, step_number=1, duration_ms=12),
            result("c1", 0, reply, "charged 12 EUR", name="charge", run_id=run.id, step_number=1, duration_ms=1234),
        ],
    )
    finished = await finish_turn(store, done.head, run, "Charged once.", input_tokens=3000, output_tokens=20)
    return finished.head, run


async def _fail(store: Store) -> tuple[Thread, Run, list[Thread]]:
    goal = await store.create(kind="goal", goal="Find every lost parcel", agent="leader")
    children = [
        store.new_thread(kind="task", goal=f"Look in the {place}", agent="scout", parent_id=goal.id, depth=1)
        for place in ("north", "south")
    ]
    run = store.new_run(goal, input_position=1)
    committed = await store.append(goal, [said("go", run_id=run.id)], new_runs=[run], new_threads=children)
    now = store.clock.now()
    finished = await store.append(
        committed.head,
        [Entry(type="run_failed", run_id=run.id, data={"error": "the model refused"})],
        run_updates=[(run, {"status": "failed", "error": "the model refused", "completed_at": now})],
        fields={"status": "failed", "result": {"error": "the model refused"}},
    )
    return finished.head, run, children


async def long_chat(store: Store, turns: int, key: str = "long") -> Thread:
    """A chat of many short turns, with the numbers 1 to `turns` as its questions."""
    head = await store.create(key=key)
    for number in range(1, turns + 1):
        head = await turn(store, head, f"question {number}", f"answer {number}", input_tokens=10, output_tokens=number)
    return head


async def open_turn(store: Store, key: str) -> Thread:
    """A chat in the middle of a turn."""
    committed, run = await begin_turn(store, await store.create(key=key), "Are you there?")
    return (await store.append(committed.head, [answered("Wait…", run_id=run.id)])).head
