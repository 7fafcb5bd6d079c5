"""The store without await. What the methods do is told at their twins in `Store`."""

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from lockstitch.extension import Extension
from lockstitch.model import Clock, Json, Limit, Message, Record, Stitch, Thread
from lockstitch.store import (
    ChangeHint,
    CopyReport,
    DoctorReport,
    HistoryPage,
    QueryResult,
    SearchHit,
    Sizes,
    Store,
    ThreadUsage,
)
from lockstitch.store import open_store as open_async_store
from lockstitch.store.conversations import EnqueuedMessage, Task
from lockstitch.store.maintenance.copy import Progress
from lockstitch.store.queries.overview import Node, Overview
from lockstitch.store.reports.diff import Difference
from lockstitch.store.reports.traces import LINES, Trace
from lockstitch.store.store import ThreadRef, on_loop, open_lens
from lockstitch.sync.core import SyncStoreCore
from lockstitch.sync.portal import CLOSING
from lockstitch.sync.tables import SyncStatistics, SyncTable

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_END: Any = object()


def open_store(
    url: str = "sqlite:///lockstitch.db",
    *,
    project: str = "default",
    clock: Clock | None = None,
    migrate: bool = True,
    create: bool = True,
) -> "SyncStore":
    """The store at `url`, for `with`."""
    return SyncStore(lambda: open_async_store(url, project=project, clock=clock, migrate=migrate, create=create))


class SyncStore(SyncStoreCore):
    """One durable record, for programs that do not await. Safe for many threads; open one per process."""

    def in_project(self, project: str) -> "SyncStore":
        view = copy(self)
        view._store = self._store.in_project(project)
        return view

    @property
    def statistics(self) -> SyncStatistics:
        return SyncStatistics(self._store.statistics, self._portal)

    # Starting

    def start(
        self,
        agent: str,
        goal: str,
        *,
        key: str | None = None,
        tasks: Sequence[Task] = (),
        priority: int = 0,
        user_id: str | None = None,
        at: datetime | None = None,
        connection: object | None = None,
        **fields: Any,
    ) -> Thread:
        return self._call(
            self._store.start(
                agent,
                goal,
                key=key,
                tasks=tasks,
                priority=priority,
                user_id=user_id,
                at=at,
                connection=connection,
                **fields,
            )
        )

    def enqueue(
        self,
        agent: str | None,
        message: Message,
        *,
        thread: ThreadRef | None = None,
        kind: str = "chat",
        user_id: str | None = None,
        extras: Json | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
    ) -> EnqueuedMessage:
        return self._call(
            self._store.enqueue(
                agent,
                message,
                thread=thread,
                kind=kind,
                user_id=user_id,
                extras=extras,
                metadata=metadata,
                tags=tags,
            )
        )

    def reopen(self, ref: ThreadRef) -> Thread:
        return self._call(self._store.reopen(ref))

    def wake(self, ref: ThreadRef) -> Thread:
        return self._call(self._store.wake(ref))

    def fork(self, ref: ThreadRef, *, at: int | None = None, **fields: Any) -> Thread:
        return self._call(self._store.fork(ref, at=at, **fields))

    def import_messages(self, messages: Sequence[Message], **fields: Any) -> Thread:
        return self._call(self._store.import_messages(messages, **fields))

    def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        return self._call(self._store.overview(threads))

    def trees(self, threads: Sequence[Thread]) -> list[Node]:
        return self._call(self._store.trees(threads))

    def whole_trees(self, threads: Sequence[Thread]) -> list[Node]:
        return self._call(self._store.whole_trees(threads))

    def projects(self, limit: int = 100) -> list[str]:
        return self._call(self._store.projects(limit))

    # Reading

    def context(self, ref: ThreadRef, *, lane: UUID | None = None) -> list[Message]:
        return self._call(self._store.context(ref, lane=lane))

    def history(self, ref: ThreadRef, *, limit: int = 20, offset: int = 0, before: int | None = None) -> HistoryPage:
        return self._call(self._store.history(ref, limit=limit, offset=offset, before=before))

    def messages(self, run_id: UUID | str) -> list[Message]:
        return self._call(self._store.messages(run_id))

    def log(self, run_id: UUID | str) -> list[Stitch]:
        return self._call(self._store.log(run_id))

    def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = LINES) -> Trace:
        return self._call(self._store.trace(run_id, depth=depth, limit=limit))

    def trace_outline(self, run_id: UUID | str, *, limit: int) -> Trace:
        return self._call(self._store.trace_outline(run_id, limit=limit))

    def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        return self._call(self._store.difference(a, b))

    def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return self._call(self._store.errors(limit=limit, since=since))

    def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return self._call(self._store.latest(limit=limit, since=since))

    def request(self, stitch_id: UUID | str) -> Json:
        return self._call(self._store.request(stitch_id))

    def average_tokens(self, since: datetime) -> list[ThreadUsage]:
        return self._call(self._store.average_tokens(since))

    def search(self, text: str, *, limit: int = 20) -> list[SearchHit]:
        return self._call(self._store.search(text, limit=limit))

    def size(self, ref: ThreadRef | None = None) -> Sizes:
        return self._call(self._store.size(ref))

    def sql(
        self, query: str, *, limit: int = 1000, seconds: float = 10.0, lens: str | None = None, force: bool = False
    ) -> QueryResult:
        return self._call(self._store.sql(query, limit=limit, seconds=seconds, lens=lens, force=force))

    @contextmanager
    def lens(self, name: str) -> Generator[Any]:
        opened = open_lens(self._store, name, blocking=True)
        connection = self._call(opened.__aenter__())
        try:
            yield connection
        finally:
            self._call(opened.__aexit__(None, None, None))

    def table(self, kind: type[R]) -> SyncTable[R]:
        return SyncTable(self._store.table(kind), self._portal)

    def ping(self) -> None:
        self._call(self._store.ping())

    def changes(self) -> Generator[ChangeHint, None, None]:
        return self._each(self._store.changes())

    # Workers and limits

    def held_by(self, workers: Collection[UUID]) -> list[Thread]:
        return self._call(self._store.held_by(workers))

    def limits(self) -> list[tuple[Limit, int]]:
        return self._call(self._store.limits())

    def set_limit(self, limit: Limit) -> None:
        self._call(self._store.set_limit(limit))

    # Applications

    def extend(self, extension: Extension) -> None:
        self._portal.call(self._store.extend(extension))

    def query(self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any) -> Any:
        return self._portal.call(self._store.query(extension, name, record_type=record_type, **values))

    def execute(
        self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any
    ) -> Any:
        return self._portal.call(self._store.execute(extension, name, record_type=record_type, **values))

    def lens_sql(self, name: str, dialect: str) -> list[str]:
        return self._portal.call(self._store.lens_sql(name, dialect))

    def watch(self, ref: UUID | None = None, *, after: int = 0, recent: int = 0) -> Generator[Stitch, None, None]:
        return self._each(self._store.watch(ref, after=after, recent=recent))

    # Keeping

    def archive(self, before: datetime) -> int:
        return self._call(self._store.archive(before))

    def redact(self, head: Thread, redact: Callable[[Stitch], Stitch]) -> None:
        self._call(self._store.redact(head, redact))

    def purge(self, *, before: datetime | None = None, user_id: str | None = None, force: bool = False) -> int:
        return self._call(self._store.purge(before=before, user_id=user_id, force=force))

    def copy_to(
        self, target: "SyncStore", *, tree: ThreadRef | None = None, progress: Progress | None = None
    ) -> CopyReport:
        return self._call(self._store.copy_to(target._as_target(), tree=tree, progress=progress))

    def verify(self) -> DoctorReport:
        return self._call(self._store.verify())

    def counts(self) -> DoctorReport:
        return self._call(self._store.counts())

    def rebuild_files(self) -> bool:
        return self._call(self._store.rebuild_files())

    def _each(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        async def following() -> T:
            return await anext(source, _END)

        async def finish() -> None:
            await source.aclose()

        try:
            while (item := self._call(following())) is not _END:
                yield item
        finally:
            # Never at the price of hanging: an iterator may be collected on any thread, at any time.
            if self._portal.alive and not self._portal.inside:
                with suppress(TimeoutError, RuntimeError):
                    self._portal.call(finish(), CLOSING)

    def _as_target(self) -> Store:
        """This store for a copy that runs on another store's loop."""
        return on_loop(self._store, self._portal.submit)
