"""Compares a store with its model: all values that the model has are read from the database."""

import asyncio
from collections import defaultdict
from typing import Any
from uuid import UUID

from lockstitch.backend import Find, FullBackend
from lockstitch.model import CHAIN_TYPES, Delivery, Stitch, Thread, Worker
from tests.machine import model

_WHEN = ("since", "until")


class RecordChecker:
    """Compares after every step, and stores values for comparisons with later steps."""

    def __init__(self, expected: model.Model) -> None:
        self._model = expected
        self._fences: dict[UUID, int] = {}
        self._ended: dict[UUID, Thread] = {}
        self.reports: list[tuple[UUID, UUID, bool]] = []
        """Children that have reported, each with its parent, and True if the parent has consumed the report."""

    async def compare(self, backend: FullBackend) -> None:
        threads, stitches, posted, workers = await asyncio.gather(
            backend.find(Find(Thread)),
            backend.find(Find(Stitch, order=("thread_id", "position"))),
            backend.find(Find(Delivery, order=("id",))),
            backend.find(Find(Worker)),
        )
        heads = {head.id: head for head in threads}
        logs: dict[UUID, list[Stitch]] = defaultdict(list)
        for stitch in stitches:
            logs[stitch.thread_id].append(stitch)
        deliveries: dict[UUID, list[Delivery]] = defaultdict(list)
        for delivery in posted:
            deliveries[delivery.thread_id].append(delivery)
        assert heads.keys() == {thread.id for thread in self._model.threads.values()}
        for thread in self._model.threads.values():
            self._head(thread, heads[thread.id])
            self._log(thread, heads[thread.id], logs[thread.id])
            self._inbox(thread, deliveries[thread.id])
        self._results(logs, deliveries)
        alive = {worker.id: (worker.dead, worker.beat_at) for worker in workers}
        assert alive == {worker.id: (worker.dead, worker.beat_at) for worker in self._model.workers.values()}

    def _head(self, expected: model.Thread, head: Thread) -> None:
        actual = {name: getattr(head, name) for name in self._facts(expected)}
        actual["waiting_for"] = [{key: wait[key] for key in wait if key not in _WHEN} for wait in head.waiting_for]
        assert actual == self._facts(expected), f"{expected.name}: {actual}, expected {self._facts(expected)}"
        assert head.held == (head.status == "running"), expected.name
        assert head.fence >= self._fences.get(head.id, 0), f"the fence of {expected.name} fell"
        self._fences[head.id] = head.fence
        if head.ended:
            assert self._ended.setdefault(head.id, head) == head, f"{expected.name} had ended"

    @staticmethod
    def _facts(thread: model.Thread) -> dict[str, Any]:
        return {
            "status": thread.status,
            "waiting_for": thread.waits,
            "worker_id": thread.holder,
            "fence": thread.fence,
            "position": len(thread.log),
            "delivered": thread.delivered,
            "pending_children": thread.pending,
            "crashes": 0,
            "losses": thread.losses,
            "lost_by": thread.lost_by,
            "cancel_requested": thread.cancel,
            "wake_at": thread.wake_at,
            "priority": thread.priority,
            "parent_id": thread.parent.id if thread.parent else None,
            "depth": thread.depth,
        }

    @staticmethod
    def _log(expected: model.Thread, head: Thread, log: list[Stitch]) -> None:
        assert [stitch.data["mark"] for stitch in log] == expected.log, expected.name
        assert [stitch.position for stitch in log] == list(range(1, head.position + 1)), expected.name
        fences = [stitch.fence for stitch in log]
        assert fences == sorted(fences), expected.name
        tip: UUID | None = None
        for stitch in log:
            if stitch.type in CHAIN_TYPES:
                assert stitch.previous_id == tip, expected.name
                tip = stitch.id
        assert head.tip_id == tip, expected.name

    @staticmethod
    def _inbox(expected: model.Thread, deliveries: list[Delivery]) -> None:
        actual = {(delivery.sender, delivery.call_id): (delivery.kind, delivery.position) for delivery in deliveries}
        assert len(actual) == len(deliveries), expected.name
        assert actual == {key: (delivery.kind, delivery.position) for key, delivery in expected.deliveries.items()}, (
            expected.name
        )
        lying = [delivery.as_entry().data["mark"] for delivery in deliveries if delivery.position is None]
        assert lying == [delivery.mark for delivery in expected.inbox], expected.name

    def _results(self, logs: dict[UUID, list[Stitch]], deliveries: dict[UUID, list[Delivery]]) -> None:
        """Check that each report of a child is once in the log or the inbox of its parent, without the model."""
        thread_ids = {thread.id for thread in self._model.threads.values()}
        for child, parent, was_taken in self.reports:
            if parent in thread_ids:
                messages = [stitch.child_id for stitch in logs[parent] if stitch.type == "thread_result"]
                messages += [
                    delivery.as_entry().child_id for delivery in deliveries[parent] if delivery.position is None
                ]
                assert messages.count(child) == was_taken, (
                    f"the result of {child} is there {messages.count(child)} times"
                )
