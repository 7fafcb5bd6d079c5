"""Switches off a safeguard of this process, to prove that the tests notice its absence.

LOCKSTITCH_UNSAFE=fence allows writes of a worker that has lost its thread. LOCKSTITCH_UNSAFE=intent omits the entries
that say which tool calls have started. Every process of the crash, chaos and race tests calls `install`.
"""

import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lockstitch.engine.actions import tools
from lockstitch.errors import NotFound, StaleFence, StalePosition, ThreadHeld
from lockstitch.model import Thread
from lockstitch.store import core
from lockstitch.store.lease_keeper import LeaseKeeper
from lockstitch.store.transaction import Placed, ThreadUpdate, plan_commit
from lockstitch.store.writes.writer import Committed, CommitWriter

VARIABLE = "LOCKSTITCH_UNSAFE"


def install() -> None:
    """Switch off the safeguard that the environment names."""
    match os.environ.get(VARIABLE):
        case "fence":
            core.CommitWriter = UnfencedAppender
            core.LeaseKeeper = DeafLeaseKeeper
        case "intent":
            tools.started_entries = _no_entries
        case _:
            pass


class UnfencedAppender(CommitWriter):
    """Writes on top of the current state of a thread that another worker has taken over."""

    _lost: frozenset[UUID] = frozenset()

    async def commit(self, drafts: Sequence[ThreadUpdate], *rest: Any, **options: Any) -> list[Committed]:
        while True:
            try:
                return await super().commit(drafts, *rest, **options)
            except (StaleFence, StalePosition, ThreadHeld):
                pass
            self._lost |= {draft.head.id for draft in drafts}
            drafts = [await self._current(draft) for draft in drafts]

    def _build(self, drafts: Sequence[ThreadUpdate]) -> list[Placed]:
        now = self._clock.now()
        own = self._leases.worker_id
        workers = [draft.head.worker_id if draft.head.id in self._lost else own for draft in drafts]
        return [plan_commit(draft, worker, now) for draft, worker in zip(drafts, workers, strict=True)]

    async def _current(self, draft: ThreadUpdate) -> ThreadUpdate:
        head = await self._backend.get(Thread, (draft.head.id,))
        if head is None:
            raise NotFound(f"Thread {draft.head.id} not found.")
        return draft._replace(head=head)


class DeafLeaseKeeper(LeaseKeeper):
    """Continues its threads after it has lost its lease."""

    def on_lease_lost(self, why: str) -> None:
        pass


def _no_entries(*_: Any) -> list[Any]:
    return []
