"""The store without await. What the methods do is told at their twins in `Store`."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from lockstitch.backend import FullBackend, QueryResult, SearchHit, Sizes, ThreadUsage
from lockstitch.extension import Extension
from lockstitch.model import Clock, Json, Message, Record, Stitch, Thread
from lockstitch.store import CopyReport, DoctorReport, HistoryPage, Store
from lockstitch.store import open_store as open_async_store
from lockstitch.store.conversations import Task
from lockstitch.store.maintenance.copy import Progress
from lockstitch.store.queries.overview import Overview
from lockstitch.store.reports.diff import Difference
from lockstitch.store.reports.traces import LINES, Trace
from lockstitch.store.store import ThreadRef, open_lens
from lockstitch.sync.core import SyncStoreCore
from lockstitch.sync.portal import CLOSING, Elsewhere
from lockstitch.sync.tables import SyncStatistics

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

    def fork(self, ref: ThreadRef, *, at: int | None = None, **fields: Any) -> Thread:
        return self._call(self._store.fork(ref, at=at, **fields))

    def import_messages(self, messages: Sequence[Message], **fields: Any) -> Thread:
        return self._call(self._store.import_messages(messages, **fields))

    def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        return self._call(self._store.overview(threads))

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
        source = self._store.watch(ref, after=after, recent=recent)

        async def following() -> Stitch:
            return await anext(source, _END)

        async def finish() -> None:
            await source.aclose()

        try:
            while (stitch := self._call(following())) is not _END:
                yield stitch
        finally:
            # Never at the price of hanging: an iterator may be collected on any thread, at any time.
            if self._portal.alive and not self._portal.inside:
                with suppress(TimeoutError, RuntimeError):
                    self._portal.call(finish(), CLOSING)

    # Keeping

    def archive(self, before: datetime) -> int:
        return self._call(self._store.archive(before))

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

    def _as_target(self) -> Store:
        """This store for a copy that runs on another store's loop."""
        backend = cast("FullBackend", Elsewhere(self._store.backend, self._portal))
        return Store(backend, clock=self._store.clock, project=self._store.project, migrate=False)
