"""The core of the blocking face, as `Core` is that of a store: writing to threads, leases, and their logs."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from lockstitch.model import (
    Clock,
    Delivery,
    Entry,
    Eval,
    Feedback,
    File,
    Json,
    Memory,
    Record,
    Run,
    Stitch,
    Thread,
    WebhookEvent,
    Worker,
)
from lockstitch.store import Committed, Fields, Receipt, Store, Transaction, Where
from lockstitch.store.threads import ThreadRef
from lockstitch.sync.portal import CLOSING, Portal
from lockstitch.sync.tables import SyncAgents, SyncTable

T = TypeVar("T")

INTERRUPTED = 0.5
"""Seconds that closing may take for whoever was interrupted and wants to leave."""


class SyncStoreCore:
    """What everything else of a blocking store is built on."""

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._portal = Portal()
        try:
            # On the loop, because a backend may tie itself to the one it is made on.
            self._store = store = self._portal.call(_made(open_it))
        except BaseException as exc:
            self._portal.close(_patience(exc))
            raise
        self.agents = SyncAgents(store.agents, self._portal)
        self.memories: SyncTable[Memory] = SyncTable(store.memories, self._portal)
        self.files: SyncTable[File] = SyncTable(store.files, self._portal)
        self.feedback: SyncTable[Feedback] = SyncTable(store.feedback, self._portal)
        self.evals: SyncTable[Eval] = SyncTable(store.evals, self._portal)

    def __enter__(self) -> Self:
        try:
            self._call(self._store.__aenter__())
        except BaseException as exc:
            self._portal.close(_patience(exc))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(_patience(exc))

    @property
    def portal(self) -> Portal:
        """The way to this store's loop, for what else is to be awaited there."""
        return self._portal

    @property
    def async_store(self) -> Store:
        """The store as code on that loop sees it."""
        return self._store

    @property
    def clock(self) -> Clock:
        return self._store.clock

    @property
    def project(self) -> str:
        return self._store.project

    def migrate(self) -> int:
        return self._call(self._store.migrate())

    def close(self) -> None:
        self._close(CLOSING)

    # Threads

    def create(
        self, *, records: Sequence[Record] = (), delete_threads: Sequence[ThreadRef] = (), **fields: Any
    ) -> Thread:
        return self._call(self._store.create(records=records, delete_threads=delete_threads, **fields))

    def new_thread(self, **fields: Any) -> Thread:
        return self._store.new_thread(**fields)

    def thread(self, ref: ThreadRef) -> Thread:
        return self._call(self._store.thread(ref))

    def ensure(self, key: str, *, user_id: str | None = None, **fields: Any) -> Thread:
        return self._call(self._store.ensure(key, user_id=user_id, **fields))

    def threads(
        self,
        *,
        limit: int | None = 50,
        offset: int = 0,
        after: Thread | None = None,
        since: datetime | None = None,
        all_projects: bool = False,
        **equal: Any,
    ) -> list[Thread]:
        return self._call(
            self._store.threads(
                limit=limit, offset=offset, after=after, since=since, all_projects=all_projects, **equal
            )
        )

    def threads_by_id(self, ids: Collection[UUID], *, all_projects: bool = False) -> dict[UUID, Thread]:
        return self._call(self._store.threads_by_id(ids, all_projects=all_projects))

    def find_threads(self, *where: Where, order: Sequence[str] = (), limit: int | None = None) -> list[Thread]:
        return self._call(self._store.find_threads(*where, order=order, limit=limit))

    def count(self, *, since: datetime | None = None, all_projects: bool = False, **equal: Any) -> int:
        return self._call(self._store.count(since=since, all_projects=all_projects, **equal))

    def awaiting_person(self, *, limit: int | None = 50, after: Thread | None = None) -> list[Thread]:
        return self._call(self._store.awaiting_person(limit=limit, after=after))

    def count_awaiting_person(self) -> int:
        return self._call(self._store.count_awaiting_person())

    def children(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.children(ref))

    def children_of(self, parents: Sequence[UUID], *, limit: int | None = None) -> list[Thread]:
        return self._call(self._store.children_of(parents, limit=limit))

    def ancestors(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.ancestors(ref))

    def tree(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.tree(ref))

    def request_cancel(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.request_cancel(ref))

    def request_cancel_of_children(self, ref: ThreadRef) -> None:
        self._call(self._store.request_cancel_of_children(ref))

    def edit(self, ref: ThreadRef, **fields: Any) -> None:
        self._call(self._store.edit(ref, **fields))

    def delete(self, ref: ThreadRef, *, force: bool = False) -> int:
        return self._call(self._store.delete(ref, force=force))

    def delete_threads(self, ids: Collection[UUID], *, force: bool = False) -> int:
        return self._call(self._store.delete_threads(ids, force=force))

    # Writing

    def append(
        self,
        head: Thread,
        entries: Sequence[Entry] = (),
        *,
        fields: Fields | None = None,
        new_runs: Sequence[Run] = (),
        run_updates: Sequence[tuple[Run, Fields]] = (),
        consumed: Sequence[Delivery] = (),
        deliveries: Sequence[Delivery] = (),
        new_threads: Sequence[Thread] = (),
        webhook_events: Sequence[WebhookEvent] = (),
        blob_refs: Sequence[str] = (),
        records: Sequence[Record] = (),
    ) -> Committed:
        return self._call(
            self._store.append(
                head,
                entries,
                fields=fields,
                new_runs=new_runs,
                run_updates=run_updates,
                consumed=consumed,
                deliveries=deliveries,
                new_threads=new_threads,
                webhook_events=webhook_events,
                blob_refs=blob_refs,
                records=records,
            )
        )

    def commit(self, transaction: Transaction) -> list[Committed]:
        return self._call(self._store.commit(transaction))

    def new_run(self, head: Thread, **fields: Any) -> Run:
        return self._store.new_run(head, **fields)

    def deliver(self, ref: ThreadRef, entry: Entry, *, kind: str, sender: str, call_id: str = "") -> Receipt:
        return self._call(self._store.deliver(ref, entry, kind=kind, sender=sender, call_id=call_id))

    def new_delivery(self, head: Thread, entry: Entry, kind: str, sender: str, call_id: str = "") -> Delivery:
        return self._store.new_delivery(head, entry, kind, sender, call_id)

    def inbox(self, head: Thread) -> tuple[Thread, list[Delivery]]:
        return self._call(self._store.inbox(head))

    def store_text(self, ref: ThreadRef, text: str, media_type: str = "text/plain") -> str:
        return self._call(self._store.store_text(ref, text, media_type))

    # Leases

    def register_worker(self, *, lease_seconds: float | None = None, doing: Json | None = None) -> Worker:
        return self._call(self._store.register_worker(lease_seconds=lease_seconds, doing=doing))

    def claim(self, ref: ThreadRef, *, take_over: bool = False, unlimited: bool = False) -> Thread:
        return self._call(self._store.claim(ref, take_over=take_over, unlimited=unlimited))

    def claim_next(
        self,
        *,
        agents: Sequence[str] | None = None,
        limit: int = 1,
        all_projects: bool = True,
        suspects: bool | None = None,
        alone: bool = False,
    ) -> list[Thread]:
        return self._call(
            self._store.claim_next(
                agents=agents, limit=limit, all_projects=all_projects, suspects=suspects, alone=alone
            )
        )

    def reap(self) -> list[UUID]:
        return self._call(self._store.reap())

    # The log

    def stitches(self, ref: ThreadRef, first: int = 1, last: int | None = None) -> list[Stitch]:
        return self._call(self._store.stitches(ref, first, last))

    def last_stitch(self, ref: ThreadRef) -> Stitch | None:
        return self._call(self._store.last_stitch(ref))

    def stitch(self, stitch_id: UUID | str) -> Stitch:
        return self._call(self._store.stitch(stitch_id))

    def run(self, run_id: UUID | str) -> Run:
        return self._call(self._store.run(run_id))

    def runs(self, ref: ThreadRef, *, limit: int | None = None) -> list[Run]:
        return self._call(self._store.runs(ref, limit=limit))

    def find_runs(
        self,
        threads: UUID | Collection[UUID],
        *where: Where,
        order: Sequence[str] = ("sequence",),
        limit: int | None = None,
    ) -> list[Run]:
        return self._call(self._store.find_runs(threads, *where, order=order, limit=limit))

    def runs_by_id(self, thread_id: UUID, ids: Collection[UUID]) -> dict[UUID, Run]:
        return self._call(self._store.runs_by_id(thread_id, ids))

    def find_stitches(
        self, thread_id: UUID, *where: Where, order: Sequence[str] = ("position",), limit: int | None = None
    ) -> list[Stitch]:
        return self._call(self._store.find_stitches(thread_id, *where, order=order, limit=limit))

    def count_stitches(self, thread_id: UUID, *where: Where) -> int:
        return self._call(self._store.count_stitches(thread_id, *where))

    def stitches_by_id(self, threads: Collection[UUID], ids: Collection[UUID]) -> list[Stitch]:
        return self._call(self._store.stitches_by_id(threads, ids))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work)

    def _close(self, patience: float) -> None:
        if not self._portal.alive:
            return
        try:
            with suppress(TimeoutError):
                self._portal.call(self._store.close(), patience)
        finally:
            self._portal.close(patience)


def _patience(exc: BaseException | None) -> float:
    return INTERRUPTED if isinstance(exc, KeyboardInterrupt) else CLOSING


async def _made(open_it: Callable[[], Store]) -> Store:
    return open_it()
