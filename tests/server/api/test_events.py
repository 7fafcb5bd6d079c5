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
    await store.append(head, [Entry(type="note", data={"number": one}) for one in range(number)])
    return str(head.id)


@pytest.mark.req("S3-070")
async def test_reconnecting_reader_gets_each_stitch_once(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 7)
    for seen in range(8):
        told = [one async for one in events(http, f"/api/threads/{ref}/events?until=now", after=seen or None)]
        assert [one.id for one in told if one.type == "stitch"] == list(range(seen + 1, 8))
        assert [one.type for one in told if one.type != "stitch"] == ["status", "end"]
        assert told[-1].data["position"] == 7
    by_parameter = [one async for one in events(http, f"/api/threads/{ref}/events?until=now&after=5")]
    assert [one.data["position"] for one in by_parameter if one.type == "stitch"] == [6, 7]
    nonsense = await http.get(f"/api/threads/{ref}/events?until=now", headers={"Last-Event-ID": "never"})
    assert nonsense.text.count("event: stitch") == 7


@pytest.mark.req("S3-070")
async def test_stream_sends_new_stitches(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 1)
    told: list[Event] = []

    async with asyncio.timeout(60), aclosing(events(http, f"/api/threads/{ref}/events")) as stream:
        async for one in stream:
            told.append(one)
            if one.type == "status" or one.id == 2:
                if (position := (await store.thread(ref)).position) < 3 and one.data["status"] != "completed":
                    await store.append(await store.thread(ref), [Entry(type="note", data={"number": position + 1})])
            elif one.id == 3:
                ended = {"status": "completed", "result": {"summary": "3"}}
                await store.append(await store.thread(ref), fields=ended)
    assert [one.id for one in told if one.type == "stitch"] == [1, 2, 3]
    assert [one.data["status"] for one in told if one.type == "status"] == ["pending", "completed"]
    assert (told[-1].type, told[-1].data["result"]) == ("end", {"summary": "3"})


async def test_stream_ends_when_the_thread_is_deleted(store: Store, http: httpx2.AsyncClient) -> None:
    ref = await written(store, 1)
    async with asyncio.timeout(60):
        async for one in events(http, f"/api/threads/{ref}/events"):
            if one.type == "status":
                await store.delete(ref)
            last = one
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
            assert all(one.type != "end" for one in [one async for one in stream])


async def test_subscription_ends_when_the_client_disconnects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ChangeFeed] = []
    monkeypatch.setattr(server, "ChangeFeed", lambda store: made.append(ChangeFeed(store)) or made[-1])
    ref = await written(store, 1)
    async with serving(store) as url, caller(url) as http:
        streams = [events(http, f"/api/threads/{ref}/events"), events(http, "/api/events")]
        for stream in streams:
            await anext(stream)
        assert made[0].readers == 2
        for stream in streams:
            await stream.aclose()
        async with asyncio.timeout(60):
            while made[0].readers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.req("S3-070")
async def test_project_stream_sends_status_changes(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "ALL", 0.1)
    monkeypatch.setattr(project, "LOOK", 0.1)
    ref = await written(store, 1)
    other = await store.in_project("other").create(title="theirs")
    seen: list[Event] = []
    async with asyncio.timeout(60), aclosing(events(http, "/api/events")) as stream:
        async for one in stream:
            seen.append(one)
            if one.data["status"] == "pending":
                await store.in_project("other").edit(other, title="again")
                ended = {"status": "completed", "result": {"summary": "done"}}
                await store.append(await store.thread(ref), [Entry(type="note")], fields=ended)
            elif one.data["status"] == "completed":
                await store.delete(ref)
            elif one.data["status"] == "deleted":
                break
    assert {one.data["thread_id"] for one in seen} == {ref}
    assert [one.data["status"] for one in seen] == ["pending", "completed", "deleted"]


async def test_stream_sends_deltas_of_a_worker_in_another_process(store: Store, store_url: str) -> None:
    """The worker has a separate store object, as in another process. The server only reads."""
    app = agents.app()
    async with open_store(store_url) as elsewhere, serving(store, app, Settings(work=False)) as url:
        loop = WorkerLoop(agents.app(), elsewhere)
        worker = asyncio.create_task(loop.run())
        async with caller(url) as http:
            begun = (await http.post("/api/agents/teller/runs", json={"input": "Tell"})).json()
            path = f"/api/threads/{begun['thread_id']}/events?until=idle"
            async with asyncio.timeout(30):
                told = [one async for one in events(http, path)]
        loop.stop()
        await worker
    deltas = [one.data for one in told if one.type == "delta"]
    said = "".join(one["text"] for one in deltas)
    assert said
    assert agents.STORY.startswith(said)
    assert {(one["run_id"], one["step_number"], one["kind"]) for one in deltas} == {(begun["run_id"], 1, "text")}
    assert [one["number"] for one in deltas] == sorted({one["number"] for one in deltas})
    assert len({one["attempt"] for one in deltas}) == 1
    places = [place for place, one in enumerate(told) if one.type == "delta"]
    answered = next(place for place, one in enumerate(told) if one.type == "stitch" and one.data["type"] == "llm_call")
    assert max(places) < answered
    positions = [one.id for one in told if one.type == "stitch"]
    assert positions == list(range(1, len(positions) + 1))
    assert told[-1].type == "end"
    assert await store._backend.find(Find(LiveDelta)) == []


async def test_deltas_of_a_killed_worker_are_not_sent_again(store: Store, http: httpx2.AsyncClient) -> None:
    head = await store.create(kind="goal", goal="Speak", agent="nobody")
    first = await store.claim(head)
    run = store.new_run(first)
    first = (await store.append(first, [Entry(type="run_started", run_id=run.id)], new_runs=[run])).head

    def delta(number: int, step: int, text: str, attempt: str) -> LiveDelta:
        said = {"kind": "text", "text": text, "attempt": attempt}
        return LiveDelta(thread_id=head.id, run_id=run.id, step_number=step, number=number, text=said)

    async def said() -> list[str]:
        told = events(http, f"/api/threads/{head.id}/events?until=now&after=1")
        return [one.data["text"] async for one in told if one.type == "delta"]

    base = first.fence << 32
    await store._backend.put([delta(base + 1, 1, "half an", "1.0")])
    assert await said() == ["half an"]
    # Another worker takes the thread, so the deltas of the first worker are invalid.
    await store._backend.release(first.worker_id)  # type: ignore[arg-type]
    with suppress(ThreadBusy):
        await store.register_worker()
    second = await store.claim(head)
    assert second.fence > first.fence
    assert await said() == []
    await store._backend.put([delta((second.fence << 32) + 1, 1, "whole", "2.0")])
    assert await said() == ["whole"]
    await store.append(
        second, [Entry(type="llm_call", run_id=run.id, step_number=1)], run_updates=[(run, {"steps": 1})]
    )
    assert await said() == []
    live = LiveTextWriter(store, second)
    await live.close()
