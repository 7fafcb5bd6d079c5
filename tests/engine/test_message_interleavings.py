"""Random interleavings of senders, workers, failures and lost workers: every accepted message gets exactly one turn."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents import App
from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.replies import approve
from lockstitch.engine.result import result_for
from lockstitch.engine.worker import WorkerLoop
from lockstitch.errors import Conflict, LockstitchError, Refused
from lockstitch.model import Entry, text_of
from lockstitch.model.message import user
from lockstitch.model.thread import TERMINAL_STATUSES
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, pay

pytestmark = pytest.mark.anyio

THREADS = ("a", "b")
STEPS = 60


class Gate:
    """Holds back model calls, so that the schedule decides which one ends next."""

    def __init__(self) -> None:
        self.closed = True
        self.calls: list[asyncio.Future[None]] = []

    async def pass_through(self) -> None:
        if self.closed:
            call = asyncio.get_running_loop().create_future()
            self.calls.append(call)
            await call

    def let_one_pass(self, choice: random.Random) -> None:
        waiting = [call for call in self.calls if not call.done()]
        if waiting:
            choice.choice(waiting).set_result(None)

    def open(self) -> None:
        self.closed = False
        for call in self.calls:
            if not call.done():
                call.set_result(None)


class Process:
    """Represents one process: its own store, and the tasks that use it."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self._gate = gate
        self.agent = Agent("clerk", model=Scripted(self._reply), tools=[pay], title=False, max_retries=0)
        self.tasks: list[asyncio.Task[Any]] = []

    async def _reply(self, request: ModelRequest) -> object:
        await self._gate.pass_through()
        last = request.messages[-1]
        text = text_of(last)
        if not text:
            # The result of the tool. Its question is the last message of the user that has a text.
            text = next(
                text_of(message)
                for message in reversed(request.messages)
                if message["role"] == "user" and text_of(message)
            )
            return f"To {text}"
        if text.startswith("fail"):
            return {"fail": "auth"}
        return calls("pay", pay={"amount": 1}) if text.startswith("pay") else f"To {text}"

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.append(task)
        return task


class Schedule:
    """One random history of a store."""

    def __init__(self, seed: int, url: str, stack: AsyncExitStack) -> None:
        self.choice = random.Random(seed)
        self.url = url
        self.stack = stack
        self.gate = Gate()
        self.processes: list[Process] = []
        self.lost: list[Process] = []
        self.sent = 0
        self.accepted: dict[str, list[str]] = {name: [] for name in THREADS}
        """Texts that the store acknowledged, by thread, in the order of their acknowledgement."""
        self.ids: dict[str, UUID] = {}
        self.foreground: dict[str, asyncio.Task[Any]] = {}

    async def add_process(self) -> None:
        store = await self.stack.enter_async_context(open_store(self.url))
        self.processes.append(Process(store, self.gate))

    def any_process(self) -> Process:
        return self.choice.choice(self.processes)

    def new_text(self) -> str:
        self.sent += 1
        return f"{self.choice.choice(('say', 'say', 'say', 'pay', 'fail'))} {self.sent}"

    async def step(self) -> None:
        acts = {
            self.deliver: 5,
            self.detach: 4,
            self.run: 2,
            self.claim: 5,
            self.answer: 6,
            self.approve_one: 2,
            self.cancel_one: 1,
            self.lose_worker: 1,
        }
        act = self.choice.choices(list(acts), weights=list(acts.values()))[0]
        await act()
        for _ in range(self.choice.randrange(4)):
            await asyncio.sleep(0)

    async def deliver(self) -> None:
        name, text = self.choice.choice(THREADS), self.new_text()
        entry = Entry(type="input", message=user(text))
        receipt = await self.any_process().store.deliver(name, entry, kind="input", sender=text)
        assert receipt.delivery_id is not None
        self.accepted[name].append(text)
        self.ids[text] = receipt.delivery_id

    async def detach(self) -> None:
        name, text, process = self.choice.choice(THREADS), self.new_text(), self.any_process()
        try:
            result = await process.agent.run(text, store=process.store, thread=name, detach=True)
        except Conflict:
            # The thread waits for a person, so the message was refused.
            return
        self.accepted[name].append(text)
        self.ids[text] = result.run_id

    async def run(self) -> None:
        name, text, process = self.choice.choice(THREADS), self.new_text(), self.any_process()
        busy = self.choice.choice(("refuse", "queue"))
        work = process.agent.run(text, store=process.store, thread=name, on_busy=busy)  # type: ignore[arg-type]
        self.foreground[text] = process.start(work)

    async def claim(self) -> None:
        process = self.any_process()
        for head in await process.store.claim_next(agents=["clerk"], limit=1):
            process.start(process.agent.executor(process.store).execute_held(head))

    async def answer(self) -> None:
        self.gate.let_one_pass(self.choice)

    async def approve_one(self) -> None:
        store = self.any_process().store
        for name in THREADS:
            for wait in (await store.thread(name)).waiting_for:
                if wait["kind"] == "approval":
                    try:
                        await approve(store, name, wait["id"])
                    except LockstitchError:
                        # The run was cancelled since.
                        continue
                    return

    async def cancel_one(self) -> None:
        with suppress(Refused):
            await cancel(self.any_process().store, self.choice.choice(THREADS))

    async def lose_worker(self) -> None:
        """Stop a process and let another one take over its threads. The first one continues at the end, too late."""
        process = self.any_process()
        self.processes.remove(process)
        self.lost.append(process)
        await self.add_process()
        worker_id = (await process.store.register_worker()).id
        await self.any_process().store._backend.release(worker_id)

    async def finish(self) -> None:
        """Let all tasks end, and a worker finish the remaining threads."""
        self.gate.open()
        tasks = [task for process in (*self.processes, *self.lost) for task in process.tasks]
        store = await self.stack.enter_async_context(open_store(self.url))
        process = Process(store, self.gate)
        worker = WorkerLoop(App([process.agent]), store, concurrency=2, poll=0.05, until_idle=True)
        while True:
            await worker.run()
            waits = [(name, wait) for name in THREADS for wait in (await store.thread(name)).waiting_for]
            calls_waiting = [(name, wait["id"]) for name, wait in waits if wait["kind"] == "approval"]
            for name, call_id in calls_waiting:
                await approve(store, name, call_id)
            if not calls_waiting and all(task.done() for task in tasks):
                break
            await asyncio.wait(tasks, timeout=0.05) if tasks else None
        await worker.run()
        # Those of lost processes have failed.
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(4))
async def test_every_accepted_message_gets_exactly_one_turn(store_url: str, seed: int):
    async with AsyncExitStack() as stack:
        schedule = Schedule(seed, store_url, stack)
        for _ in range(3):
            await schedule.add_process()
        for name in THREADS:
            await schedule.processes[0].store.create(key=name, agent="clerk")
        for _ in range(STEPS):
            await schedule.step()
        async with asyncio.timeout(120):
            await schedule.finish()

        store = await stack.enter_async_context(open_store(store_url))
        returned = {text for text, task in schedule.foreground.items() if task.exception() is None}
        seen: set[str] = set()
        for name in THREADS:
            head = await store.thread(name)
            assert (head.status, head.worker_id) == ("waiting", None)
            assert await store.inbox(head) == (head, [])
            turns = list(reversed((await store.history(name, limit=500)).turns))
            questions = [turn.user_message for turn in turns]
            assert max(Counter(questions).values(), default=1) == 1, "a message is the input of two turns"
            assert [text for text in questions if text in schedule.ids] == schedule.accepted[name]
            for turn in turns:
                assert turn.run.status in TERMINAL_STATUSES
                if turn.run.status == "completed":
                    assert turn.final_response == f"To {turn.user_message}"
                texts = [text_of(message) for message in await store.messages(turn.run.id) if message["role"] == "user"]
                assert [text for text in texts if text] == [turn.user_message]
            inputs = [text_of(stitch.message) for stitch in await store.stitches(name) if stitch.type == "input"]
            assert inputs == questions
            context = [text_of(message) for message in await store.context(name) if message["role"] == "user"]
            assert [text for text in context if text] == questions
            seen |= set(questions)
        assert set(schedule.ids) | returned <= seen
        for text, run_id in schedule.ids.items():
            result = await result_for(store, run_id)
            if result.status == "completed":
                assert result.output_text == f"To {text}"
        assert (await store.verify()).problems == []
