"""Switches off a safeguard of this process, to prove that the tests notice its absence.

LOCKSTITCH_UNSAFE=fence allows writes of a worker that has lost its thread. LOCKSTITCH_UNSAFE=intent omits the entries
that say which tool calls have started. Every process of the crash, chaos and race tests calls `install`.
"""

import os
from dataclasses import replace
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit
from lockstitch.engine.actions import tools
from lockstitch.errors import NotFound, StaleFence, StalePosition, ThreadHeld
from lockstitch.model import Thread
from lockstitch.store import core
from lockstitch.store.lease_keeper import LeaseKeeper
from lockstitch.store.transaction import ThreadUpdate, Transaction, plan_commit
from lockstitch.store.writes.writer import Committed, CommitWriter

VARIABLE = "LOCKSTITCH_UNSAFE"


def install() -> None:
    """Switch off the safeguard that the environment names."""
    match os.environ.get(VARIABLE):
        case "fence":
            core.CommitWriter = UnfencedWriter
            core.LeaseKeeper = DeafLeaseKeeper
        case "intent":
            tools.started_entries = _no_entries
        case _:
            pass


class UnfencedWriter(CommitWriter):
    """Writes on top of the current state of a thread that another worker has taken over."""

    _lost: frozenset[UUID] = frozenset()

    async def commit(self, transaction: Transaction) -> list[Committed]:
        while True:
            try:
                return await super().commit(transaction)
            except (StaleFence, StalePosition, ThreadHeld):
                pass
            self._lost |= {update.head.id for update in transaction.updates}
            transaction = replace(transaction, updates=[await self._current(update) for update in transaction.updates])

    def plan(self, transaction: Transaction) -> Commit:
        """Plan for the worker that took the thread over. The engine updates one thread per transaction."""
        lost_threads = [update.head for update in transaction.updates if update.head.id in self._lost]
        worker_id = lost_threads[0].worker_id if lost_threads else self._leases.worker_id
        return plan_commit(transaction, worker_id, self._clock.now())

    async def _current(self, update: ThreadUpdate) -> ThreadUpdate:
        head = await self._backend.get(Thread, (update.head.id,))
        if head is None:
            raise NotFound(f"Thread {update.head.id} not found.")
        return replace(update, head=head)


class DeafLeaseKeeper(LeaseKeeper):
    """Continues its threads after it has lost its lease."""

    def on_lease_lost(self, why: str) -> None:
        pass


def _no_entries(*_: Any) -> list[Any]:
    return []
