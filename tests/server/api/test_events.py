"""Event streams: each stitch once and in order, also after reconnects, and streamed text."""

import asyncio
from contextlib import aclosing, suppress

import httpx2
import pytest

from lockstitch import Entry, ThreadBusy
from lockstitch.backend import Find
from lockstitch.engine.events import LiveTextWriter
from lockstitch.engine.worker import WorkerLoop
from lockstitch.model import LiveDelta
from lockstitch.server import Settings
from lockstitch.server import app as server
from lockstitch.server.streams import project
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.store import Store, open_store
from tests.server.api import agents
from tests.server.api.reading import Event, events
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


async def written(store: Store, number: int, **fields: object) -> str:
    head = await store.create(kind="goal", goal="Count", **fields)
    await store.append(head, [Entry(type="note", data={"number": index}) for index in range(number)])
    return str(head.id)


@pytest.mark.req("S3-070", "S0-140")
async def test_reconnecting_reader_gets_each_stitch_once(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 7)
    for position in range(8):
        received = [
            event async for event in events(http, f"/api/threads/{ref}/events?until=now", after=position or None)
        ]
        assert [event.id for event in received if event.type == "stitch"] == list(range(position + 1, 8))
        assert [event.type for event in received if event.type != "stitch"] == ["status", "end"]
        assert received[-1].data["position"] == 7
    by_parameter = [event async for event in events(http, f"/api/threads/{ref}/events?until=now&after=5")]
    assert [event.data["position"] for event in by_parameter if event.type == "stitch"] == [6, 7]
    nonsense = await http.get(f"/api/threads/{ref}/events?until=now", headers={"Last-Event-ID": "never"})
    assert nonsense.text.count("event: stitch") == 7
    assert "[DONE]" not in nonsense.text


@pytest.mark.req("S3-070")
async def test_stream_sends_new_stitches(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 1)
    received: list[Event] = []

    async with asyncio.timeout(60), aclosing(events(http, f"/api/threads/{ref}/events")) as stream:
        async for event in stream:
            received.append(event)
            if event.type == "status" or event.id == 2:
                if (position := (await store.thread(ref)).position) < 3 and event.data["status"] != "completed":
                    await store.append(await store.thread(ref), [Entry(type="note", data={"number": position + 1})])
            elif event.id == 3:
                changes = {"status": "completed", "result": {"summary": "3"}}
                await store.append(await store.thread(ref), fields=changes)
    assert [event.id for event in received if event.type == "stitch"] == [1, 2, 3]
    assert [event.data["status"] for event in received if event.type == "status"] == ["pending", "completed"]
    assert (received[-1].type, received[-1].data["result"]) == ("end", {"summary": "3"})


async def test_reader_moves_to_another_server_when_its_server_stops(store: Store, store_url: str) -> None:
    """Two servers share the store. The reader continues at its last position, and gets each stitch once."""
    ref = await written(store, 2)
    received: list[int | None] = []

    async def read(url: str, last: int) -> None:
        async with caller(url) as http, aclosing(events(http, f"/api/threads/{ref}/events", after=last)) as stream:
            async for event in stream:
                if event.type == "stitch":
                    received.append(event.id)
                    await store.append(await store.thread(ref), [Entry(type="note", data={})])
                if len(received) % 4 == 0:
                    return

    async with asyncio.timeout(60), open_store(store_url) as second:
        async with serving(store) as url:
            await read(url, 0)
        async with serving(second) as url:
            await read(url, received[-1] or 0)
    assert received == list(range(1, 9))


async def test_stream_ends_when_the_thread_is_deleted(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 1)
    async with asyncio.timeout(60):
        async for event in events(http, f"/api/threads/{ref}/events"):
            if event.type == "status":
                await store.delete(ref)
            last = event
    assert (last.type, last.data["status"]) == ("end", "deleted")
    assert (await http.get(f"/api/threads/{ref}/events")).status_code == 404


async def test_streams_end_when_the_server_stops(store: Store) -> None:
    ref = await written(store, 1)
    began = asyncio.get_running_loop().time()
    async with httpx2.AsyncClient(timeout=30) as http:
        async with serving(store) as url:
            http.base_url = httpx2.URL(url)
            streams = [events(http, f"/api/threads/{ref}/events"), events(http, "/api/events")]
            for stream in streams:
                assert (await anext(stream)).type in ("stitch", "status")
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 1.5
        for stream in streams:
            assert all(event.type != "end" for event in [event async for event in stream])


async def test_subscription_ends_when_the_client_disconnects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    change_feeds: list[ChangeFeed] = []
    monkeypatch.setattr(server, "ChangeFeed", lambda store: change_feeds.append(ChangeFeed(store)) or change_feeds[-1])
    ref = await written(store, 1)
    async with serving(store) as url, caller(url) as http:
        streams = [events(http, f"/api/threads/{ref}/events"), events(http, "/api/events")]
        for stream in streams:
            await anext(stream)
        assert change_feeds[0].readers == 2
        for stream in streams:
            await stream.aclose()
        async with asyncio.timeout(60):
            while change_feeds[0].readers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.req("S3-070")
async def test_project_stream_sends_status_changes(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "ALL", 0.1)
    monkeypatch.setattr(project, "LOOK", 0.1)
    ref = await written(store, 1)
    other_thread = await store.in_project("other").create(title="theirs")
    received: list[Event] = []
    async with asyncio.timeout(60), aclosing(events(http, "/api/events")) as stream:
        async for event in stream:
            received.append(event)
            if event.data["status"] == "pending":
                await store.in_project("other").edit(other_thread, title="again")
                changes = {"status": "completed", "result": {"summary": "done"}}
                await store.append(await store.thread(ref), [Entry(type="note")], fields=changes)
            elif event.data["status"] == "completed":
                await store.delete(ref)
            elif event.data["status"] == "deleted":
                break
    assert {event.data["thread_id"] for event in received} == {ref}
    assert [event.data["status"] for event in received] == ["pending", "completed", "deleted"]


async def test_stream_sends_deltas_of_a_worker_in_another_process(store: Store, store_url: str) -> None:
    """The worker has a separate store object, as in another process. The server only reads."""
    app = agents.app()
    async with open_store(store_url) as elsewhere, serving(store, app, Settings(work=False)) as url:
        loop = WorkerLoop(agents.app(), elsewhere)
        worker = asyncio.create_task(loop.run())
        async with caller(url) as http:
            accepted = (await http.post("/api/agents/teller/runs", json={"input": "Tell"})).json()
            path = f"/api/threads/{accepted['thread_id']}/events?until=idle"
            async with asyncio.timeout(30):
                received = [event async for event in events(http, path)]
        loop.stop()
        await worker
    deltas = [event.data for event in received if event.type == "delta"]
    text = "".join(delta["text"] for delta in deltas)
    assert text
    assert agents.STORY.startswith(text)
    assert {(delta["run_id"], delta["step_number"], delta["kind"]) for delta in deltas} == {
        (accepted["run_id"], 1, "text")
    }
    assert [delta["number"] for delta in deltas] == sorted({delta["number"] for delta in deltas})
    assert len({delta["attempt"] for delta in deltas}) == 1
    places = [place for place, event in enumerate(received) if event.type == "delta"]
    answer_index = next(
        place for place, event in enumerate(received) if event.type == "stitch" and event.data["type"] == "llm_call"
    )
    assert max(places) < answer_index
    positions = [event.id for event in received if event.type == "stitch"]
    assert positions == list(range(1, len(positions) + 1))
    assert received[-1].type == "end"
    assert await store._backend.find(Find(LiveDelta)) == []


async def test_deltas_of_a_killed_worker_are_not_sent_again(store: Store, http: httpx2.AsyncClient) -> None:
    head = await store.create(kind="goal", goal="Speak", agent="nobody")
    first = await store.claim(head)
    run = store.new_run(first)
    first = (await store.append(first, [Entry(type="run_started", run_id=run.id)], new_runs=[run])).head

    def delta(number: int, step: int, text: str, attempt: str) -> LiveDelta:
        data = {"kind": "text", "text": text, "attempt": attempt}
        return LiveDelta(thread_id=head.id, run_id=run.id, step_number=step, number=number, text=data)

    async def delta_texts() -> list[str]:
        stream = events(http, f"/api/threads/{head.id}/events?until=now&after=1")
        return [event.data["text"] async for event in stream if event.type == "delta"]

    base = first.fence << 32
    await store._backend.put([delta(base + 1, 1, "half an", "1.0")])
    assert await delta_texts() == ["half an"]
    # Another worker takes the thread, so the deltas of the first worker are invalid.
    await store._backend.release(first.worker_id)  # type: ignore[arg-type]
    with suppress(ThreadBusy):
        await store.register_worker()
    second = await store.claim(head)
    assert second.fence > first.fence
    assert await delta_texts() == []
    await store._backend.put([delta((second.fence << 32) + 1, 1, "whole", "2.0")])
    assert await delta_texts() == ["whole"]
    await store.append(
        second, [Entry(type="llm_call", run_id=run.id, step_number=1)], run_updates=[(run, {"steps": 1})]
    )
    assert await delta_texts() == []
    live = LiveTextWriter(store, second)
    await live.close()
