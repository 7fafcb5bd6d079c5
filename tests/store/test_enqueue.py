"""`Store.enqueue` and `Store.wake`: one commit each, and no code of an agent."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.backend import Commit
from lockstitch.engine.ports.tool import Tool
from lockstitch.engine.result import result_for
from lockstitch.errors import Refused, ThreadBusy, ThreadEnded, ThreadWaiting
from lockstitch.model import Entry, new_id, text_of
from lockstitch.model.message import user
from lockstitch.store import Store
from lockstitch.store.writes.media import LARGE
from lockstitch.testing import Scripted

pytestmark = pytest.mark.anyio


@pytest.fixture
def commits(store: Store, monkeypatch: pytest.MonkeyPatch) -> Sequence[object]:
    """Everything that is written: commits, and records outside of commits."""
    written: list[object] = []

    def recording(write: Callable[..., Any]) -> Callable[..., Any]:
        async def record(content: object, **options: Any) -> Any:
            written.append(content)
            return await write(content, **options)

        return record

    monkeypatch.setattr(store._backend, "append", recording(store._backend.append))
    monkeypatch.setattr(store._backend, "put", recording(store._backend.put))
    return written


def agent(name: str = "helper") -> Agent:
    return Agent(name, model=Scripted(lambda request: f"To {text_of(request.messages[-1])}"), title=False)


async def test_writes_each_message_in_one_commit(store: Store, commits: Sequence[object]):
    enqueued_messages = [await store.enqueue("helper", user(text), thread="t") for text in ("one", "two", "three")]
    assert [type(commit) for commit in commits] == [Commit] * 3
    head = await store.thread("t")
    assert (head.status, head.agent, head.version, head.position) == ("pending", "helper", None, 0)
    assert head.wake_at is not None
    assert [(await result_for(store, enqueued_message.run_id)).status for enqueued_message in enqueued_messages] == [
        "pending"
    ] * 3

    helper = agent()
    while (await store.thread("t")).status == "pending":
        await helper.resume("t", store=store)
    assert [run.id for run in await store.runs("t")] == [
        enqueued_message.run_id for enqueued_message in enqueued_messages
    ]
    assert [
        (await result_for(store, enqueued_message.run_id)).output_text for enqueued_message in enqueued_messages
    ] == ["To one", "To two", "To three"]

    before = len(commits)
    last = await store.enqueue("helper", user("four"), thread=head.id)
    assert len(commits) == before + 1
    assert (await store.thread("t")).status == "pending"
    result = await helper.resume("t", store=store)
    assert result is not None
    assert (result.run_id, result.output_text) == (last.run_id, "To four")


async def test_delivers_to_inbox_in_one_commit_while_thread_is_held(store: Store, commits: Sequence[object]):
    head = await store.claim(await store.create(key="t", agent="helper"))
    before = len(commits)
    enqueued_message = await store.enqueue("helper", user("Hello"), thread="t")
    assert len(commits) == before + 1
    assert (await store.thread("t")).status == "running"
    _, deliveries = await store.inbox(head)
    assert [delivery.id for delivery in deliveries] == [enqueued_message.run_id]


@pytest.mark.parametrize("named", ["key", "id", "none"])
async def test_creates_unknown_thread_with_its_message(store: Store, named: str):
    thread: str | UUID | None = {"key": "t", "id": new_id(), "none": None}[named]
    enqueued_message = await store.enqueue("helper", user("Hello"), thread=thread, user_id="ada", kind="chat")
    head = await store.thread(enqueued_message.thread.id)
    assert (head.key, head.user_id, head.status) == ("t" if named == "key" else None, "ada", "pending")
    assert named != "id" or head.id == thread


async def test_enqueue_loads_no_agent_code(store: Store):
    class Broken:
        async def tools(self) -> Sequence[Tool]:
            raise AssertionError("a tool source was loaded")

        async def close(self) -> None: ...

    helper = Agent("helper", model="nowhere:none", tools=[Broken()], title=False)
    for text in ("one", "two"):
        assert (await helper.run(text, store=store, thread="t", detach=True)).status == "pending"
    assert await store.agents.versions(store.project, "helper") == []
    assert (await store.thread("t")).last_sequence == 0


async def test_passes_run_options_to_the_run(store: Store):
    options: dict[str, Any] = {"extras": {"a": 1}, "metadata": {"order": "42"}, "tags": ["urgent"]}
    enqueued_message = await store.enqueue("helper", user("Hello"), **options)
    await agent().resume(enqueued_message.thread, store=store)
    run = await store.run(enqueued_message.run_id)
    assert {"extras": run.extras, "metadata": run.metadata, "tags": list(run.tags)} == options


async def test_gives_a_resting_thread_to_another_agent_in_one_commit(store: Store, commits: Sequence[object]):
    await agent().run("Hello", store=store, thread="t")
    before = len(commits)
    enqueued_message = await store.enqueue("other", user("And you?"), thread="t")
    assert len(commits) == before + 1
    assert (await store.thread("t")).agent == "other"
    result = await agent("other").resume("t", store=store)
    assert result is not None
    assert (result.run_id, result.output_text) == (enqueued_message.run_id, "To And you?")


async def test_keeps_the_agent_of_a_thread_with_other_messages(store: Store):
    for name in ("helper", "other"):
        await store.enqueue(name, user("Hello"), thread="t")
    assert (await store.thread("t")).agent == "helper"


async def test_stores_large_media_of_a_first_message(store: Store):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * (LARGE + 4)}}
    enqueued_message = await store.enqueue("helper", user([image, {"type": "text", "text": "What is it?"}]), thread="t")
    await agent().resume("t", store=store)
    assert (await store.messages(enqueued_message.run_id))[0]["content"][0] == image


async def test_rejects_message_when_thread_ended_waits_or_belongs_to_another_user(store: Store):
    thread = await store.create(key="ended", kind="goal", goal="g", agent="helper")
    await store.append(thread, [Entry(type="run_completed")], fields={"status": "completed", "result": {}})
    later = store.clock.now() + timedelta(hours=1)
    await store.start("helper", "g", key="later", at=later)
    await store.create(key="bobs", agent="helper", user_id="bob")
    with pytest.raises(ThreadEnded):
        await store.enqueue("helper", user("Hello"), thread="ended")
    with pytest.raises(ThreadWaiting):
        await store.enqueue("helper", user("Hello"), thread="later")
    with pytest.raises(Refused, match="another user"):
        await store.enqueue("helper", user("Hello"), thread="bobs", user_id="ada")


async def test_wakes_thread_in_one_commit(store: Store, commits: Sequence[object]):
    later = store.clock.now() + timedelta(hours=1)
    head = await store.start("helper", "g", key="t", at=later)
    before = len(commits)
    assert (await store.wake("t")).wake_at != later
    assert len(commits) == before + 1
    assert [thread.id for thread in await store.claim_next(agents=["helper"])] == [head.id]
    with pytest.raises(ThreadBusy):
        await store.wake("t")


async def test_wake_writes_nothing_when_thread_waits_for_its_next_message(store: Store, commits: Sequence[object]):
    await store.create(key="t", agent="helper")
    before = len(commits)
    assert (await store.wake("t")).status == "waiting"
    assert len(commits) == before
