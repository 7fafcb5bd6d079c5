"""The store: what people and the runtime call. Rules live in the modules beside it; here they meet."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from lockstitch.backend import ChangeHint, Find, FullBackend, QueryResult, SearchHit, Sizes, ThreadUsage, Where
from lockstitch.errors import Refused
from lockstitch.extension import Extension
from lockstitch.lenses import catalog
from lockstitch.model import ERROR_TYPES, Clock, Json, Limit, Message, Record, Run, Stitch, Thread, Worker, codec
from lockstitch.model.delivery import message_entry
from lockstitch.store import conversations, tables
from lockstitch.store.core import StoreCore
from lockstitch.store.ingest_queue import IngestQueue
from lockstitch.store.maintenance import copy as copying
from lockstitch.store.maintenance import doctor, retention
from lockstitch.store.queries import overview
from lockstitch.store.queries.log import HistoryPage
from lockstitch.store.queries.overview import Node, Overview
from lockstitch.store.reports.diff import Difference, difference
from lockstitch.store.reports.statistics import Statistics
from lockstitch.store.reports.traces import LINES, Trace, TraceReader
from lockstitch.store.tables import Audits, RecordTable, Tokens
from lockstitch.store.threads import ThreadRef

R = TypeVar("R", bound=Record)

_HELD: Final = Where("worker_id", "is not null")


class Store(StoreCore):
    """One durable record. Safe for many tasks of one event loop; open one per process."""

    def __init__(
        self,
        backend: FullBackend,
        *,
        clock: Clock,
        project: str,
        migrate: bool = True,
        create: bool = True,
        again: Callable[[], FullBackend] | None = None,
        scratch: "Callable[[], Store] | None" = None,
    ) -> None:
        super().__init__(backend, clock=clock, project=project, migrate=migrate, create=create, again=again)
        self._extended: set[Extension] = set()
        """Extensions that this store has, so that `extend` is cheap. Views of other projects share it."""
        self._scratch = scratch
        """Makes a store in memory, for questions that need SQL where the backend speaks none."""

    def in_project(self, project: str) -> "Store":
        """The same store, seen from another project: the same connections, the same lease."""
        if project == self.project:
            return self
        view = copy(self)
        view.project = project
        return view

    @property
    def identity(self) -> object:
        """An object that all views of this store share: a key for caches, also a weak one."""
        return self._backend

    @property
    def backend_name(self) -> str:
        """Where the record is: files, sqlite or postgresql."""
        package = type(self._backend).__module__.split(".")[-2]
        return "postgresql" if package == "postgres" else package

    @property
    def has_sql(self) -> bool:
        """Whether the backend itself answers SQL. If not, the store copies the record to SQLite for each question."""
        return self._backend.lens(catalog.NAMES[0]) is not None

    @property
    def statistics(self) -> Statistics:
        """Figures over the runs of this project, or of all."""
        return Statistics(self._backend, self.project)

    @property
    def tokens(self) -> Tokens:
        """Who may call a server for this project."""
        return Tokens(self._backend, self.clock, self.project)

    @property
    def ingest_queue(self) -> IngestQueue:
        """The bodies of traces that wait to be read, and those in quarantine, of the project."""
        return IngestQueue(self._backend, self.clock, self.project)

    @property
    def ingest_queue_of_all(self) -> IngestQueue:
        """The same of all projects."""
        return IngestQueue(self._backend, self.clock)

    @property
    def audits(self) -> Audits:
        """Who did what to this project."""
        return Audits(self._backend, self.clock, self.project)

    # Reading

    async def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        """Each of these threads with the sums over its own runs, in the same order."""
        return await overview.overviews(self._backend, threads)

    async def trees(self, threads: Sequence[Thread]) -> list[Node]:
        """These threads with all their descendants."""
        return await overview.trees(self._backend, threads)

    async def whole_trees(self, threads: Sequence[Thread]) -> list[Node]:
        """The trees that these threads are part of, each once, from the root."""
        return await overview.whole_trees(self._backend, threads)

    async def projects(self, limit: int = 100) -> list[str]:
        """The names of the projects that have threads, in order. Each costs one step in the index."""
        names: list[str] = []
        while len(names) < limit:
            where = (Where("project", ">", names[-1]),) if names else ()
            threads = await self._backend.find(Find(Thread, where, order=("project",), limit=1))
            if not threads:
                break
            names.append(threads[0].project)
        return names

    async def context(self, ref: ThreadRef, *, lane: UUID | None = None) -> list[Message]:
        """The message list the model would get now."""
        return await self._reading.context(await self.thread(ref), lane)

    async def history(
        self, ref: ThreadRef, *, limit: int = 20, offset: int = 0, before: int | None = None
    ) -> HistoryPage:
        """Finished turns, newest first; by offset, or by cursor: `before` a sequence number."""
        return await self._reading.turns(await self.thread(ref), limit, offset, before)

    async def messages(self, run_id: UUID | str) -> list[Message]:
        """All messages of a run as they were said, whatever was compacted since."""
        run = await self.run(run_id)
        return await self._reading.messages(await self.thread(run.thread_id), run)

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        """Everything a run did, in order."""
        run = await self.run(run_id)
        return await self._reading.log(await self.thread(run.thread_id), run)

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = LINES) -> Trace:
        """A run as a tree of model calls, tools, nested runs and child threads, or of the spans of a mirror.

        Of a large one the first lines, down to a depth; what they say is read for those alone.
        """
        return await TraceReader(self, self._archives, depth, limit).trace(await self.run(run_id))

    async def trace_outline(self, run_id: UUID | str, *, limit: int) -> Trace:
        """The same tree without texts, for pictures of large runs: times, counts, costs and names."""
        return await TraceReader(self, self._archives, None, limit).shape(await self.run(run_id))

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        """What differs between two runs, mirrors or not: as wholes, and step by step."""
        runs = [await self.run(a), await self.run(b)]
        logs = [await self._reading.calls(await self.thread(run.thread_id), run) for run in runs]
        return difference(runs[0], logs[0], runs[1], logs[1])

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """The latest errors across all threads of the project, newest first."""
        return await self._reading.latest(self.project, limit, since, ERROR_TYPES)

    async def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """The latest stitches across all threads of the project, newest first."""
        return await self._reading.latest(self.project, limit, since)

    async def request(self, stitch_id: UUID | str) -> Json:
        """The exact request of a model call."""
        stitch = await self.stitch(stitch_id)
        return await self._reading.request(stitch, await self.thread(stitch.thread_id))

    async def average_tokens(self, since: datetime) -> list[ThreadUsage]:
        """Per thread, the average of input and output tokens of its turns started since then."""
        return await self._backend.average_tokens(self.project, since)

    async def search(self, text: str, *, limit: int = 20) -> list[SearchHit]:
        """Where every word of `text` stands: in titles, in what was asked and what was answered. Best first."""
        return await self._backend.search(self.project, codec.check_text(text, "The text"), limit)

    async def size(self, ref: ThreadRef | None = None) -> Sizes:
        """Bytes kept, for a thread or for the whole store."""
        return await self._backend.size(None if ref is None else (await self.thread(ref)).id)

    async def sql(
        self, query: str, *, limit: int = 1000, seconds: float = 10.0, lens: str | None = None, force: bool = False
    ) -> QueryResult:
        """Run one read-only SQL statement over the core tables, or over those of a lens. All projects are seen.

        The statement may come from a user who is not trusted with the database: it is stopped after `seconds`, its
        memory and its answer are limited, and it cannot reach anything but the record. On PostgreSQL this needs a login
        that can only read; if there is none and none can be created, it is Refused unless `force` is set. A forced
        statement has all rights of the store's own user. A store of files is read through a copy in SQLite.
        """
        return await ask(self, query, limit=limit, seconds=seconds, lens=lens, force=force)

    @asynccontextmanager
    async def lens(self, name: str) -> AsyncGenerator[Any]:
        """A read-only connection of the database's own driver on which the tables of a lens are there.

        It is a sqlite3.Connection, or a psycopg.AsyncConnection whose search_path is the lens; of a store of files it
        leads to a copy as it was when this was called. All projects are seen.
        """
        async with open_lens(self, name, blocking=False) as connection:
            yield connection

    def table(self, kind: type[R]) -> RecordTable[R]:
        """The records of one kind: side records, deliveries, workers, or records of an application.

        Threads, runs and stitches change by commits alone. They have calls of their own: `find_threads`, `find_runs`,
        `find_stitches`.
        """
        if issubclass(kind, Thread | Run | Stitch):
            raise TypeError(f"{kind.__name__} has no table; see find_threads, find_runs and find_stitches.")
        return RecordTable(self._backend, kind)

    async def ping(self) -> None:
        """Ask the backend for one row. Raises StoreError if it does not answer."""
        await self._backend.find(Find(Worker, limit=1))

    def changes(self) -> AsyncGenerator[ChangeHint, None]:
        """Hints that threads of any project have changed, also in other processes.

        The first is `WATCHING`: from then on no change is missed. `WORK_READY` says that a thread can be claimed.
        """
        return self._backend.watch()

    # Workers and limits

    async def held_by(self, workers: Collection[UUID]) -> list[Thread]:
        """The threads of all projects that these workers hold."""
        if not workers:
            return []
        return await self._backend.find(Find(Thread, (Where("worker_id", "in", list(workers)),)))

    async def limits(self) -> list[tuple[Limit, int]]:
        """The limits by name, each with the number of threads that are held of its agents."""
        return [
            (limit, await self._backend.count(Find(Thread, (_HELD, Where("agent", "in", limit.agents)))))
            for limit in await self._backend.find(Find(Limit, order=("name",)))
        ]

    async def set_limit(self, limit: Limit) -> None:
        """Store a limit. It covers its own agents and those that the stored limit of this name covers."""
        stored = await self._backend.get(Limit, (limit.name,))
        agents = {*limit.agents, *(stored.agents if stored is not None else ())}
        limit = limit.changed(agents=sorted(agents))
        if limit != stored:
            await self._backend.put([limit])

    # Applications

    async def extend(self, extension: Extension) -> None:
        """Make the tables of an application, or bring them to its version. Refused for a store of files."""
        if extension not in self._extended:
            await tables.extend(self._backend, extension)
            self._extended.add(extension)

    async def query(
        self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any
    ) -> Any:
        """What a named query of an application gives that only reads: tuples, or records of the kind `into`."""
        return await tables.ask(self._backend, extension, name, values, record_type)

    async def execute(
        self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any
    ) -> Any:
        """The same for one that writes, in a transaction of its own."""
        return await tables.ask(self._backend, extension, name, values, record_type, writes=True)

    async def lens_sql(self, name: str, dialect: str) -> list[str]:
        """The SQL that applications have added to a lens of this store; `tables` is what they are exported to."""
        added = [
            installed_extension.lens(catalog.check(name), dialect)
            for installed_extension in await tables.installed_extensions(self._backend)
        ]
        return [part for part in added if part]

    def watch(self, ref: UUID | None = None, *, after: int = 0, recent: int = 0) -> AsyncGenerator[Stitch, None]:
        """Stitches as they come, from any process: of one thread, or of all threads of the project.

        Of one thread everything after a position; of all, the most recent ones and then whatever is new, with
        nothing missed in between.
        """
        if ref is not None:
            return self._watching.thread(ref, after)
        return self._watching.project(self.project, recent)

    # Starting and keeping

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        key: str | None = None,
        tasks: Sequence[conversations.Task] = (),
        priority: int = 0,
        user_id: str | None = None,
        at: datetime | None = None,
        connection: object | None = None,
        **fields: Any,
    ) -> Thread:
        """A thread with a goal for a worker, the most urgent first; with `at` not before then. Nothing runs yet.

        `connection` is an open psycopg Connection or AsyncConnection to this store's database. The thread is then
        written over it, inside your transaction: it exists exactly if you commit, together with your own rows.
        KeyTaken leaves your transaction as it was. Refused on other backends, and for a connection in autocommit mode
        outside of `connection.transaction()`: it has no transaction that could be undone.
        """
        values = {"kind": "goal", **fields, "agent": agent, "goal": goal, "tasks": conversations.numbered(tasks)}
        values |= {"key": key, "priority": priority, "user_id": user_id}
        return await conversations.start(self, values, at, connection)

    async def enqueue(
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
    ) -> conversations.EnqueuedMessage:
        """Leave a message for a worker, in one commit. No code of the agent runs in this process.

        `thread` is a thread, its id or its key. An unknown thread is created with this message, for `agent` and with
        this `kind` and `user_id`; None creates a new thread. If the thread waits for its next message, it becomes
        `pending` now, and belongs to `agent` from now on. If a worker holds it or a run is open, the message waits
        in its inbox, and the agent of the thread answers it; with `agent` None this agent answers in any case.
        `extras`, `metadata` and `tags` become those of the run.

        Return the thread and the id that the run of this message will have. `ThreadEnded` if the thread has ended,
        `ThreadWaiting` if its first run waits for a time, `Refused` if it belongs to another user or mirrors another
        system. A first message with large media takes two commits: its blobs need the thread.
        """
        entry = message_entry(message, extras=extras or {}, metadata=metadata or {}, tags=tags)
        return await conversations.enqueue(self, agent, entry, thread, kind=kind, user_id=user_id)

    async def reopen(self, ref: ThreadRef) -> Thread:
        """Make a thread that failed or was cancelled ready again, in one commit.

        A worker tries its last run again: a new run on the same context. If it ended before its first run, its goal
        starts. A `Thread` is compared as it was read. Return the thread. `ThreadEnded` if it is completed, `Conflict`
        if it has changed since it was read.
        """
        return await conversations.reopen(self, ref if isinstance(ref, Thread) else await self.thread(ref))

    async def wake(self, ref: ThreadRef) -> Thread:
        """Make a thread ready now that waits for a time, for code or for its next attempt, in one commit.

        A worker claims the thread and continues its open run as far as possible. If the thread waits for its next
        message, nothing changes. Return the thread. `ThreadEnded` if it has ended, `ThreadBusy` if a worker holds it.
        """
        return await conversations.wake(self, await self.thread(ref))

    async def import_messages(self, messages: Sequence[Message], **fields: Any) -> Thread:
        """An existing conversation as a thread: a turn for each thing the user said."""
        return await conversations.adopt(self, messages, fields)

    async def fork(self, ref: ThreadRef, *, at: int | None = None, **fields: Any) -> Thread:
        """A new thread that goes on from a position of this one; calls open there are answered with an error."""
        head = await self.thread(ref)
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} is an imported trace and cannot be forked.")
        return await conversations.fork(self, head, at, fields)

    async def archive(self, before: datetime) -> int:
        """Compress the turns that ended before then and that no context needs; how many turns."""
        return await retention.archive(self, self._archives, before)

    async def redact(self, head: Thread, redact: Callable[[Stitch], Stitch]) -> None:
        """Replace the log of a thread that nobody holds by redacted stitches, in an archive. Conflict if it changed."""
        await self._archives.replace(head, [redact(stitch) for stitch in await self.stitches(head)])

    async def purge(self, *, before: datetime | None = None, user_id: str | None = None, force: bool = False) -> int:
        """Delete whole trees: ended before then, expired, or of one user with all that is theirs; how many threads."""
        return await retention.purge(self, before, user_id, force)

    async def copy_to(
        self, target: "Store", *, tree: ThreadRef | None = None, progress: copying.Progress | None = None
    ) -> copying.CopyReport:
        """Copy everything, or one tree, into another store. What is there already is not copied again."""
        root = None if tree is None else await self.thread(tree)
        return await copying.copy(self, target, root, progress)

    async def verify(self) -> doctor.DoctorReport:
        """Read the whole store and say what is wrong with it."""
        return await doctor.verify(self)

    async def counts(self) -> doctor.DoctorReport:
        """Count what is there, without reading it."""
        return await doctor.glance(self)

    async def rebuild_files(self) -> bool:
        """Make derived files anew from the log, where a backend keeps any; whether it does."""
        return await doctor.rebuild(self)


def on_loop(store: Store, submit: Callable[[Coroutine[Any, Any, Any]], Future[Any]]) -> Store:
    """The same store for callers on another event loop. `submit` starts a coroutine on the loop of the store."""
    backend = cast("FullBackend", _OtherLoopBackend(store._backend, submit))
    return Store(backend, clock=store.clock, project=store.project, migrate=False)


class _OtherLoopBackend:
    """A backend for callers on another loop: each call is submitted to the backend's own loop."""

    def __init__(self, backend: FullBackend, submit: Callable[[Coroutine[Any, Any, Any]], Future[Any]]) -> None:
        self._backend = backend
        self._submit = submit

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*values: Any, **named: Any) -> Any:
            return await asyncio.wrap_future(self._submit(method(*values, **named)))

        return call


async def ask(
    store: Store,
    query: str,
    *,
    limit: int,
    seconds: float,
    lens: str | None = None,
    force: bool = False,
    own: bool = False,
) -> QueryResult:
    """`store.sql`, and with `own` the same for a statement that Lockstitch has written itself."""
    if lens is not None:
        catalog.check(lens)
    answer = await store._backend.query(query, limit=limit, seconds=seconds, lens=lens, force=force, own=own)
    if answer is not None:
        return answer
    async with _copied(store, store._scratch) as copy:
        return await ask(copy, query, limit=limit, seconds=seconds, lens=lens, own=own)


@asynccontextmanager
async def open_lens(store: Store, name: str, *, blocking: bool) -> AsyncGenerator[Any]:
    """`store.lens`, for those who await (`blocking=False`) and for those who do not."""
    opened = store._backend.lens(catalog.check(name), blocking=blocking)
    if opened is not None:
        async with opened as connection:
            yield connection
        return
    async with (
        _copied(store, store._scratch) as copy,
        open_lens(copy, name, blocking=blocking) as connection,
    ):
        yield connection


@asynccontextmanager
async def _copied(store: Store, scratch: Callable[[], Store] | None) -> AsyncGenerator[Store]:
    """Everything of a store whose backend speaks no SQL, in one that does."""
    if scratch is None:
        raise Refused("This store speaks no SQL.")
    async with scratch() as copy:
        await store.copy_to(copy)
        yield copy
