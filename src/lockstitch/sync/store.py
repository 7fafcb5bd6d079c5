"""The store without await. What the methods do is told at their twins in `Store`."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from uuid import UUID

from lockstitch.backend import Answer, Fields, FullBackend, Hit, Receipt, Sizes, Usage
from lockstitch.records import (
    Clock,
    Entry,
    Feedback,
    File,
    Json,
    Letter,
    Memory,
    Message,
    Notice,
    Record,
    Run,
    Stitch,
    Thread,
    Worker,
)
from lockstitch.store import Appended, Copied, Draft, Page, Report, Store
from lockstitch.store import open_store as open_async_store
from lockstitch.store.copying import Progress
from lockstitch.store.difference import Difference
from lockstitch.store.overview import Overview
from lockstitch.store.starting import Task
from lockstitch.store.store import ThreadRef, look_through
from lockstitch.store.traces import LINES, Trace
from lockstitch.sync.elsewhere import Elsewhere
from lockstitch.sync.portal import CLOSING, Portal
from lockstitch.sync.shelves import SyncAgents, SyncShelf, SyncStatistics

T = TypeVar("T")
R = TypeVar("R", bound=Record)

INTERRUPTED = 0.5
"""Seconds that closing may take for whoever was interrupted and wants to leave."""

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


class SyncStore:
    """One durable record, for programs that do not await. Safe for many threads; open one per process."""

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._portal = Portal()
        try:
            # On the loop, because a backend may tie itself to the one it is made on.
            self._store = store = self._portal.call(_made(open_it))
        except BaseException as exc:
            self._portal.close(_patience(exc))
            raise
        self.agents = SyncAgents(store.agents, self._portal)
        self.memories: SyncShelf[Memory] = SyncShelf(store.memories, self._portal)
        self.files: SyncShelf[File] = SyncShelf(store.files, self._portal)
        self.feedback: SyncShelf[Feedback] = SyncShelf(store.feedback, self._portal)

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
    def awaited(self) -> Store:
        """The store as code on that loop sees it."""
        return self._store

    def in_project(self, project: str) -> "SyncStore":
        view = copy(self)
        view._store = self._store.in_project(project)
        return view

    @property
    def clock(self) -> Clock:
        return self._store.clock

    @property
    def project(self) -> str:
        return self._store.project

    @property
    def statistics(self) -> SyncStatistics:
        return SyncStatistics(self._store.statistics, self._portal)

    def migrate(self) -> int:
        return self._call(self._store.migrate())

    def close(self) -> None:
        self._close(CLOSING)

    # Threads

    def create(self, **fields: Any) -> Thread:
        return self._call(self._store.create(**fields))

    def new_thread(self, **fields: Any) -> Thread:
        return self._store.new_thread(**fields)

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

    def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        return self._call(self._store.overview(threads))

    def count(self, *, since: datetime | None = None, all_projects: bool = False, **equal: Any) -> int:
        return self._call(self._store.count(since=since, all_projects=all_projects, **equal))

    def children(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.children(ref))

    def ancestors(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.ancestors(ref))

    def tree(self, ref: ThreadRef) -> list[Thread]:
        return self._call(self._store.tree(ref))

    def edit(self, ref: ThreadRef, **fields: Any) -> None:
        self._call(self._store.edit(ref, **fields))

    def delete(self, ref: ThreadRef, *, force: bool = False) -> int:
        return self._call(self._store.delete(ref, force=force))

    # Writing

    def append(
        self,
        head: Thread,
        entries: Sequence[Entry] = (),
        *,
        fields: Fields | None = None,
        new_runs: Sequence[Run] = (),
        runs: Sequence[tuple[Run, Fields]] = (),
        taken: Sequence[Letter] = (),
        letters: Sequence[Letter] = (),
        threads: Sequence[Thread] = (),
        notices: Sequence[Notice] = (),
        uses: Sequence[str] = (),
    ) -> Appended:
        return self._call(
            self._store.append(
                head,
                entries,
                fields=fields,
                new_runs=new_runs,
                runs=runs,
                taken=taken,
                letters=letters,
                threads=threads,
                notices=notices,
                uses=uses,
            )
        )

    def commit(
        self,
        drafts: Sequence[Draft],
        *,
        letters: Sequence[Letter] = (),
        threads: Sequence[Thread] = (),
        notices: Sequence[Notice] = (),
    ) -> list[Appended]:
        return self._call(self._store.commit(drafts, letters=letters, threads=threads, notices=notices))

    def new_run(self, head: Thread, **fields: Any) -> Run:
        return self._store.new_run(head, **fields)

    def deliver(self, ref: ThreadRef, entry: Entry, *, kind: str, sender: str, call_id: str = "") -> Receipt:
        return self._call(self._store.deliver(ref, entry, kind=kind, sender=sender, call_id=call_id))

    def letter(self, head: Thread, entry: Entry, kind: str, sender: str, call_id: str = "") -> Letter:
        return self._store.letter(head, entry, kind, sender, call_id)

    def inbox(self, head: Thread) -> tuple[Thread, list[Letter]]:
        return self._call(self._store.inbox(head))

    def keep_text(self, ref: ThreadRef, text: str, media_type: str = "text/plain") -> str:
        return self._call(self._store.keep_text(ref, text, media_type))

    def fork(self, ref: ThreadRef, *, at: int | None = None, **fields: Any) -> Thread:
        return self._call(self._store.fork(ref, at=at, **fields))

    def adopt(self, messages: Sequence[Message], **fields: Any) -> Thread:
        return self._call(self._store.adopt(messages, **fields))

    # Leases

    def register(self, *, lease_seconds: float | None = None, doing: Json | None = None) -> Worker:
        return self._call(self._store.register(lease_seconds=lease_seconds, doing=doing))

    def claim(self, ref: ThreadRef, *, take_over: bool = False, unlimited: bool = False) -> Thread:
        return self._call(self._store.claim(ref, take_over=take_over, unlimited=unlimited))

    def claim_next(
        self, *, agents: Sequence[str] | None = None, limit: int = 1, all_projects: bool = True
    ) -> list[Thread]:
        return self._call(self._store.claim_next(agents=agents, limit=limit, all_projects=all_projects))

    def reap(self) -> list[UUID]:
        return self._call(self._store.reap())

    # Reading

    def context(self, ref: ThreadRef, *, lane: UUID | None = None) -> list[Message]:
        return self._call(self._store.context(ref, lane=lane))

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

    def history(self, ref: ThreadRef, *, limit: int = 20, offset: int = 0, before: int | None = None) -> Page:
        return self._call(self._store.history(ref, limit=limit, offset=offset, before=before))

    def messages(self, run_id: UUID | str) -> list[Message]:
        return self._call(self._store.messages(run_id))

    def log(self, run_id: UUID | str) -> list[Stitch]:
        return self._call(self._store.log(run_id))

    def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = LINES) -> Trace:
        return self._call(self._store.trace(run_id, depth=depth, limit=limit))

    def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        return self._call(self._store.difference(a, b))

    def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return self._call(self._store.errors(limit=limit, since=since))

    def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return self._call(self._store.latest(limit=limit, since=since))

    def request(self, stitch_id: UUID | str) -> Json:
        return self._call(self._store.request(stitch_id))

    def average_tokens(self, since: datetime) -> list[Usage]:
        return self._call(self._store.average_tokens(since))

    def search(self, text: str, *, limit: int = 20) -> list[Hit]:
        return self._call(self._store.search(text, limit=limit))

    def size(self, ref: ThreadRef | None = None) -> Sizes:
        return self._call(self._store.size(ref))

    def sql(self, query: str, *, limit: int = 1000, seconds: float = 10.0, lens: str | None = None) -> Answer:
        return self._call(self._store.sql(query, limit=limit, seconds=seconds, lens=lens))

    @contextmanager
    def lens(self, name: str) -> Generator[Any]:
        opened = look_through(self._store, name, blocking=True)
        connection = self._call(opened.__aenter__())
        try:
            yield connection
        finally:
            self._call(opened.__aexit__(None, None, None))

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
    ) -> Copied:
        return self._call(self._store.copy_to(target._as_target(), tree=tree, progress=progress))

    def verify(self) -> Report:
        return self._call(self._store.verify())

    def glance(self) -> Report:
        return self._call(self._store.glance())

    def rebuild(self) -> bool:
        return self._call(self._store.rebuild())

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

    def _as_target(self) -> Store:
        """This store for a copy that runs on another store's loop."""
        backend = cast("FullBackend", Elsewhere(self._store.backend, self._portal))
        return Store(backend, clock=self._store.clock, project=self._store.project, migrate=False)


def _patience(exc: BaseException | None) -> float:
    return INTERRUPTED if isinstance(exc, KeyboardInterrupt) else CLOSING


async def _made(open_it: Callable[[], Store]) -> Store:
    return open_it()
