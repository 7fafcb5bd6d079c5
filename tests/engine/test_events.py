"""Live text: written during a model call, deleted after the commit, and never the cause of a failure."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lockstitch import Agent, App, StoreError
from lockstitch.backend import Find
from lockstitch.engine import events
from lockstitch.engine.events import Event, LiveTextWriter, delete_stale_deltas
from lockstitch.engine.worker import run_worker
from lockstitch.model import LiveDelta, Record, Thread
from lockstitch.store import Store
from lockstitch.testing import Scripted

pytestmark = pytest.mark.anyio

TEXT = "one two three four five six seven eight nine ten "


async def stored_deltas(store: Store) -> list[LiveDelta]:
    return await store._backend.find(Find(LiveDelta, order=("number",)))


async def held(store: Store) -> Thread:
    return await store.claim(await store.create(kind="goal", goal="Speak", agent="a"))


def text_event(head: Thread, run: object, text: str, *, step: int = 0, kind: str = "text") -> Event:
    return Event(kind, head.id, run.id, "a", step, {"text": text})  # type: ignore[arg-type, attr-defined]


async def until(store: Store, number: int) -> list[LiveDelta]:
    async with asyncio.timeout(60):
        while len(deltas := await stored_deltas(store)) != number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return deltas


async def test_writes_numbered_deltas_and_deletes_them_after_commit(store: Store) -> None:
    head = await held(store)
    run = store.new_run(head)
    speaking = LiveTextWriter(store, head)
    for word in ("one ", "two "):
        speaking.on_event(text_event(head, run, word))
    speaking.on_event(text_event(head, run, "hm", kind="thinking"))
    first = await until(store, 2)
    assert [delta.text["text"] for delta in first] == ["one two ", "hm"]
    assert [delta.number for delta in first] == [(head.fence << 32) + 1, (head.fence << 32) + 2]
    assert {(delta.step_number, delta.text["attempt"]) for delta in first} == {(1, f"{head.fence}.0")}
    # A retry starts again with a new attempt number.
    speaking.on_event(Event("retry", head.id, run.id, "a", 0))
    speaking.on_event(text_event(head, run, "again \ud800"))
    second_delta = (await until(store, 3))[-1]
    assert (second_delta.text["attempt"], second_delta.text["text"]) == (f"{head.fence}.1", "again \ufffd")
    # Text of the next step follows the commit of this one.
    speaking.on_event(text_event(head, run, "next", step=1))
    (following,) = await until(store, 1)
    assert (following.step_number, following.text["text"]) == (2, "next")
    speaking.on_event(Event("tool_call", head.id, run.id, "a", 2))
    await until(store, 0)
    speaking.on_event(text_event(head, run, "last", step=2))
    await speaking.close()
    assert await stored_deltas(store) == []


async def test_does_not_write_deltas_of_short_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    put_records = store._backend.put

    async def counted(records: Sequence[Record], **options: Any) -> None:
        written.extend(record for record in records if isinstance(record, LiveDelta))
        await put_records(records, **options)

    monkeypatch.setattr(store._backend, "put", counted)
    # The interval is long, so that the answer is committed before it ends on any machine.
    monkeypatch.setattr(events, "WRITE_INTERVAL_SECONDS", 60.0)
    agent = Agent("quick", model=Scripted(["Hello."]), title=False)
    thread = await agent.start(store=store, goal="Greet")
    await run_worker(App([agent]), store=store, until_idle=True)
    assert (await store.thread(thread)).status == "completed"
    assert written == []


async def test_text_of_complete_response_waits_for_its_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_COMMIT_SECONDS", 3600.0)
    head = await held(store)
    run, member = store.new_run(head), store.new_run(head)
    speaking = LiveTextWriter(store, head)
    speaking.on_event(text_event(head, run, "whole"))
    speaking.on_response(run.id)
    assert speaking._timer is not None
    assert speaking._timer.when() > asyncio.get_running_loop().time() + 1800
    # Text of another run is not postponed.
    speaking.on_event(text_event(head, member, "part"))
    speaking.on_response(run.id)
    assert [delta.text["text"] for delta in await until(store, 2)] == ["whole", "part"]
    await speaking.close()
    assert await stored_deltas(store) == []


async def test_run_completes_when_store_rejects_deltas(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put_records, tries = store._backend.put, 0

    async def refused(records: Sequence[Record], **options: Any) -> None:
        nonlocal tries
        if any(isinstance(record, LiveDelta) for record in records):
            tries += 1
            raise StoreError("No room for chatter.")
        await put_records(records, **options)

    monkeypatch.setattr(store._backend, "put", refused)
    monkeypatch.setattr(events, "WRITE_INTERVAL_SECONDS", 0.01)
    agent = Agent("slow", model=Scripted([{"text": TEXT, "chunk": 5, "pause": 0.01}]), title=False)
    thread = await agent.start(store=store, goal="Count")
    await run_worker(App([agent]), store=store, until_idle=True)
    assert tries > 1
    assert (await store.thread(thread)).status == "completed"
    started = next(stitch for stitch in await store.stitches(thread) if stitch.type == "run_started")
    assert started.data["queue_present"] is False


async def test_deletes_deltas_of_dead_workers(store: Store) -> None:
    head = await held(store)
    run = store.new_run(head)
    leftover = LiveDelta(thread_id=head.id, run_id=run.id, step_number=1, number=1, text={"text": "left"})
    await store._backend.put([leftover])
    # Deltas of an earlier holder are deleted when the next holder writes. The first holder has none.
    assert head.fence == 1
    speaking = LiveTextWriter(store, head.changed(fence=2))
    speaking.on_event(text_event(head, run, "new"))
    async with asyncio.timeout(60):
        while [delta.text["text"] for delta in await stored_deltas(store)] != ["new"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    # Deltas of a held thread stay. Deltas of threads without a holder are deleted.
    await delete_stale_deltas(store)
    assert len(await stored_deltas(store)) == 1
    await store.append(head, fields={"status": "pending"})
    await delete_stale_deltas(store)
    assert await stored_deltas(store) == []
