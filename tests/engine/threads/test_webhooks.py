"""Webhooks: called at least once when a thread fails or starts to wait for a person, with one idempotency key."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.agents.app import App
from lockstitch.backend import Find
from lockstitch.engine import webhooks
from lockstitch.engine.cancel import cancel
from lockstitch.errors import Refused
from lockstitch.model import Json, WebhookEvent
from lockstitch.store import Store, open_store
from tests.engine.agents import calls as asked
from tests.engine.agents import pay, scripted
from tests.engine.receiver import Receiver
from tests.engine.threads.families import agent, asks, work_off

pytestmark = pytest.mark.anyio


async def stored_events(store: Store) -> list[WebhookEvent]:
    return await store._backend.find(Find(WebhookEvent, order=("id",)))


async def test_webhook_gets_failed_thread(store: Store, receiver: Receiver, monkeypatch: Any):
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.0)
    lead = scripted({"fail": "request", "message": "no key"}, name="lead", max_retries=0)
    app = App([lead], hooks=[receiver.url])
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="g", key="k")

    await work_off(app, store)
    await app.close()
    # A worker that has just stopped may have started a delivery.
    await app.deliver_webhooks(store)

    assert len({key for key, _ in receiver.got}) == 1
    key, body = receiver.got[-1]
    assert key == body["id"]
    assert (body["event"], body["thread_id"], body["key"]) == ("failed", str(goal.id), "k")
    assert (body["agent"], body["goal"], body["project"]) == ("lead", "g", store.project)
    assert "no key" in body["error"]
    assert await stored_events(store) == [], "a sent event is deleted"


async def test_function_gets_thread_that_waits_for_person(store: Store):
    received: list[Json] = []

    async def hook(event: Json) -> None:
        received.append(event)

    lead = agent("lead", asked("pay", pay={"amount": 5}), "ok", tools=[pay])
    lead = App([lead], hooks={"ops": hook}).agent(lead.name)

    await lead.run("Pay", store=store, thread="t")

    ((payload),) = received
    assert payload["event"] == "waiting"
    ((wait),) = payload["waiting_for"]
    assert (wait["kind"], wait["name"]) == ("approval", "pay")


async def test_sends_no_event_when_thread_waits_for_children(store: Store):
    received: list[Json] = []
    lead = agent("lead", asks(("create_thread", {"goal": "c", "wait_for_completion": True})), "ok", max_depth=1)
    lead = App([lead], hooks={"ops": received.append}).agent(lead.name)
    await lead.run("Go", store=store, thread="t", detach=True)
    await lead.executor(store).resume(await store.thread("t"))
    assert received == []
    assert await stored_events(store) == []


async def test_retries_failed_webhook(store: Store, store_url: str, receiver: Receiver, monkeypatch: Any):
    """In another process too, with an increasing delay. The key stays the same."""
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.0)
    receiver.status = 500
    lead = agent("lead", asks(("ask_for_input", {"question": "?"})), "ok")
    app = App([lead], hooks={"ops": receiver.url})
    lead = app.agent(lead.name)
    await lead.run("Go", store=store, thread="t")
    (stored_event,) = await stored_events(store)
    assert (stored_event.tries, stored_event.event) == (1, "waiting")

    receiver.status = 200
    async with open_store(store_url) as other_store:
        await app.deliver_webhooks(other_store)

    assert len(receiver.got) == 2
    assert len({key for key, _ in receiver.got}) == 1
    assert await stored_events(store) == []


async def test_webhook_delay_increases(store: Store):
    def refuse(_: Json) -> None:
        raise OSError("gone")

    lead = agent("lead", asks(("ask_for_input", {"question": "?"})), "ok")
    app = App([lead], hooks={"ops": refuse})
    lead = app.agent(lead.name)
    await lead.run("Go", store=store, thread="t")
    (stored_event,) = await stored_events(store)
    assert stored_event.due_at - store.clock.now() > timedelta(seconds=3)
    await store._backend.put([stored_event.changed(tries=20, due_at=store.clock.now())])
    await app.deliver_webhooks(store)
    (stored_event,) = await stored_events(store)
    assert timedelta(minutes=59) < stored_event.due_at - store.clock.now() <= timedelta(hours=1)


async def test_ignores_webhooks_of_other_apps(store: Store):
    received: list[Json] = []
    lead = agent("lead", asks(("ask_for_input", {"question": "?"})), "ok")
    lead = App([lead], hooks={"theirs": lambda _: (_ for _ in ()).throw(OSError("away"))}).agent(lead.name)
    await lead.run("Go", store=store, thread="t")
    await App([agent("other", "ok")], hooks={"ours": received.append}).deliver_webhooks(store)
    assert received == []
    assert len(await stored_events(store)) == 1


async def test_deletes_webhook_events_with_thread(store: Store):
    lead = agent("lead", asks(("ask_for_input", {"question": "?"})), "ok")
    lead = App([lead], hooks={"ops": lambda _: asyncio.sleep(60)}).agent(lead.name)
    telling_soon = asyncio.create_task(lead.run("Go", store=store, thread="t"))
    for _ in range(500):
        if await stored_events(store):
            break
        await asyncio.sleep(0.01)
    telling_soon.cancel()
    await asyncio.wait([telling_soon])
    assert len(await stored_events(store)) == 1
    await cancel(store, "t")
    await store.delete("t")
    assert await stored_events(store) == []


def test_rejects_webhook_that_is_not_function_or_url():
    with pytest.raises(Refused, match="is not a function or an http"):
        App([agent("lead", "ok")], hooks=["ftp://x"])
