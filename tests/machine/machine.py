"""`Machine`: rules that act on a store, and the expected effect of each rule on the model."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from lockstitch.errors import Conflict, ThreadBusy, ThreadEnded
from tests.machine import model
from tests.machine.base import LEASES, STEPS, THREADS, MachineBase, action, ending, resting


class Machine(MachineBase):
    """Each rule acts on the store and on the model; the checker compares them after each."""

    # Threads

    @initialize(data=st.data())
    def family(self, data: st.DataObject) -> None:
        """Most defects need a parent and its children."""
        self._add(self._do(self.processes[0].store.create(kind="goal", goal="g")), None)
        self.spawn(data)

    @action(when=lambda self: len(self.model.threads) < THREADS)
    def create(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["goal", "task", "chat"]), label="kind")
        priority = data.draw(st.integers(-1, 1), label="priority")
        parent = data.draw(st.sampled_from([None, *self.model.threads]), label="parent")
        above = None if parent is None else self.model.threads[parent]
        fields = {} if kind == "chat" else {"goal": "g"}
        thread = self._do(
            self._process(data).store.create(
                kind=kind, priority=priority, parent_id=None if above is None else above.id, **fields
            )
        )
        self._add(thread, above)

    @action(when=lambda self: self.model.threads)
    def edit(self, data: st.DataObject) -> None:
        """Request a cancel or set a priority. The holder learns of the request."""
        priority = data.draw(st.none() | st.integers(-1, 1), label="priority")
        thread = self._thread(data)
        if thread.ended:
            return
        store = self._process(data).store
        if priority is not None:
            self._do(store.edit(thread.id, priority=priority))
            thread.priority = priority
            return
        self._do(store.edit(thread.id, cancel_requested=True))
        thread.cancel = True
        for process in self.processes:
            wished = {
                thread.id for thread in self.model.threads.values() if thread.cancel and self._holds(process, thread)
            }
            assert set(self._do(process.store.lease_keeper.cancel_requests())) == wished

    @action(when=lambda self: self._deletable())
    def delete(self, data: st.DataObject) -> None:
        """Delete a tree. If one of its threads is held, the store refuses and changes nothing."""
        thread = self.model.threads[data.draw(st.sampled_from(self._deletable()), label="thread")]
        tree = self.model.tree(thread)
        act = self._process(data).store.delete(thread.id)
        if any(thread.holder for thread in tree):
            self._refused(ThreadBusy, act)
            return
        assert self._do(act) == len(tree)
        self.model.remove(tree)

    # Leases

    @action()
    def heartbeat(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(LEASES), label="lease")
        process = self._process(data)
        self._living(process)
        self._register(process, lease)

    @action()
    def advance(self, data: st.DataObject) -> None:
        seconds = data.draw(st.sampled_from(STEPS), label="seconds")
        self.harness.clock.advance(seconds)

    @action(weight=2, when=lambda self: self.model.threads)
    def claim(self, data: st.DataObject) -> None:
        take_over = data.draw(st.booleans(), label="take_over")
        process, thread = self._process(data), self._thread(data)
        worker = self._worker(process)
        holder = self.model.holder_of(thread)
        # A takeover by the holder itself or by a dead worker has no effect.
        take_over = take_over and not worker.dead and holder is not worker
        act = process.store.claim(thread.id, take_over=take_over)
        if thread.ended:
            self._refused(ThreadEnded, act)
            return
        if not worker.dead and take_over and holder is not None and not self.model.free(thread, self._now):
            self.model.release(holder, self._now)
        if worker.dead or not self.model.free(thread, self._now):
            self._refused(ThreadBusy, act)
            return
        self._claimed(process, worker, thread, self._do(act))

    @action(weight=2)
    def claim_next(self, data: st.DataObject) -> None:
        process = self._process(data)
        self._claim_next(process, data.draw(st.sampled_from([1, 1, 2]), label="limit"))

    @action(weight=2)
    def reap(self, data: st.DataObject) -> None:
        """Declare workers with an expired lease dead. They get nothing more until they have learned of it."""
        process = self._process(data)
        if data.draw(st.booleans(), label="late"):
            self.harness.clock.advance(STEPS[-1])
        late = [worker for worker in self.model.workers.values() if not worker.dead and worker.expired(self._now)]
        threads = [
            thread
            for worker in late
            if worker is not process.worker
            for thread in self.model.release(worker, self._now)
        ]
        assert sorted(self._do(process.store.reap())) == sorted(thread.id for thread in threads)
        for other_process in self.processes:
            if other_process.worker is not None and other_process.worker.dead:
                self._claim_next(other_process, 2)

    @action()
    def restart(self, data: st.DataObject) -> None:
        """End a process and start it again. A killed process has released nothing."""
        orderly = data.draw(st.booleans(), label="orderly")
        process = self._process(data)
        if orderly and process.worker is not None:
            threads = self.model.release(process.worker, self._now, lost=False) if not process.worker.dead else []
            released = self._do(process.store._backend.release(process.worker.id))
            assert sorted(released) == sorted(thread.id for thread in threads)
        process.store, process.worker, process.heads = self.harness.store(process.number), None, {}

    # Actions of holders

    @action(weight=2, when=lambda self: self._workable())
    def append(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, 3), label="number")
        process, thread = self._holding(data)
        head = process.heads[thread.name]
        entries = self._entries(data, number)
        appended = self._do(process.store.append(head, entries))
        thread.append(*(entry.data["mark"] for entry in entries))
        assert appended.has_unseen_deliveries == (thread.delivered != head.delivered)
        assert appended.cancel_requested == thread.cancel
        self._remember(process, thread, appended.head)

    @action(when=lambda self: self._workable())
    def take(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, 1), label="number")
        process, thread = self._holding(data)
        head, deliveries = self._do(process.store.inbox(process.heads[thread.name]))
        entries = self._entries(data, number)
        appended = self._do(process.store.append(head, entries, consumed=deliveries))
        thread.take()
        thread.append(*(entry.data["mark"] for entry in entries))
        assert not appended.has_unseen_deliveries
        self._remember(process, thread, appended.head)

    @action(weight=2, when=lambda self: self._workable() and len(self.model.threads) < THREADS)
    def spawn(self, data: st.DataObject) -> None:
        """Spawn children in one commit with the stitches about them. The parent may start to wait in it too."""
        number = data.draw(st.sampled_from([2, 3, 1]), label="number")
        then_waits = data.draw(st.booleans(), label="then_waits")
        process, thread = self._holding(data)
        store = process.store
        priority = data.draw(st.sampled_from([1, 0, -1]), label="priority")
        threads = [
            store.new_thread(kind="task", goal="g", parent_id=thread.id, priority=priority * place)
            for place in range(number)
        ]
        head, deliveries = self._read_inbox(process, thread, data) if then_waits else (process.heads[thread.name], [])
        waits = self._waits(
            data, [*(child.id for child in self.model.unreported(thread)), *(child.id for child in threads)]
        )
        entries = self._entries(data, 1, "thread_spawned")
        fields = resting(waits, self._now) if then_waits else None
        act = store.append(head, entries, fields=fields, consumed=deliveries, new_threads=threads)
        if (model.SPAWNING_HEEDS_CANCEL and thread.cancel) or (then_waits and head.delivered != thread.delivered):
            self._refused(Conflict, act)
            return
        after = self._do(act).head
        if deliveries:
            thread.take()
        thread.append(entries[0].data["mark"])
        thread.pending += number
        for child in threads:
            self._add(child, thread, spawned=True)
        if then_waits:
            thread.leave("waiting", waits, None)
        self._remember(process, thread, after)

    @action(weight=4, when=lambda self: self._workable())
    def wait(self, data: st.DataObject) -> None:
        """Let a thread wait, unless a delivery has arrived that its holder has not read."""
        number = data.draw(st.integers(0, 1), label="number")
        timer = data.draw(st.none() | st.sampled_from(STEPS), label="timer")
        process, thread = self._holding(data, self._with_children())
        head, deliveries = self._read_inbox(process, thread, data)
        waits = self._waits(data, [child.id for child in self.model.unreported(thread)])
        wake_at = None if timer is None else self._now + timedelta(seconds=timer)
        self._leave(process, thread, head, deliveries, self._entries(data, number), resting(waits, self._now, wake_at))
        if thread.holder is None:
            thread.leave("waiting", waits, wake_at)

    @action(weight=2, when=lambda self: self._workable())
    def release(self, data: st.DataObject) -> None:
        """Release a thread as pending. The next holder reads the inbox, so the number of deliveries is not compared.

        Another worker or the same one may claim it immediately. Then only the fence distinguishes the two holders.
        """
        process, thread = self._holding(data)
        head = process.heads[thread.name]
        self._do(process.store.append(head, fields={"status": "pending"}))
        thread.append()
        thread.leave("pending", thread.waits, self._now)
        if data.draw(st.booleans(), label="taken again"):
            self._claim(self._process(data), thread)
            self._write(data, head, "append")

    @action(when=lambda self: self._workable())
    def finish(self, data: st.DataObject) -> None:
        """End a thread, in one commit with the delivery that reports it to its parent."""
        number = data.draw(st.integers(0, 1), label="number")
        status = data.draw(st.sampled_from(model.ENDS), label="status")
        process, thread = self._holding(data)
        self._finish(data, process, thread, number, status)

    @action(weight=5, when=lambda self: self._awaited())
    def finish_a_child(self, data: st.DataObject) -> None:
        """End a thread that its parent waits for. Otherwise every second family would lose its parent first."""
        number = data.draw(st.integers(0, 1), label="number")
        status = data.draw(st.sampled_from(model.ENDS), label="status")
        process, thread = self._holding(data, self._awaited())
        self._finish(data, process, thread, number, status)

    # Events without a holder

    @action(when=lambda self: self._unheld())
    def append_to_unheld_thread(self, data: st.DataObject) -> None:
        """Append to a thread without a holder, as a reply or a cancel does, perhaps without entries."""
        number = data.draw(st.integers(0, 2), label="number")
        cancel = data.draw(st.sampled_from([False, False, True]), label="cancel")
        thread = self.model.threads[data.draw(st.sampled_from(self._unheld()), label="thread")]
        store = self._process(data).store
        head = self._do(store.thread(thread.id))
        self.seen.append(head)
        entries = self._entries(data, number)
        if not cancel:
            self._do(store.append(head, entries))
            thread.append(*(entry.data["mark"] for entry in entries))
            return
        report, expected = self._report(store, thread)
        self._do(store.append(head, entries, fields=ending("cancelled"), deliveries=report))
        thread.end_unheld("cancelled", *(entry.data["mark"] for entry in entries))
        self._reported(thread, expected)

    @action(weight=2, when=lambda self: self.model.threads)
    def deliver(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["input", "approval"]), label="kind")
        call_id = data.draw(st.sampled_from(["", "c1", "c2"]), label="call_id")
        sender = data.draw(st.sampled_from(["ada", "bob"]), label="sender")
        delivery = model.Delivery(sender, self.model.mark("delivery"), kind, call_id)
        self._deliver(data, self._thread(data), delivery)

    @action(when=lambda self: self.sent)
    def deliver_again(self, data: st.DataObject) -> None:
        """Repeat a delivery, as a sender does that does not know whether it arrived."""
        name, first = self.sent[data.draw(st.integers(0, len(self.sent) - 1), label="delivery")]
        if name in self.model.threads:
            mark = self.model.mark("again")
            repeated_delivery = model.Delivery(first.sender, mark, first.kind, first.call_id, first.child)
            self._deliver(data, self.model.threads[name], repeated_delivery)

    @action(weight=3, when=lambda self: self._stale())
    def write_with_stale_head(self, data: st.DataObject) -> None:
        """Write as the former holder, like a process that was stopped for a long time. The store must refuse."""
        act = data.draw(st.sampled_from(["append", "spawn", "end"]), label="act")
        stale = self._stale()
        head = stale[data.draw(st.integers(0, min(3, len(stale) - 1)), label="head")]
        self._write(data, head, act)
