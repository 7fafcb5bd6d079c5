"""`Store`: the public API of a record. It delegates to the other modules of this package."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from lockstitch.backend import ChangeHint, Find, FullBackend, QueryResult, SearchHit, Sizes, ThreadUsage, Where
from lockstitch.errors import Refused
from lockstitch.extension import Extension, register
from lockstitch.lenses import catalog
from lockstitch.model import (
    Clock,
    Json,
    Limit,
    Message,
    Record,
    Run,
    Stitch,
    Thread,
    Worker,
    codec,
    new_id,
)
from lockstitch.model.delivery import message_entry
from lockstitch.store import conversations, replays, tables
from lockstitch.store.core import StoreCore
from lockstitch.store.ingest_queue import IngestQueue
from lockstitch.store.maintenance import copy as copying
from lockstitch.store.maintenance import doctor, retention
from lockstitch.store.queries import overview
from lockstitch.store.queries.log import HistoryPage
from lockstitch.store.queries.overview import Node, Overview
from lockstitch.store.reports.diff import Difference, compare_runs
from lockstitch.store.reports.statistics import Statistics
from lockstitch.store.reports.traces import LINES, Trace, TraceReader
from lockstitch.store.schedules import Schedules
from lockstitch.store.sql_copy import SqlCopy
from lockstitch.store.tables import Audits, RecordTable, Tokens
from lockstitch.store.threads import ThreadRef, without_none
from lockstitch.store.writes.archive import LakeArchiveReport

R = TypeVar("R", bound=Record)

_HELD: Final = Where("worker_id", "is not null")


class Store(StoreCore):
    """One durable record of threads, runs and stitches. Open it with `open_store` and `async with`, once per process.

    Safe to use from many tasks of one event loop, and from many processes at the same time. Methods that take a
    `ThreadRef` accept a thread, its id, or its key in the store's project. They raise `NotFound` if this project has no
    such thread. Every method raises `StoreUnreachable` if the backend does not answer.
    """

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
        self._sql_copy = None if scratch is None else SqlCopy(scratch)
        """Copy of the record in SQLite. SQL runs there if the backend does not support SQL."""

    async def _delete_copies(self) -> None:
        if self._sql_copy is not None:
            await self._sql_copy.close()

    def in_project(self, project: str) -> "Store":
        """Return a view of this store for another project. It shares the connections and the lease. Do not close it.

        Args:
            project: Name of the project.
        """
        if project == self.project:
            return self
        view = copy(self)
        view.project = project
        return view

    def in_namespace(self, namespace: str) -> "Store":
        """Return a view of this store with its own keys: key `k` is stored as `namespace:k`. Do not close it.

        Each text that refers to a thread is a key in the view, also one that looks like an id. Applications that share
        a project, such as two agent frameworks, can thus use the same keys for different threads.

        Args:
            namespace: Name of the namespace. It must be neither empty nor contain `:`.

        Raises:
            Refused: If the name is not valid.
        """
        if not namespace or ":" in namespace:
            raise Refused(f"{namespace!r} is not a name of a namespace. It must be neither empty nor contain `:`.")
        view = copy(self)
        view.namespace = codec.check_text(namespace, "The namespace")
        return view

    @property
    def identity(self) -> object:
        """Object that all views of this store share. Use it as a key of caches, also of weak ones."""
        return self._backend

    @property
    def backend_name(self) -> str:
        """Name of the backend: `files`, `sqlite` or `postgresql`."""
        package = type(self._backend).__module__.split(".")[-2]
        return "postgresql" if package == "postgres" else package

    @property
    def has_sql(self) -> bool:
        """True if the backend executes SQL. If False, statements read a copy of the record in SQLite."""
        return self._backend.lens(catalog.NAMES[0]) is not None

    @property
    def statistics(self) -> Statistics:
        """Usage, latencies and lists of runs, for this project or for all."""
        return Statistics(self._backend, self.project)

    @property
    def schedules(self) -> Schedules:
        """Schedules of this project, which start threads at the ticks of a cron expression or of an interval."""
        return Schedules(self)

    @property
    def tokens(self) -> Tokens:
        """API tokens of this project."""
        return Tokens(self._backend, self.clock, self.project)

    @property
    def ingest_queue(self) -> IngestQueue:
        """Received bodies of traces of this project: those that wait to be read, and those in quarantine."""
        return IngestQueue(self._backend, self.clock, self.project)

    @property
    def ingest_queue_of_all(self) -> IngestQueue:
        """Received bodies of traces of all projects."""
        return IngestQueue(self._backend, self.clock)

    @property
    def audits(self) -> Audits:
        """Audit log of this project."""
        return Audits(self._backend, self.clock, self.project)

    # Reading

    async def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        """Return each of these threads with the sums over its own runs, in the same order.

        Args:
            threads: The threads.
        """
        return await overview.overviews(self._backend, threads)

    async def trees(self, threads: Sequence[Thread]) -> list[Node]:
        """Return these threads with all their descendants, one tree per thread.

        Args:
            threads: The threads.
        """
        return await overview.trees(self._backend, threads)

    async def trees_of(self, threads: Sequence[Thread]) -> list[Node]:
        """Return the trees that contain these threads, from the root, each tree once.

        Args:
            threads: The threads.
        """
        return await overview.trees_of(self._backend, threads)

    async def projects(self, limit: int = 100) -> list[str]:
        """Return the names of the projects that have threads, sorted. Each name costs one index lookup.

        Args:
            limit: Maximum number of names.
        """
        names: list[str] = []
        while len(names) < limit:
            where = (Where("project", ">", names[-1]),) if names else ()
            threads = await self._backend.find(Find(Thread, where, order=("project",), limit=1))
            if not threads:
                break
            names.append(threads[0].project)
        return names

    async def context(self, ref: ThreadRef, *, lane: UUID | None = None) -> list[Message]:
        """Return the messages that the model would get in the next request of this thread.

        Args:
            ref: Thread, its id or its key in the project.
            lane: Id of a team member's run, for the context of that member. None: the context of the thread.

        Raises:
            NotFound: If this project has no such thread.
        """
        return await self._reading.context(await self.thread(ref), lane)

    async def history(
        self, ref: ThreadRef, *, limit: int = 20, offset: int = 0, before: int | None = None
    ) -> HistoryPage:
        """Return one page of finished turns, newest first. Archived turns are listed. Nested runs are not.

        The page of a fork includes the turns before the fork. They are stored in the threads that contain them, which
        `Turn.inherited_from` names. If such a thread was deleted, its turns come from the context of the fork.

        Args:
            ref: Thread, its id or its key in the project.
            limit: Maximum number of turns.
            offset: Number of newer turns to skip.
            before: Number of the oldest turn of the previous page (`Turn.run.turn`), instead of `offset`.

        Raises:
            NotFound: If this project has no such thread.
        """
        return await self._reading.turns(await self.thread(ref), limit, offset, before)

    async def messages(self, run_id: UUID | str) -> list[Message]:
        """Return all messages of a run in their original form, also those that a compaction has replaced in the
        context.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If this project has no such run.
        """
        run = await self.run(run_id)
        return await self._reading.messages(await self.thread(run.thread_id), run)

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        """Return all stitches of a run in the order of their positions.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If this project has no such run.
        """
        run = await self.run(run_id)
        return await self._reading.log(await self.thread(run.thread_id), run)

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = LINES) -> Trace:
        """Return a run as a tree of model calls, tool calls, nested runs and child threads.

        An imported run is the tree of its spans. The store reads only the texts of the nodes that it returns.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.
            depth: Maximum number of levels. None: all.
            limit: Maximum number of nodes.

        Raises:
            NotFound: If this project has no such run.
        """
        return await TraceReader(self, self._archives, depth, limit).trace(await self.run(run_id))

    async def trace_outline(self, run_id: UUID | str, *, limit: int) -> Trace:
        """Return the tree of `trace` without texts: times, counts, costs and names. Cheap for large runs.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.
            limit: Maximum number of nodes.

        Raises:
            NotFound: If this project has no such run.
        """
        return await TraceReader(self, self._archives, None, limit).shape(await self.run(run_id))

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        """Return the differences between two runs: of the runs as a whole, and step by step. Both may be imported.

        Args:
            a: Id of the first run.
            b: Id of the second run.

        Raises:
            NotFound: If one of the runs does not exist.
        """
        return await compare_runs(self, await self.run(a), await self.run(b))

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """Return the latest failures of all threads of the project, newest first. Each failure is returned once.

        A failed run is not returned if the error stitch that ended it is. In imported traces, a failed span is not
        returned if it only passes on the failure of a span below it.

        Args:
            limit: Maximum number of stitches.
            since: Only stitches since this time.
        """
        return await self._reading.errors(self.project, limit, since)

    async def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """Return the latest stitches of all threads of the project, newest first.

        Args:
            limit: Maximum number of stitches.
            since: Only stitches since this time.
        """
        return await self._reading.latest(self.project, limit, since)

    async def request(self, stitch_id: UUID | str) -> Json:
        """Return the exact request of a model call.

        Args:
            stitch_id: Id of the `llm_call` stitch, or of the `api_error` of a failed call.

        Raises:
            NotFound: If this project has no such stitch, or if it has no request.
            StoreDamaged: If the request cannot be rebuilt to the bytes that were sent.
        """
        stitch = await self.stitch(stitch_id)
        return await self._reading.request(stitch, await self.thread(stitch.thread_id))

    async def average_tokens(self, since: datetime) -> list[ThreadUsage]:
        """Return the average input and output tokens per turn of each thread of the project.

        Args:
            since: Only turns since this time.
        """
        return await self._backend.average_tokens(self.project, since)

    async def search(self, text: str, *, limit: int = 20, complete: bool = True) -> list[SearchHit]:
        """Return the titles and stitches of this project that contain every word of a text, best match first.

        Stitches have inputs, answers, the arguments and results of tool calls, and errors. Of one tool call, and of one
        result, the first 8,192 characters are searched.

        If a database has more than 3,000 matches, the newest 3,000 of them are ranked. On PostgreSQL, also only the
        newest 300 titles that match are ranked.

        Args:
            text: Words to search for.
            limit: Maximum number of hits.
            complete: Index all stitches before the search. This takes long after an upgrade or a large import. False:
                leave out the stitches that `unindexed` counts.

        Raises:
            Refused: If the text is not valid.
        """
        return await self._backend.search(self.project, codec.check_text(text, "The text"), limit, complete=complete)

    async def unindexed(self) -> int:
        """Return the number of stitches that a search with `complete=False` may leave out."""
        return await self._backend.unindexed()

    async def prepare_reports(self) -> bool:
        """Index the next stitches for searches, and store the totals of the next past days for reports.

        Servers and workers call it in the background. A call takes a fraction of a second.

        Returns:
            True if more are left.
        """
        return await self._backend.prepare_reports()

    async def size(self, ref: ThreadRef | None = None) -> Sizes:
        """Return the stored bytes of a thread or of the whole store, by part.

        Args:
            ref: Thread, its id or its key in the project. None: the whole store.

        Raises:
            NotFound: If this project has no such thread.
        """
        return await self._backend.size(None if ref is None else (await self.thread(ref)).id)

    async def sql(
        self, query: str, *, limit: int = 1000, seconds: float = 10.0, lens: str | None = None, force: bool = False
    ) -> QueryResult:
        """Run one read-only SQL statement over the core tables, or over the tables of a lens. It reads all projects.

        The statement may come from a user who is not trusted with the database: its time, its memory and its result are
        limited, and it can only read the record. On PostgreSQL this needs a login that can only read. On the file
        backend the statement reads a copy in SQLite, which stays in memory until the record changes, the store is
        closed, or no statement has read it for a minute.

        Args:
            query: The statement.
            limit: Maximum number of rows.
            seconds: Time after which the statement is stopped.
            lens: Name of a lens. None: the core tables.
            force: Run the statement also if PostgreSQL has no login that can only read and none can be created. It
                then has all rights of the store's own user.

        Returns:
            The names of the columns, the rows, and True in `truncated` if rows were left out.

        Raises:
            Refused: If the statement is not valid, writes, exceeds its limits, or has no restricted login and
                `force` is False.
        """
        return await run_sql(self, query, limit=limit, seconds=seconds, lens=lens, force=force)

    @asynccontextmanager
    async def lens(self, name: str) -> AsyncGenerator[Any]:
        """Open a read-only connection to the tables of a lens. It reads all projects.

        On the file backend it reads a copy in SQLite, in the state of this call.

        Args:
            name: Name of the lens.

        Returns:
            A context manager. Its connection is a `sqlite3.Connection`, or a `psycopg` connection with the lens as
                its search_path.

        Raises:
            Refused: If there is no such lens.
        """
        async with open_lens(self, name, blocking=False) as connection:
            yield connection

    def table(self, kind: type[R]) -> RecordTable[R]:
        """Return the table of one kind of record: side records, deliveries, workers, or records of an application.

        Args:
            kind: Class of the records.

        Raises:
            TypeError: For threads, runs and stitches. Only commits change them. Read them with `find_threads`,
                `find_runs` and `find_stitches`.
        """
        if issubclass(kind, Thread | Run | Stitch):
            raise TypeError(f"{kind.__name__} has no table; see find_threads, find_runs and find_stitches.")
        return RecordTable(self._backend, kind)

    async def ping(self) -> None:
        """Read at most one row.

        Raises:
            StoreError: If the backend does not answer.
        """
        await self._backend.find(Find(Worker, limit=1))

    def changes(self) -> AsyncGenerator[ChangeHint, None]:
        """Yield a hint for each change of a thread of any project, also from other processes.

        The first hint is `WATCHING`. The generator reports every change after it. `WORK_READY` means that a thread can
        be claimed.

        Raises:
            StoreUnreachable: If the connection is lost. Start a new generator then, and read the current state.
        """
        return self._backend.watch()

    # Workers and limits

    async def held_by(self, workers: Collection[UUID]) -> list[Thread]:
        """Return the threads of all projects that these workers hold.

        Args:
            workers: Ids of the workers.
        """
        if not workers:
            return []
        return await self._backend.find(Find(Thread, (Where("worker_id", "in", list(workers)),)))

    async def limits(self) -> list[tuple[Limit, int]]:
        """Return the concurrency limits by name, each with the number of held threads of its agents."""
        return [
            (limit, await self._backend.count(Find(Thread, (_HELD, Where("agent", "in", limit.agents)))))
            for limit in await self._backend.find(Find(Limit, order=("name",)))
        ]

    async def set_limit(self, limit: Limit) -> None:
        """Store a concurrency limit. It also covers the agents that a stored limit of the same name covers.

        Args:
            limit: The limit.
        """
        stored = await self._backend.get(Limit, (limit.name,))
        agents = {*limit.agents, *(stored.agents if stored is not None else ())}
        limit = limit.changed(agents=sorted(agents))
        if limit != stored:
            await self._backend.put([limit])

    # Applications

    async def extend(self, extension: Extension) -> None:
        """Create the tables of an application, or migrate them to its version. Cheap if they are up to date.

        Args:
            extension: Extension with the migrations.

        Raises:
            Refused: If the extension has queries or generated keys, on the file backend.
            SchemaMismatch: If the tables are newer than the extension.
        """
        if extension not in self._extended:
            register(extension)
            await self._backend.extend(extension)
            self._extended.add(extension)

    async def query(
        self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any
    ) -> Any:
        """Run a named read-only query of an application. Return tuples, or records if `record_type` is set.

        Args:
            extension: Extension that has the query.
            name: Name of the query.
            record_type: Class of the returned records. None: return tuples.
            values: Parameters of the query, by name.

        Raises:
            Refused: On the file backend.
        """
        return await self._backend.run_query(extension, name, values, record_type, writes=False)

    async def execute(
        self, extension: Extension, name: str, *, record_type: type[Record] | None = None, **values: Any
    ) -> Any:
        """Run a named query of an application that writes, in a separate transaction. Return its rows as `query` does.

        Args:
            extension: Extension that has the query.
            name: Name of the query.
            record_type: Class of the returned records. None: return tuples.
            values: Parameters of the query, by name.

        Raises:
            Refused: On the file backend.
        """
        return await self._backend.run_query(extension, name, values, record_type, writes=True)

    async def lens_sql(self, name: str, dialect: str) -> list[str]:
        """Return the SQL that applications have added to a lens of this store.

        Args:
            name: Name of the lens, or `tables` for an export.
            dialect: `sqlite` or `postgres`.

        Raises:
            Refused: If there is no such lens.
        """
        added = [
            installed_extension.lens(catalog.check(name), dialect)
            for installed_extension in await tables.installed_extensions(self._backend)
        ]
        return [part for part in added if part]

    def watch(self, ref: UUID | None = None, *, after: int = 0, recent: int = 0) -> AsyncGenerator[Stitch, None]:
        """Yield stitches as they are committed, from any process: of one thread, or of all threads of the project.

        The generator yields each stitch once, in order within its thread, and misses none.

        Args:
            ref: Id of a thread. None: all threads of the project.
            after: With `ref`: yield all stitches after this position, stored ones first.
            recent: Without `ref`: number of stored stitches to yield first.
        """
        if ref is not None:
            return self._watching.thread(ref, after)
        return self._watching.project(self.project, recent)

    # Starting, importing and maintenance

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        key: str | None = None,
        tasks: Sequence[conversations.Task] = (),
        priority: int = 0,
        user_id: str | None = None,
        kind: str = "goal",
        id: UUID | None = None,
        version: int | None = None,
        title: str | None = None,
        parent_id: UUID | None = None,
        extras: Json | None = None,
        expires_at: datetime | None = None,
        at: datetime | None = None,
        connection: object | None = None,
    ) -> Thread:
        """Create a thread with a goal. A worker executes it; nothing runs in this process.

        Args:
            agent: Name of the agent that executes the thread.
            goal: Task of the thread, in words.
            key: Name of the thread, unique within the project.
            tasks: Task list, as texts or as objects with a `description`. The first request contains it.
            priority: Claim priority. Higher values first.
            user_id: Id of the user that the thread belongs to.
            kind: Kind of the thread.
            id: Id of the thread, a UUIDv7. None: a new one.
            version: Version of the agent's definition. None: the version that the worker has.
            title: Title of the thread for lists.
            parent_id: Id of the thread that creates this one.
            extras: Additional data of an application.
            expires_at: Time after which a purge deletes the thread, with a time zone.
            at: Time before which no worker claims the thread, with a time zone.
            connection: Open psycopg `Connection` or `AsyncConnection` to this store's database. The thread is
                written inside the caller's transaction: it exists if and only if the caller commits. A connection in
                autocommit mode must be inside `connection.transaction()`. Only PostgreSQL supports this.

        Returns:
            The new thread.

        Raises:
            KeyTaken: If the key is in use. The caller's transaction stays usable.
            Conflict: If the id is in use.
            Refused: If a value is not valid, or if the store cannot use `connection`.
        """
        fields = without_none(
            agent=agent,
            goal=goal,
            key=key,
            tasks=conversations.numbered_tasks(tasks),
            priority=priority,
            user_id=user_id,
            kind=kind,
            id=id,
            version=version,
            title=title,
            parent_id=parent_id,
            extras=extras,
            expires_at=expires_at,
        )
        return await conversations.start(self, fields, at, connection)

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
        message_id: str | None = None,
    ) -> conversations.EnqueuedMessage:
        """Leave a message for a worker, in one commit. No agent code runs in this process.

        If the thread waits for its next message, it becomes `pending` and belongs to `agent` from now on. If a worker
        holds it or a run is open, the message waits in its inbox, and the agent of the thread answers it.

        Args:
            agent: Name of the agent that answers. None: the agent of the thread.
            message: Message of the user.
            thread: Thread, its id or its key. An unknown thread is created with this message. None: a new thread.
            kind: Kind of a new thread.
            user_id: Id of the user that the thread belongs to. None: any user.
            extras: Additional data of an application, stored with the run.
            metadata: Metadata of the run.
            tags: Tags of the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before,
                nothing is written, and the result names the run of the first message. Without a thread, the id also
                identifies the new thread, so a repeated message creates no second thread.

        Returns:
            The thread, and the id that the run of this message will have.

        Raises:
            ThreadEnded: If the thread has ended.
            ThreadWaiting: If its first run waits for a time.
            MessageIdReused: If the first message with this id has another content.
            Refused: If the thread belongs to another user or is an imported trace, or if a value is not valid.
        """
        checked = conversations.checked_message_id(message_id)
        entry = message_entry(message, extras=extras, metadata=metadata, tags=tags, message_id=checked)
        return await conversations.enqueue(self, agent, entry, thread, kind=kind, user_id=user_id)

    async def reopen(self, ref: ThreadRef) -> Thread:
        """Make a failed or cancelled thread ready again, in one commit, and return it.

        A worker retries its last run: a new run on the same context. If the thread ended before its first run, its goal
        starts.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
            ThreadEnded: If the thread is completed.
            Conflict: If `ref` is a `Thread` that has changed since it was read.
        """
        return await conversations.reopen(self, ref if isinstance(ref, Thread) else await self.thread(ref))

    async def wake(self, ref: ThreadRef) -> Thread:
        """Make a waiting thread ready now, in one commit, and return it.

        The thread may wait for a time, for code or for its next attempt. A worker claims it and continues its open run
        as far as possible. If the thread waits for its next message, nothing changes.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
            ThreadEnded: If the thread has ended.
            ThreadHeld: If a worker holds the thread.
        """
        return await conversations.wake(self, await self.thread(ref))

    async def import_messages(
        self,
        messages: Sequence[Message],
        *,
        id: UUID | None = None,
        key: str | None = None,
        user_id: str | None = None,
        agent: str | None = None,
        title: str | None = None,
        settings: Json | None = None,
        extras: Json | None = None,
    ) -> Thread:
        """Create a chat from an existing conversation and return it. Each user message starts a turn.

        A call without a result gets an error result, so that the context is valid.

        Args:
            messages: User and assistant messages, in order.
            id: Id of the thread, a UUIDv7. None: a new one.
            key: Name of the thread, unique within the project.
            user_id: Id of the user that the thread belongs to.
            agent: Name of the agent that continues the thread.
            title: Title for lists.
            settings: Settings of the thread, such as its system text.
            extras: Additional data of an application.

        Raises:
            Refused: If a message or another value is not valid. Nothing is written then.
            KeyTaken: If the key is in use.
            Conflict: If the id is in use.
        """
        fields = without_none(
            id=id or new_id(), key=key, user_id=user_id, agent=agent, title=title, settings=settings, extras=extras
        )
        return await conversations.import_messages(self, messages, fields)

    async def fork(
        self,
        ref: ThreadRef,
        *,
        at: int | None = None,
        before_turn: int | None = None,
        key: str | None = None,
        take_key: bool = False,
        title: str | None = None,
        user_id: str | None = None,
        extras: Json | None = None,
    ) -> Thread:
        """Create a thread that continues from a position of another thread, and return it.

        Calls that have no result there get an error result. The fork has the agent and the settings of its origin. Its
        `history` includes the earlier turns, and its own turns continue their numbers.

        Args:
            ref: Thread, its id or its key in the project.
            at: Last position to include. None: the end of the log.
            before_turn: Number of the first turn to leave out (`Turn.run.turn`), instead of `at`.
            key: Name of the fork, unique within the project.
            take_key: Give the key of the thread to the fork, in the same commit. The thread then has no key. Without a
                key, nothing changes.
            title: Title of the fork.
            user_id: Id of the user that the fork belongs to. None: the user of its origin.
            extras: Additional data of an application. None: the extras of its origin.

        Raises:
            NotFound: If this project has no such thread.
            KeyTaken: If the key is in use.
            ThreadHeld: With `take_key`, if a worker holds the thread.
            Conflict: With `take_key`, if the thread changes at the same time.
            Refused: If there is no such position or turn, if the thread is an imported trace, or if `key` and
                `take_key` are set.
        """
        head = await self._forkable(ref)
        if take_key and key is not None:
            raise Refused("Pass `key` or `take_key`, not both.")
        fields = without_none(key=key, title=title, user_id=user_id, extras=extras)
        point = await conversations.fork_point(self, head, at, before_turn)
        return await conversations.fork(self, head, point, fields, take_key=take_key)

    async def regenerate(
        self,
        ref: ThreadRef,
        *,
        turn: int | None = None,
        message: Message | None = None,
        agent: str | None = None,
        message_id: str | None = None,
    ) -> conversations.EnqueuedMessage:
        """Answer the last turn again: fork the thread before it and leave its message for a worker, in one commit.

        The fork takes the key of the thread, so callers that use the key continue with the new answer. The old answer
        stays in the old thread, which has no key then. With `message`, this is edit and resend.

        Args:
            ref: Thread, its id or its key in the project.
            turn: Number of the turn to answer again (`Turn.run.turn`). Later turns are left out. None: the last turn.
            message: Message to send instead of the message of the turn. None: the same message.
            agent: Name of the agent that answers. None: the agent of the thread.
            message_id: Id of the request that you choose, unique per thread. A repeated request creates no second fork.

        Returns:
            The fork, and the id that the run of the message will have.

        Raises:
            NotFound: If this project has no such thread.
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If the thread has an open run or an unanswered message.
            Conflict: If the thread changes at the same time.
            Refused: If there is no such turn, if the turn has no message, or if the thread is an imported trace.
        """
        return await conversations.regenerate(self, await self._forkable(ref), turn, message, agent, message_id)

    async def start_replay(
        self,
        source: ThreadRef | Run,
        *,
        agent: str,
        version: int,
        at: int | None = None,
        live_safe: bool = False,
        id: UUID | None = None,
        key: str | None = None,
    ) -> Thread:
        """Create a thread that runs a recorded thread or run again, and return it. A worker or `resume` executes it.

        The thread has the kind `replay`. Its runs get the recorded messages of the user. Calls of tools get the
        recorded results: no tool runs, and nothing is written to the recorded thread. A call that the record does not
        have ends the replay. `replay_report` compares both.

        Args:
            source: Recorded thread, its id or its key, or a run or its id. Of a thread, all turns are run again.
            agent: Name of the agent that executes the replay.
            version: Stored version of its definition.
            at: Position of the recorded thread. The responses up to it come from the record, too.
            live_safe: Run tools with the effect `safe` if the record does not have their call.
            id: Id of the new thread, a UUIDv7. None: a new one.
            key: Name of the new thread, unique within the project.

        Raises:
            NotFound: If this project has no such thread and no such run.
            KeyTaken: If the key is in use.
            Conflict: If the id is in use.
            Refused: If the source is a replay, the run of a team member or a thread without runs, or if it has no such
                position.
        """
        fields = without_none(id=id, key=key, agent=agent, version=version)
        return await replays.start(self, source, fields, at=at, live=live_safe)

    async def replay_report(self, ref: ThreadRef) -> replays.ReplayReport:
        """Return the state of a replay, and its comparison with the recorded runs.

        Args:
            ref: Thread of the replay, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
            Refused: If the thread is no replay.
        """
        return await replays.report(self, ref)

    async def _forkable(self, ref: ThreadRef) -> Thread:
        """Return the thread. Raises `Refused` if it is an imported trace."""
        head = await self.thread(ref)
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} is an imported trace and cannot be forked.")
        return head

    async def archive(self, before: datetime) -> int:
        """Compress the turns that no context needs. Return the number of turns.

        Readers get the same stitches as before. Held threads are skipped. Can be interrupted and repeated.

        Args:
            before: Only turns that ended before this time.
        """
        return await retention.archive(self, self._archives, before)

    async def archive_to_lake(self, lake: str, before: datetime) -> LakeArchiveReport:
        """Remove the turns that no context needs, if a lake has them. Readers get their stitches from the lake.

        Also moves compressed turns of `archive` to the lake. A turn is removed only if the lake has exactly its
        stitches. Held threads are skipped. Can be interrupted and repeated. If a lake was moved, call it with the new
        place, and it replaces the old one.

        Args:
            lake: Folder, or URL of an object store, that `lockstitch lake sync` has written.
            before: Only turns that ended before this time.

        Returns:
            The numbers of turns that were removed, and that stay because the lake does not have them.

        Raises:
            Refused: If the target has no complete sync, or the store is a folder of files.
            StoreError: If the lake cannot be read.
        """
        return await retention.archive_to_lake(self, self._archives, lake, before)

    async def restore(self, ref: ThreadRef) -> int:
        """Write the archived turns of a thread into its log again. Return the number of turns.

        The stitches are the same as before, and so are their ids, positions and `log_id`. Can be interrupted and
        repeated.

        Args:
            ref: Thread, its id, or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
            ThreadHeld: If a worker holds the thread.
            Conflict: If the thread changes at the same time.
            StoreDamaged: If an archive or a lake does not have the stitches that were archived.
        """
        return await self._archives.restore(await self.thread(ref))

    async def redact(self, head: Thread, redact: Callable[[Stitch], Stitch]) -> None:
        """Replace the log of a thread with redacted stitches, in one archive. No worker may hold the thread.

        Args:
            head: Thread as the caller read it.
            redact: Function that returns the redacted stitch of each stitch.

        Raises:
            Conflict: If the thread has changed since `head` was read.
        """
        await self._archives.replace(head, [redact(stitch) for stitch in await self.stitches(head)])

    async def purge(self, *, before: datetime | None = None, user_id: str | None = None, force: bool = False) -> int:
        """Delete whole trees of threads with all of their records. Return the number of deleted threads.

        Daily metrics keep the usage of deleted runs. Without `user_id`, threads that execute or wait for work are
        skipped.

        Args:
            before: Delete trees without a change since this time. None: delete expired threads.
            user_id: Delete everything of this user instead: threads, memories, feedback, and records of applications.
            force: With `user_id`: delete also if a worker holds one of the threads, or if the code of an
                application is missing.

        Raises:
            ThreadHeld: With `user_id`, if a worker holds one of the threads and `force` is False.
            Refused: With `user_id`, if the code of an application is missing and `force` is False.
        """
        return await retention.purge(self, before, user_id, force)

    async def purge_preview(self, *, before: datetime | None = None, user_id: str | None = None) -> list[Thread]:
        """Return the threads that `purge` would delete now. Nothing is deleted.

        Args:
            before: As for `purge`.
            user_id: As for `purge`. Threads that a worker holds are included.
        """
        return await retention.preview(self, before, user_id)

    async def copy_to(
        self, target: "Store", *, tree: ThreadRef | None = None, progress: copying.Progress | None = None
    ) -> copying.CopyReport:
        """Copy all records, or one tree of threads, into another store, and verify the copied logs.

        Records that the target has already are not copied again, so a repeated call continues an interrupted copy.

        Args:
            target: The other store.
            tree: Root of the tree to copy: a thread, its id or its key. None: all records.
            progress: Function that receives the report after each thread.

        Returns:
            The report of the copied records.

        Raises:
            Conflict: If a thread of the target is another one or has newer stitches. It is not overwritten.
        """
        root = None if tree is None else await self.thread(tree)
        return await copying.copy(self, target, root, progress)

    async def verify(self, *, repair: bool = False) -> doctor.DoctorReport:
        """Read the whole store and check each thread. Return the counts and the problems.

        Args:
            repair: Repair the heads of threads that are behind their logs. No log is changed, and no thread that a
                worker holds. `repaired` of the report has the repaired problems, `problems` the remaining ones.
        """
        return await doctor.verify(self, repair=repair)

    async def counts(self) -> doctor.DoctorReport:
        """Return a report with the number of threads, runs and stitches. Nothing is checked."""
        return await doctor.count(self)

    async def rebuild_files(self) -> bool:
        """Rebuild derived files from the log. Return False if the backend has no derived files."""
        return await doctor.rebuild_files(self)


def on_loop(store: Store, submit: Callable[[Coroutine[Any, Any, Any]], Future[Any]]) -> Store:
    """Return the same store for callers on another event loop. `submit` starts a coroutine on the loop of the store."""
    backend = cast("FullBackend", _OtherLoopBackend(store._backend, submit))
    return Store(backend, clock=store.clock, project=store.project, migrate=False)


class _OtherLoopBackend:
    """A backend for callers on another event loop: each call is submitted to the loop of the backend."""

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


async def run_sql(
    store: Store,
    query: str,
    *,
    limit: int,
    seconds: float,
    lens: str | None = None,
    force: bool = False,
    own: bool = False,
) -> QueryResult:
    """Run `store.sql`. `own` means that Lockstitch wrote the statement, so it needs no restricted login."""
    if lens is not None:
        catalog.check(lens)
    answer = await store._backend.query(query, limit=limit, seconds=seconds, lens=lens, force=force, own=own)
    if answer is not None:
        return answer
    async with _copied(store) as copy:
        return await run_sql(copy, query, limit=limit, seconds=seconds, lens=lens, own=own)


@asynccontextmanager
async def open_lens(store: Store, name: str, *, blocking: bool) -> AsyncGenerator[Any]:
    """Open `store.lens`, with an async driver or, if `blocking`, with a blocking one."""
    opened = store._backend.lens(catalog.check(name), blocking=blocking)
    if opened is not None:
        async with opened as connection:
            yield connection
        return
    async with (
        _copied(store) as copy,
        open_lens(copy, name, blocking=blocking) as connection,
    ):
        yield connection


def _copied(store: Store) -> AbstractAsyncContextManager[Store]:
    """Open a store that supports SQL, with a copy of all records."""
    if store._sql_copy is None:
        raise Refused("This store does not support SQL.")
    return store._sql_copy.open(store)
