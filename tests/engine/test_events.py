"""Live text: written while it is said, gone once it is committed, and never a reason for anything to fail."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lockstitch import Agent, App, StoreError
from lockstitch.backend import Find
from lockstitch.engine import events
from lockstitch.engine.events import Event, LiveTextWriter, sweep
from lockstitch.engine.worker import run_worker
from lockstitch.model import LiveDelta, Record, Thread
from lockstitch.store import Store
from lockstitch.testing import Scripted

pytestmark = pytest.mark.anyio

TEXT = "one two three four five six seven eight nine ten "


async def kept(store: Store) -> list[LiveDelta]:
    return await store._backend.find(Find(LiveDelta, order=("number",)))


async def held(store: Store) -> Thread:
    return await store.claim(await store.create(kind="goal", goal="Speak", agent="a"))


def said(head: Thread, run: object, text: str, *, step: int = 0, kind: str = "text") -> Event:
    return Event(kind, head.id, run.id, "a", step, {"text": text})  # type: ignore[arg-type, attr-defined]


async def until(store: Store, number: int) -> list[LiveDelta]:
    async with asyncio.timeout(60):
        while len(found := await kept(store)) != number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


async def test_words_are_gathered_numbered_and_taken_away(store: Store) -> None:
    head = await held(store)
    run = store.new_run(head)
    speaking = LiveTextWriter(store, head)
    for word in ("one ", "two "):
        speaking.on_event(said(head, run, word))
    speaking.on_event(said(head, run, "hm", kind="thinking"))
    first = await until(store, 2)
    assert [one.text["text"] for one in first] == ["one two ", "hm"]
    assert [one.number for one in first] == [(head.fence << 32) + 1, (head.fence << 32) + 2]
    assert {(one.step_number, one.text["attempt"]) for one in first} == {(1, f"{head.fence}.0")}
    # A retry begins anew, and says so.
    speaking.on_event(Event("retry", head.id, run.id, "a", 0))
    speaking.on_event(said(head, run, "again \ud800"))
    again = (await until(store, 3))[-1]
    assert (again.text["attempt"], again.text["text"]) == (f"{head.fence}.1", "again \ufffd")
    # What the next step says comes after the commit of this one.
    speaking.on_event(said(head, run, "next", step=1))
    (following,) = await until(store, 1)
    assert (following.step_number, following.text["text"]) == (2, "next")
    speaking.on_event(Event("tool_call", head.id, run.id, "a", 2))
    await until(store, 0)
    speaking.on_event(said(head, run, "last", step=2))
    await speaking.close()
    assert await kept(store) == []


async def test_a_short_answer_is_never_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    put = store._backend.put

    async def counted(records: Sequence[Record], **options: Any) -> None:
        written.extend(record for record in records if isinstance(record, LiveDelta))
        await put(records, **options)

    monkeypatch.setattr(store._backend, "put", counted)
    # However slow the machine is, the answer is committed before the time has come.
    monkeypatch.setattr(events, "PAUSE", 60.0)
    agent = Agent("quick", model=Scripted(["Hello."]), title=False)
    thread = await agent.start(store=store, goal="Greet")
    await run_worker(App([agent]), store=store, until_idle=True)
    assert (await store.thread(thread)).status == "completed"
    assert written == []


async def test_a_store_that_refuses_it_harms_no_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put, tries = store._backend.put, 0

    async def refused(records: Sequence[Record], **options: Any) -> None:
        nonlocal tries
        if any(isinstance(record, LiveDelta) for record in records):
            tries += 1
            raise StoreError("No room for chatter.")
        await put(records, **options)

    monkeypatch.setattr(store._backend, "put", refused)
    monkeypatch.setattr(events, "PAUSE", 0.01)
    agent = Agent("slow", model=Scripted([{"text": TEXT, "chunk": 5, "pause": 0.01}]), title=False)
    thread = await agent.start(store=store, goal="Count")
    await run_worker(App([agent]), store=store, until_idle=True)
    assert tries > 1
    assert (await store.thread(thread)).status == "completed"
    started = next(one for one in await store.stitches(thread) if one.type == "run_started")
    assert started.data["queue_present"] is False


async def test_leftovers_of_the_dead_vanish(store: Store) -> None:
    head = await held(store)
    run = store.new_run(head)
    left = LiveDelta(thread_id=head.id, run_id=run.id, step_number=1, number=1, text={"text": "left"})
    await store._backend.put([left])
    # Those of an earlier holder go when the next one speaks.
    speaking = LiveTextWriter(store, head)
    speaking.on_event(said(head, run, "new"))
    async with asyncio.timeout(60):
        while [one.text["text"] for one in await kept(store)] != ["new"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    # What a holder says now stays; what nobody holds any more goes.
    await sweep(store)
    assert len(await kept(store)) == 1
    await store.append(head, fields={"status": "pending"})
    await sweep(store)
    assert await kept(store) == []
