"""`Client`: the read calls of the store over HTTP, and streams that reconnect."""

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

import lockstitch
from lockstitch import Client, Conflict, Entry, KeyTaken, NotFound, Refused, StoreUnreachable, ThreadWaiting
from lockstitch.server import Settings
from lockstitch.store import Store
from lockstitch.store.alerts import Alerts, condition_text
from lockstitch.store.saved_views import saved_views
from tests.server.api import agents
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with serving(store, agents.app(), Settings(concurrency=4)) as url, Client(url) as opened:
        yield opened


async def test_client_reads_same_data_as_store(store: Store, client: Client) -> None:
    done = await client.run_agent("teller", "Tell", thread="story", user_id="ada", tags=["x"])
    assert (done.status, done.output_text, done.steps) == ("completed", "The end.", 2)
    head = await store.thread("story")
    assert await client.thread("story") == head
    (row,) = await client.threads(user_id="ada", root_only=True, since=head.created_at)
    assert (row.id, row.runs, row.created_at) == (head.id, 1, head.created_at)
    judged = await store.create(key="eval/f/1/sum/judge")
    assert {row.id for row in await client.threads()} == {head.id, judged.id}
    assert [row.id for row in await client.threads(evaluations=False)] == [head.id]
    await store.delete(judged)
    assert (await client.tree(head)).id == head.id
    assert await client.children(head.id) == []
    assert await client.stitches("story") == await store.stitches(head)
    assert await client.stitches("story", 2, 3) == await store.stitches(head, 2, 3)
    assert await client.context("story") == await store.context("story")
    page = await client.history("story")
    assert ([turn["run_id"] for turn in page.turns], page.has_more) == ([str(done.run_id)], False)
    assert await client.runs("story") == await store.runs("story")
    run = await client.run(done.run_id)
    assert run == await store.run(done.run_id)
    assert (await client.result(run.id)).usage == done.usage
    assert await client.log(run.id) == await store.log(run.id)
    assert await client.messages(run.id) == await store.messages(run.id)
    assert (await client.trace(run.id))["tree"] == (await store.trace(run.id)).as_json()["tree"]
    assert (await client.difference(run.id, run.id))["same"] is True
    call = next(stitch for stitch in await client.log(run.id) if stitch.type == "llm_call")
    assert await client.stitch(call.id) == call
    assert await client.request(call.id) == await store.request(call.id)
    assert [hit.thread_id for hit in await client.search("end")] == [head.id]
    assert (await client.statistics("agent"))["usage"]["rows"][0]["agent"] == "teller"
    assert await client.errors() == []
    feedback = await client.give_feedback("good", run=run.id, score=1)
    assert await client.feedback("story") == [feedback]
    queue = await client.runs_to_annotate({"agent": "teller", "ascending": True}, without_feedback_of="ada")
    assert ([row["run"] for row in queue["runs"]], queue["next"]) == ([run.as_json()], None)
    assert queue["runs"][0]["outputs"] == {"output": done.output_text}
    assert (await client.edit("story", title="A story")).title == "A story"
    fork = await client.fork("story", at=2, key="fork")
    assert [thread.key for thread in await client.threads(limit=1)] == ["fork"]
    assert await client.delete(fork) == 1
    again = await client.regenerate("story", wait=True)
    assert (again.output_text, again.partial, again.thread_id != head.id) == ("The end.", False, True)
    assert [turn["user_message"] for turn in (await client.history("story")).turns] == ["Tell"]
    taken = await client.fork("story", before_turn=1, take_key=True)
    assert (taken.key, taken.last_turn) == ("story", 0)


async def test_client_saves_views_of_the_list(store: Store, client: Client) -> None:
    """A project has at most one default view. Views of other projects are not found."""
    first = await client.save_view("Nightly costs", filters={"tag": "nightly"}, sort="cost")
    await client.save_view("Failed", filters={"status": "failed"}, columns=["model"], is_default=True)
    await client.save_view("Nightly costs", filters={"tag": "nightly"}, sort="latency", is_default=True)
    views = await client.saved_views()
    assert [(view.name, view.sort, view.is_default) for view in views] == [
        ("Failed", "time", False),
        ("Nightly costs", "latency", True),
    ]
    assert views[1].created_at == first.created_at
    assert await saved_views(store.in_project("other")) == []
    with pytest.raises(Conflict):
        await client.rename_view("Failed", "Nightly costs")
    with pytest.raises(Refused):
        await client.save_view("a/b")
    renamed = await client.rename_view("Failed", "Errors")
    assert renamed.columns == ["model"]
    await client.delete_view("Nightly costs")
    with pytest.raises(NotFound):
        await client.delete_view("Nightly costs")
    assert [view.name for view in await saved_views(store)] == ["Errors"]


async def test_client_finds_threads_that_wait(store: Store, client: Client) -> None:
    waiting = await client.run_agent("payer", "Pay", thread="pays")
    head = await store.thread("pays")
    inbox = await client.inbox()
    assert (inbox.total, [row.thread for row in inbox.threads]) == (1, [head])
    (reply,) = await client.replies("pays")
    assert inbox.threads[0].replies == [reply]
    match = await client.match(str(head.id)[-8:])
    assert (match.exact, match.threads, match.runs) == (None, [head], [])
    assert (await client.match("pays")).exact == head
    run = await client.last_run("pays")
    assert run.id == waiting.run_id
    assert await client.latest(limit=3) == await store.latest(limit=3)
    async with aclosing(client.watch_project(recent=2)) as stitches:
        watched = [await anext(stitches), await anext(stitches)]
        assert watched == list(reversed(await store.latest(limit=2)))
        await client.approve("pays", reply["call_key"])
        assert (await anext(stitches)).type == "permission"
    assert (await client.whoami())["project"] == "default"
    assert (await client.sql("SELECT key FROM threads"))["rows"] == [["pays"]]
    assert await client.versions("payer") == [await client.version("payer", 1)]
    assert (await client.version_changes("payer", 1, since=1))["changes"] == []
    assert len(await client.export_run(run.id)) >= 2
    assert await client.ancestors("pays") == []
    secret = await client.create_token("ci", ["read"])
    assert (secret["name"], [token["name"] for token in await client.tokens()]) == ("ci", ["ci"])
    assert (await client.revoke_token("ci"))["revoked_at"] is not None
    assert [entry["act"] for entry in await client.audit()] == ["revoke token", "make token", "sql"]


async def test_client_raises_errors_of_store(client: Client) -> None:
    with pytest.raises(NotFound, match="nobody"):
        await client.thread("nobody")
    with pytest.raises(Refused):
        await client.threads(limit=0)
    await client.start("elsewhere", "Later", key="taken")
    with pytest.raises(KeyTaken):
        await client.start("elsewhere", "Later", key="taken")
    with pytest.raises(ThreadWaiting):
        await client.answer("taken", "What?")
    with pytest.raises(Conflict):
        await client.deny("taken", "call")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}") as nobody:
        with pytest.raises(StoreUnreachable):
            await nobody.threads()
        with pytest.raises(StoreUnreachable):
            await anext(nobody.events("x"))


async def test_client_approves_call_and_delivers_message(client: Client) -> None:
    waits = await client.run_agent("payer", "Pay", thread="pay")
    await client.approve("pay", waits.waiting_for[0]["id"])
    async with aclosing(client.events("pay", until="idle")) as events:
        assert [event async for event in events][-1].type == "end"
    assert (await client.result(waits.run_id)).status == "completed"
    received = [event async for event in client.stream("echo", "And?", thread="chat")]
    assert [event.stitch.position for event in received if event.stitch] == list(range(1, received[-1].position + 1))
    await client.deliver("chat", "More", id="1")
    async with aclosing(client.events("chat", until="idle", after=received[-1].position)) as events:
        assert [event async for event in events][-1].data["status"] == "waiting"


async def test_stream_continues_after_server_restart(store: Store) -> None:
    """The server stops and starts again at the same address. The reader sees each stitch once."""
    head = await store.create(kind="goal", goal="Count")
    positions: list[int] = []
    news = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def read() -> None:
        async with Client(f"http://127.0.0.1:{port}") as client:
            async for stitch in client.watch(head):
                positions.append(stitch.position)
                news.set()

    reader: asyncio.Task[None] | None = None
    for number in range(3):
        async with serving(store, port=port):
            reader = reader or asyncio.create_task(read())
            now = await store.thread(head)
            await store.append(now, [Entry(type="note", data={"number": number})])
            if number != 1:
                # The reader may receive the second stitch from the next server only.
                async with asyncio.timeout(60):
                    while len(positions) <= number:
                        await news.wait()
                        news.clear()
    now = await store.thread(head)
    await store.append(now, [Entry(type="note")], fields={"status": "completed", "result": {"summary": "4"}})
    assert reader is not None
    async with serving(store, port=port), asyncio.timeout(60):
        await reader
    assert positions == [1, 2, 3, 4]


def test_client_is_public_and_has_names_of_store() -> None:
    assert lockstitch.Client is Client
    shared = {"thread", "threads", "tree", "children", "context", "history", "stitches", "runs", "run", "log", "watch"}
    shared |= {"messages", "trace", "difference", "stitch", "request", "search", "errors", "size", "fork", "edit"}
    for name in shared:
        store_parameters = inspect.signature(getattr(Store, name)).parameters
        client_parameters = inspect.signature(getattr(Client, name)).parameters
        required = [
            parameter
            for parameter in client_parameters.values()
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        assert {parameter.name for parameter in required} <= store_parameters.keys(), name


async def test_client_sets_alerts(store: Store, client: Client) -> None:
    alert = await client.alerts.set("too slow", "latency", 2.5, window_minutes=5, agent="a", webhook="https://h.test/x")
    assert condition_text(alert) == "the latency (95 %) of a in 5 minutes is above 2.5 s"
    assert await client.alerts.list() == [alert] == await Alerts(store).list()
    with pytest.raises(Refused):
        await client.alerts.set("errors", "error_rate", 1)
    await client.alerts.remove("too slow")
    with pytest.raises(NotFound):
        await client.alerts.remove("too slow")
