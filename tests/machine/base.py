"""`MachineBase`: the processes, the choices, and helpers that the rules share."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lockstitch.errors import Conflict, ThreadBusy, ThreadEnded
from lockstitch.model import Delivery, Entry, Thread
from lockstitch.store import Store, Transaction
from lockstitch.store.transaction import plan_commit
from tests.machine import model
from tests.machine.checker import RecordChecker
from tests.machine.harness import PROCESSES, StoreHarness
from tests.waits import waiting

E = TypeVar("E", bound=Exception)
T = TypeVar("T")

THREADS = 12
"""More threads would not find further defects, and all are read after every step."""

LEASES = (10.05, 30.05)
STEPS = (0.7, 4.1, 11.3, 31.7)
"""Seconds. No lease expires exactly at the time of a check."""


@dataclass
class Process:
    number: int
    store: Store
    worker: model.Worker | None = None
    heads: dict[str, Thread] = field(default_factory=dict[str, Thread])
    """Heads of the threads that it believes to hold, as it last read them."""


def action(*, weight: int = 1, when: Callable[[Any], object] = lambda _: True) -> Callable[[T], T]:
    """Mark a method as an event with this weight, which can happen if `when` allows it.

    Hypothesis switches its own rules off by turns, and each family of events here needs many of them.
    """

    def mark(method: T) -> T:
        method.action = (weight, when)  # type: ignore[attr-defined]
        return method

    return mark


class MachineBase(RuleBasedStateMachine):
    """One store, several processes, one model."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__()
        harness.empty()
        self.harness = harness
        self.model = model.Model()
        self.checker = RecordChecker(self.model)
        self.processes = [Process(number, harness.store(number)) for number in range(PROCESSES)]
        self.seen: list[Thread] = []
        """Heads that were read earlier, to write with when they are stale."""
        self.sent: list[tuple[str, model.Delivery]] = []
        self.steps = 0
        methods = {name: getattr(method, "action", None) for name, method in vars(type(self)).items()}
        marked = [(name, *item) for name, item in methods.items() if item is not None]
        # Hypothesis prefers the first element when it has no reason to choose another.
        self.actions = sorted(marked, key=lambda item: -item[1])

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        possible = [name for name, weight, when in self.actions if when(self) for _ in range(weight)]
        # Hypothesis chooses the same for every backend: turned a little, they are other examples for each.
        turn = self.harness.turn % len(possible)
        possible = possible[turn:] + possible[:turn]
        getattr(self, data.draw(st.sampled_from(possible), label="act"))(data)

    @invariant()
    def matches_model(self) -> None:
        self.steps += 1
        self.harness.run(self.checker.compare(self.harness.backends[self.steps % PROCESSES]))

    # How rules choose

    @property
    def _now(self) -> datetime:
        return self.harness.clock.now()

    def _process(self, data: st.DataObject) -> Process:
        return self.processes[data.draw(st.integers(0, PROCESSES - 1), label="process")]

    def _thread(self, data: st.DataObject) -> model.Thread:
        return self.model.threads[data.draw(st.sampled_from([*self.model.threads]), label="thread")]

    def _holds(self, process: Process, thread: model.Thread) -> bool:
        return process.worker is not None and thread.holder == process.worker.id

    def _workable(self) -> list[str]:
        """Return threads that a process executes, or that can be claimed and do not wait."""
        known_names = {name for process in self.processes for name in process.heads if self._knows(process, name)}
        return [
            name
            for name, thread in self.model.threads.items()
            if name in known_names or (self.model.free(thread, self._now) and thread.status != "waiting")
        ]

    def _with_children(self) -> list[str]:
        return [name for name in self._workable() if self.model.unreported(self.model.threads[name])]

    def _awaited(self) -> list[str]:
        """Return children that can end and have an open parent."""
        families = ((name, self.model.threads[name]) for name in self._workable())
        return [
            name
            for name, thread in families
            if thread.spawned and thread.parent is not None and not thread.parent.ended
        ]

    def _knows(self, process: Process, name: str) -> bool:
        return name in self.model.threads and self._holds(process, self.model.threads[name])

    def _holding(self, data: st.DataObject, names: list[str] | None = None) -> tuple[Process, model.Thread]:
        """Return a thread with its holder. A thread without one is often claimed first, so that holders are common."""
        name = data.draw(st.sampled_from(names or self._workable()), label="thread")
        thread = self.model.threads[name]
        for process in self.processes:
            if name in process.heads and self._holds(process, thread):
                return process, thread
        process = self._process(data)
        self._claim(process, thread)
        return process, thread

    def _unheld(self) -> list[str]:
        return [name for name, thread in self.model.threads.items() if thread.holder is None and not thread.ended]

    def _deletable(self) -> list[str]:
        """Trees that have ended, and those that something is held of."""
        trees = ((name, self.model.tree(thread)) for name, thread in self.model.threads.items())
        return [
            name
            for name, tree in trees
            if all(thread.ended for thread in tree) or any(thread.holder for thread in tree)
        ]

    def _stale(self) -> list[Thread]:
        """Return stale heads that cannot be written with, those with the smallest differences first."""
        now = {thread.id: (thread.fence, len(thread.log), thread.holder) for thread in self.model.threads.values()}
        stale: list[tuple[int, Thread]] = []
        for head in self.seen:
            before = (head.fence, head.position, head.worker_id)
            same = sum(item == value_now for item, value_now in zip(before, now.get(head.id, ()), strict=False))
            if same < len(before):
                stale.append((-same, head))
        return [head for _, head in sorted(stale, key=lambda item: item[0])]

    # Shared by the rules

    def _do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.harness.run(act)

    def _refused(self, error: type[E], act: Coroutine[Any, Any, object]) -> E:
        """Return the error of a call that must fail. The checker verifies that nothing was written."""
        try:
            outcome = self._do(act)
        except error as exc:
            return exc
        raise AssertionError(f"the call succeeded: {outcome}")

    def _register(self, process: Process, lease: float) -> model.Worker:
        worker = self._do(process.store.register_worker(lease_seconds=lease))
        if process.worker is None:
            process.worker = self.model.workers[worker.id] = model.Worker(worker.id, self._now, lease)
        assert worker.id == process.worker.id
        process.worker.beat_at = self._now
        return process.worker

    def _worker(self, process: Process) -> model.Worker:
        return process.worker or self._register(process, LEASES[-1])

    def _living(self, process: Process) -> model.Worker:
        """Return a process as a worker that can claim. A worker that was declared dead registers again."""
        if process.worker is not None and process.worker.dead:
            self._refused(ThreadBusy, process.store.register_worker())
            process.worker = None
        return self._worker(process)

    def _claim(self, process: Process, thread: model.Thread) -> None:
        self._claimed(process, self._living(process), thread, self._do(process.store.claim(thread.id)))

    def _claim_next(self, process: Process, limit: int) -> None:
        worker = self._worker(process)
        ready = self.model.ready(self._now)
        threads = [] if worker.dead else ready[:limit]
        heads = self._do(process.store.claim_next(limit=limit))
        assert [head.id for head in heads] == [thread.id for thread in threads]
        for thread, head in zip(threads, heads, strict=True):
            self._claimed(process, worker, thread, head)
        for thread in ready[len(threads) :]:
            # A timer that has come is shown as such at once, or when its thread is claimed: both are right.
            if thread.status == "waiting" and self._do(process.store.thread(thread.id)).status == "pending":
                thread.status = "pending"

    def _claimed(self, process: Process, worker: model.Worker, thread: model.Thread, head: Thread) -> None:
        thread.claim(worker)
        assert (head.fence, head.worker_id, head.losses) == (thread.fence, worker.id, thread.losses)
        self._remember(process, thread, head)

    def _remember(self, process: Process, thread: model.Thread, head: Thread) -> None:
        process.heads[thread.name] = head
        self.seen.append(head)

    def _add(self, result: Thread, parent: model.Thread | None, *, spawned: bool = False) -> None:
        thread = model.Thread(self.model.name(), result.id, result.kind, "pending", parent, spawned, result.priority)
        thread.wake_at = self._now
        if result.kind == "chat":
            thread.leave("waiting", [{"kind": "input", "id": None}], None)
        self.model.add(thread)

    def _entries(self, data: st.DataObject, number: int, kind: str | None = None) -> list[Entry]:
        kinds = st.sampled_from(["llm_call", "run_started"])
        return [
            Entry(type=kind or data.draw(kinds, label="type"), data={"mark": self.model.mark("own")})
            for _ in range(number)
        ]

    def _waits(self, data: st.DataObject, children: list[UUID]) -> list[model.Wait]:
        """Return a wait. It waits for children only if some have not reported, or it would never end."""
        kinds = data.draw(st.sampled_from(["children", "children", "both", "input", "approval"]), label="awaited")
        waits: list[model.Wait] = []
        if kinds in ("children", "both") and children:
            wait: model.Wait = {"kind": "children", "id": None}
            wait["mode"] = data.draw(st.sampled_from(["any", "all"]), label="mode")
            named = data.draw(st.lists(st.sampled_from(children), unique=True), label="ids")
            waits.append({**wait, "ids": [str(child) for child in named]} if named else wait)
        if kinds != "children" or not waits:
            approval = kinds == "approval"
            waits.append({"kind": "approval" if approval else "input", "id": "c1" if approval else None})
        return waits

    def _read_inbox(self, process: Process, thread: model.Thread, data: st.DataObject) -> tuple[Thread, list[Delivery]]:
        """Return the head with which a holder releases a thread, and the deliveries that it consumes.

        The holder may not have read the inbox for some time, but it has read the deliveries that were there at its
        claim.
        """
        head = process.heads[thread.name]
        unread = head.delivered == thread.delivered and bool(thread.inbox)
        if data.draw(st.booleans(), label="looks") or unread:
            return self._do(process.store.inbox(head))
        return head, []

    def _leave(
        self,
        process: Process,
        thread: model.Thread,
        head: Thread,
        deliveries: list[Delivery],
        entries: list[Entry],
        fields: dict[str, Any],
        report: list[Delivery] | None = None,
    ) -> None:
        """Write the last append of a holder. It is rejected if a delivery has arrived that the holder has not read."""
        act = process.store.append(head, entries, fields=fields, consumed=deliveries, deliveries=report or [])
        if head.delivered != thread.delivered:
            assert self._refused(Conflict, act).reason == "delivered"
            return
        after = self._do(act).head
        if not after.ended:
            self.seen.append(after)
        if deliveries:
            thread.take()
        thread.append(*(entry.data["mark"] for entry in entries))
        thread.holder = None

    def _finish(self, data: st.DataObject, process: Process, thread: model.Thread, number: int, status: str) -> None:
        status = "cancelled" if thread.kind == "chat" else status
        head, deliveries = self._read_inbox(process, thread, data)
        report, expected = self._report(process.store, thread)
        self._leave(process, thread, head, deliveries, self._entries(data, number), ending(status), report)
        if thread.holder is None:
            thread.end(status)
            self._reported(thread, expected)

    def _report(self, store: Store, thread: model.Thread) -> tuple[list[Delivery], model.Delivery | None]:
        """Return the delivery that reports the end of a child, also for the model. Only spawned children report."""
        if thread.parent is None or not thread.spawned:
            return [], None
        mark = self.model.mark("result")
        entry = Entry(type="thread_result", child_id=thread.id, data={"mark": mark})
        parent = self._do(store.thread(thread.parent.id))
        sender = str(thread.id)
        return [store.new_delivery(parent, entry, "children", sender)], model.Delivery(
            sender, mark, "children", "", thread.id
        )

    def _reported(self, thread: model.Thread, delivery: model.Delivery | None) -> None:
        if delivery is not None and thread.parent is not None:
            arrived = thread.parent.arrive(delivery, self._now)
            self.checker.reports.append((thread.id, thread.parent.id, arrived.new))
            self.sent.append((thread.parent.name, delivery))

    def _deliver(self, data: st.DataObject, thread: model.Thread, delivery: model.Delivery) -> None:
        kind = "thread_result" if delivery.child else "input" if delivery.kind == "input" else "note"
        entry = Entry(type=kind, child_id=delivery.child, data={"mark": delivery.mark})
        act = self._process(data).store.deliver(
            thread.id, entry, kind=delivery.kind, sender=delivery.sender, call_id=delivery.call_id
        )
        arrived = thread.arrive(delivery, self._now)
        if thread.ended and arrived.position is None:
            self._refused(ThreadEnded, act)
            return
        receipt = self._do(act)
        assert (receipt.position, receipt.new, receipt.woken) == arrived
        assert (receipt.delivered, receipt.cancel_requested) == (thread.delivered, thread.cancel)
        self.sent.append((thread.name, delivery))

    def _write(self, data: st.DataObject, head: Thread, act: str) -> None:
        """Write on a stale head under the worker that held it: nothing at all happens, wherever it would have."""
        thread = next((thread for thread in self.model.threads.values() if thread.id == head.id), None)
        store = self._process(data).store
        transaction = Transaction()
        update = transaction.update(head)
        update.entries = self._entries(data, data.draw(st.integers(0, 1), label="number"))
        if act == "spawn" and thread is not None:
            transaction.new_threads.append(store.new_thread(kind="task", goal="g", parent_id=head.id))
        elif act == "end":
            update.fields = ending("cancelled")
            transaction.deliveries = self._report(store, thread)[0] if thread is not None else []
        commit = plan_commit(transaction, head.worker_id, self._now)
        self._refused(Conflict, store._backend.append(commit))


def resting(waits: list[model.Wait], now: datetime, wake_at: datetime | None = None) -> dict[str, Any]:
    """The fields with which a thread goes to wait."""
    awaited = [waiting(wait["kind"], now, wait["id"], **_more(wait)) for wait in waits]
    return {"status": "waiting", "waiting_for": awaited, "wake_at": wake_at}


def _more(wait: model.Wait) -> dict[str, Any]:
    return {key: value for key, value in wait.items() if key not in ("kind", "id")}


def ending(status: str) -> dict[str, Any]:
    """The fields with which a thread ends."""
    return {"status": status, "result": None if status == "cancelled" else {"as": status}}
