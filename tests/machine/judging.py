"""Compares a store with its model: all values that the model has are read from the database."""

import asyncio
from collections import defaultdict
from typing import Any
from uuid import UUID

from lockstitch.backend import Find, FullBackend
from lockstitch.model import CHAIN_TYPES, Delivery, Stitch, Thread, Worker
from tests.machine import model

_WHEN = ("since", "until")


class Judge:
    """Compares after every step, and stores values for comparisons with later steps."""

    def __init__(self, expected: model.Model) -> None:
        self._model = expected
        self._fences: dict[UUID, int] = {}
        self._ended: dict[UUID, Thread] = {}
        self.reports: list[tuple[UUID, UUID, bool]] = []
        """Children that have reported, each with its parent, and True if the parent has consumed the report."""

    async def compare(self, backend: FullBackend) -> None:
        found, stitches, posted, workers = await asyncio.gather(
            backend.find(Find(Thread)),
            backend.find(Find(Stitch, order=("thread_id", "position"))),
            backend.find(Find(Delivery, order=("id",))),
            backend.find(Find(Worker)),
        )
        heads = {head.id: head for head in found}
        logs: dict[UUID, list[Stitch]] = defaultdict(list)
        for stitch in stitches:
            logs[stitch.thread_id].append(stitch)
        letters: dict[UUID, list[Delivery]] = defaultdict(list)
        for letter in posted:
            letters[letter.thread_id].append(letter)
        assert heads.keys() == {thread.id for thread in self._model.threads.values()}
        for thread in self._model.threads.values():
            self._head(thread, heads[thread.id])
            self._log(thread, heads[thread.id], logs[thread.id])
            self._inbox(thread, letters[thread.id])
        self._results(logs, letters)
        alive = {worker.id: (worker.dead, worker.beat_at) for worker in workers}
        assert alive == {worker.id: (worker.dead, worker.beat_at) for worker in self._model.workers.values()}

    def _head(self, expected: model.Thread, head: Thread) -> None:
        shown = {name: getattr(head, name) for name in self._facts(expected)}
        shown["waiting_for"] = [{key: wait[key] for key in wait if key not in _WHEN} for wait in head.waiting_for]
        assert shown == self._facts(expected), f"{expected.name}: {shown}, expected {self._facts(expected)}"
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
    def _inbox(expected: model.Thread, letters: list[Delivery]) -> None:
        shown = {(one.sender, one.call_id): (one.kind, one.position) for one in letters}
        assert len(shown) == len(letters), expected.name
        assert shown == {key: (one.kind, one.position) for key, one in expected.letters.items()}, expected.name
        lying = [one.as_entry().data["mark"] for one in letters if one.position is None]
        assert lying == [one.mark for one in expected.inbox], expected.name

    def _results(self, logs: dict[UUID, list[Stitch]], letters: dict[UUID, list[Delivery]]) -> None:
        """Check that each report of a child is once in the log or the inbox of its parent, without the model."""
        there = {thread.id for thread in self._model.threads.values()}
        for child, parent, taken in self.reports:
            if parent in there:
                told = [stitch.child_id for stitch in logs[parent] if stitch.type == "thread_result"]
                told += [one.as_entry().child_id for one in letters[parent] if one.position is None]
                assert told.count(child) == taken, f"the result of {child} is there {told.count(child)} times"
