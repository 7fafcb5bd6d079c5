"""Cancel during every action, and cancel requests that arrive too late or too early."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.backend import Find
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult, Summarize
from lockstitch.engine.ports.memory import NoMemoryStore, Retrieved, Scope, Updated
from lockstitch.engine.ports.provider import Chunk, Download, ModelRequest, Response
from lockstitch.engine.result import result_for
from lockstitch.errors import Refused
from lockstitch.model import Json, Message, text_of
from lockstitch.store import Store, lease_keeper
from tests.engine.agents import assert_can_continue, calls, log, scripted, types

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _often_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel requests are read quickly."""
    monkeypatch.setattr(lease_keeper, "CANCEL_POLL_SECONDS", 0.02)


class Gate:
    """Blocks the run until it is cancelled."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left = asyncio.Event()

    async def stay(self) -> Any:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


class SlowMemory(NoMemoryStore):
    name = "slow"

    def __init__(self, gate: Gate, where: str) -> None:
        self._gate, self._where = gate, where

    async def _pass(self, where: str) -> None:
        if where == self._where:
            await self._gate.stay()

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        await self._pass("retrieve")
        return Retrieved()

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        await self._pass("update")
        return Updated()

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        await self._pass("before_compact")
        return None

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        await self._pass("after_compact")
        return None


class SlowCompactor:
    name = "slow"
    threshold = 0
    parameters: Json = {}

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        if self._gate is not None:
            await self._gate.stay()
        first = next(stitch.position for stitch in compaction_input.stitches if stitch.message is not None)
        return CompactionResult(keep=[(first, first)], tokens=1)


class SlowFiles:
    name = "slow"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        return await self._gate.stay()

    async def retrieve(self, path: str) -> bytes:
        return b""

    async def delete(self, path: str) -> None: ...


class SlowDownloads(Scripted):
    gate: Gate

    async def download(self, file_id: str) -> Download:
        return await self.gate.stay()


def _answering(gate: Gate, purpose: str | None) -> Any:
    async def answer(request: Any) -> Any:
        if request.purpose == purpose:
            await gate.stay()
        return "Said."

    return answer


FILE = {"text": "Drawn.", "blocks": [{"type": "code_execution_tool_result", "content": {"file_id": "f"}}]}


def _agent(act: str, gate: Gate) -> Agent:
    """Return an agent that blocks at this action."""

    @tool
    async def stay() -> str:
        """Stay."""
        return await gate.stay()

    async def check(text: str) -> str | None:
        return await gate.stay()

    plain = {"title": False, "base_delay": 60.0}
    match act:
        case "model":
            return Agent("helper", model=Scripted(_answering(gate, None)), **plain)
        case "title":
            return Agent("helper", model=Scripted(_answering(gate, "title")))
        case "tool":
            return scripted(calls("stay"), tools=[stay])
        case "check":
            return scripted("Said.", check=check)
        case "compact":
            return scripted("Said.", compactor=SlowCompactor(gate))
        case "download":
            provider = SlowDownloads([FILE])
            provider.gate = gate
            return Agent("helper", model=provider, files="none", **plain)
        case "store":
            return scripted(FILE, files=SlowFiles(gate), provider_files={"f": {"filename": "x", "content": "x"}})
        case "backoff":
            return Agent("helper", model=Scripted([{"fail": "overloaded"}]), **plain)
        case _:
            return scripted("Said.", memory=SlowMemory(gate, act), compactor=SlowCompactor())


ACTS = ["model", "title", "tool", "check", "compact", "download", "store", "backoff", "retrieve", "update"]


@pytest.mark.parametrize("act", [*ACTS, "before_compact", "after_compact"])
async def test_cancels_run_during_every_action(store: Store, act: str):
    gate = Gate()
    retried = asyncio.Event()
    helper = _agent(act, gate)

    async def drive() -> None:
        async for event in helper.stream("Go", store=store, thread="t"):
            if event.type == "retry":
                retried.set()

    task = asyncio.create_task(drive())
    await asyncio.wait_for((retried if act == "backoff" else gate.reached).wait(), 60)
    await cancel(store, "t")
    await asyncio.wait_for(task, 60)
    assert act == "backoff" or gate.left.is_set()
    (run,) = await store.runs("t")
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    head = await store.thread("t")
    assert (head.status, head.cancel_requested, head.waiting_for[0]["kind"]) == ("waiting", False, "input")
    assert (await log(store))[-1].status == "cancelled"
    await assert_can_continue(store)


async def test_records_results_that_exist_when_cancel_is_requested(store: Store):
    gate = Gate()
    finished = asyncio.Event()

    @tool
    async def stay() -> str:
        """Stay."""
        return await gate.stay()

    @tool
    async def quick() -> str:
        """Be quick."""
        await gate.reached.wait()
        finished.set()
        return "charged"

    helper = scripted(calls("stay", "quick"), tools=[stay, quick])
    task = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    await finished.wait()
    await cancel(store, "t")
    assert (await task).status == "cancelled"
    answers = {answer.name: answer for answer in await log(store, "tool_call")}
    assert answers["quick"].status == "ok"
    assert answers["stay"].status == "in_doubt"
    await assert_can_continue(store)


class Stopping(Scripted):
    """Streams some text, then blocks until the run is cancelled."""

    def __init__(self, text: str) -> None:
        super().__init__([text])
        self.gate, self._text = Gate(), text

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response]:
        yield Chunk("text", text=self._text)
        await self.gate.stay()


async def test_stopped_answer_stays_visible(store: Store):
    model = Stopping("Once upon a time")
    helper = Agent("helper", model=model, title=False)
    task = asyncio.create_task(helper.run("Tell", store=store, thread="t"))
    await model.gate.reached.wait()
    await cancel(store, "t")
    result = await task
    assert (result.status, result.output_text, result.partial) == ("cancelled", "Once upon a time", True)
    assert result.as_json()["partial"] is True
    stored = await result_for(store, result.run_id)
    assert (stored.output_text, stored.partial) == ("Once upon a time", True)
    (turn,) = (await store.history("t")).turns
    assert (turn.run.status, turn.final_response, turn.partial) == ("cancelled", "Once upon a time", True)
    await assert_can_continue(store)
    last = (await store.history("t")).turns[0]
    assert (last.run.status, last.partial) == ("completed", False)


async def test_partial_answer_is_no_summary_of_cancelled_goal(store: Store):
    model = Stopping("Once")
    helper = Agent("helper", model=model, title=False)
    head = await helper.start(store=store, goal="g")
    task = asyncio.create_task(helper.resume(head, store=store))
    await model.gate.reached.wait()
    await cancel(store, head)
    result = await task
    assert result is not None
    assert (result.status, result.output_text) == ("cancelled", "Once")
    assert not ((await store.thread(head)).result or {}).get("summary")


async def test_cancelled_run_without_text_has_no_answer(store: Store):
    model = Stopping("")
    helper = Agent("helper", model=model, title=False)
    task = asyncio.create_task(helper.run("Tell", store=store, thread="t"))
    await model.gate.reached.wait()
    await cancel(store, "t")
    assert ((await task).output_text, (await task).partial) == (None, False)
    assert (await store.history("t")).turns[0].final_response is None


async def test_keeps_chat_open_when_cancel_arrives_after_run_ended(store: Store):
    """The run may end between the check for an open run and the cancel request."""
    helper = scripted(turns=[["One."], ["Two."]])
    await helper.run("1", store=store, thread="t")
    await store.edit("t", cancel_requested=True)
    assert await helper.resume("t", store=store) is None
    head = await store.thread("t")
    assert (head.status, head.cancel_requested, head.waiting_for[0]["kind"]) == ("waiting", False, "input")
    await store.edit("t", cancel_requested=True)
    assert (await helper.run("2", store=store, thread="t")).output_text == "Two."
    with pytest.raises(Refused, match="no open run"):
        await cancel(store, "t")
    await assert_can_continue(store)


async def test_retries_goal_when_cancel_was_requested_after_its_end(store: Store):
    """A cancelled parent requests the cancel of its children. One of them may have ended by then."""
    gate = Gate()

    @tool(effect="safe")
    async def look() -> str:
        """Look at something."""
        return "nothing" if gate.left.is_set() else await gate.stay()

    helper = scripted(calls("look"), "Done.", tools=[look])
    head = await helper.start(store=store, goal="Go")
    task = asyncio.create_task(helper.resume(head, store=store))
    await gate.reached.wait()
    await cancel(store, head)
    await task
    await store.edit(head, cancel_requested=True)
    assert (await store.thread(head)).status == "cancelled"
    result = await helper.retry(head, store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")


@pytest.mark.parametrize("detach", [False, True])
async def test_retry_starts_goal_that_was_cancelled_before_its_first_run(store: Store, detach: bool):
    helper = scripted("Done.")
    head = await helper.start(store=store, goal="Go")
    await cancel(store, head)
    result = await helper.retry(head, store=store, detach=detach)
    if detach:
        result = await helper.resume(head, store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert (await store.thread(head)).status == "completed"


async def test_cancels_interrupted_run_without_agent_code(store: Store):
    @tool(effect="safe")
    async def look() -> str:
        """Look."""
        task.cancel()
        await asyncio.sleep(10)
        return ""

    helper = scripted(calls("look"), tools=[look])
    task = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await task
    head = await cancel(store, "t")
    assert head.status == "waiting"
    assert types(await log(store))[-2:] == ["tool_call", "run_completed"]
    await assert_can_continue(store)


class Looking:
    """A backend that delays its answer to a poll for cancel requests."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.looked, self.may_continue = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def find(self, find: Find[Any]) -> list[Any]:
        records = await self._backend.find(find)
        if records and any(where.field == "cancel_requested" for where in find.where):
            self.looked.set()
            await self.may_continue.wait()
        return records


async def test_keeps_next_run_when_stale_cancel_request_is_read(store: Store):
    """The poll reads the request before it is withdrawn, and reports it after the next run has started."""
    claimed, ready, requested, answer = (asyncio.Event() for _ in range(4))

    async def instructions(_: Any) -> str:
        claimed.set()
        await ready.wait()
        return ""

    async def slow(_: ModelRequest) -> str:
        requested.set()
        await answer.wait()
        return "Two."

    await scripted("One.").run("1", store=store, thread="t")
    await store.edit("t", cancel_requested=True)
    backend = Looking(store._backend)
    shared = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    other_agent = Agent("helper", model=Scripted(slow), title=False)
    clerk = Agent("helper", model=Scripted(slow), title=False, instructions=instructions)
    # Another thread is in execution here, so that the poll never stops.
    other_run = asyncio.create_task(other_agent.run("Go", store=shared, thread="u"))
    await requested.wait()
    requested.clear()
    running = asyncio.create_task(clerk.run("2", store=shared, thread="t"))
    await claimed.wait()
    await backend.looked.wait()
    ready.set()
    await requested.wait()
    backend.may_continue.set()
    # The result is handled before the next check.
    backend.looked.clear()
    await store.edit("u", cancel_requested=True)
    assert (await other_run).status == "cancelled"
    answer.set()
    result = await running
    assert (result.status, result.output_text) == ("completed", "Two.")
    await assert_can_continue(store)


async def test_cancels_message_before_worker_starts_its_run(store: Store):
    helper = scripted(turns=[["Two."]])
    first = await helper.run("1", store=store, thread="t", detach=True, tags=["urgent"])
    second = await helper.run("2", store=store, thread="t", detach=True)

    assert (await cancel(store, "t")).status == "pending", "the second message is still there"
    run = await store.run(first.run_id)
    assert (run.status, list(run.tags), [text_of(message) for message in await store.messages(run.id)]) == (
        "cancelled",
        ["urgent"],
        ["1"],
    )
    result = await helper.resume("t", store=store)
    assert result is not None
    assert (result.run_id, result.output_text) == (second.run_id, "Two.")

    third = await helper.run("3", store=store, thread="t", detach=True)
    head = await cancel(store, "t")
    assert (head.status, head.wait_for("input") is not None) == ("waiting", True)
    assert (await result_for(store, third.run_id)).status == "cancelled"
    assert [run.status for run in await store.runs("t")] == ["cancelled", "completed", "cancelled"]
    await assert_can_continue(store)
