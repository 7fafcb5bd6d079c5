"""`StoreCore`: append, commit, deliver, inbox, leases, runs, stitches. `Store` adds reports and maintenance."""

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from lockstitch.backend import Condition, Fields, Find, FullBackend, Receipt, Where
from lockstitch.errors import (
    NotFound,
    Refused,
    StoreDamaged,
    StoreError,
    StoreUnreachable,
    ThreadEnded,
)
from lockstitch.model import (
    Clock,
    Dataset,
    Delivery,
    Entry,
    Eval,
    Example,
    Experiment,
    Feedback,
    File,
    Json,
    Memory,
    Record,
    Run,
    SavedView,
    Stitch,
    Thread,
    WebhookEvent,
    Worker,
    as_id,
    codec,
)
from lockstitch.store.lease_keeper import LeaseKeeper
from lockstitch.store.leases import Leases
from lockstitch.store.queries.execution import ExecutionQueries
from lockstitch.store.queries.log import LogQueries, LogWatcher
from lockstitch.store.tables import Agents, RecordTable
from lockstitch.store.threads import ThreadRef, ThreadsApi, matching_ids, without_none
from lockstitch.store.transaction import ThreadUpdate, Transaction
from lockstitch.store.writes.archive import Archives
from lockstitch.store.writes.media import Media
from lockstitch.store.writes.mirrors import MirrorStore
from lockstitch.store.writes.writer import Committed, CommitWriter


class StoreCore(ThreadsApi):
    """The part of a store that all its other modules use. See `Store`."""

    def __init__(
        self,
        backend: FullBackend,
        *,
        clock: Clock,
        project: str,
        migrate: bool = True,
        create: bool = True,
        again: Callable[[], FullBackend] | None = None,
    ) -> None:
        self._backend = backend
        self.clock = clock
        """Current time of this store. Tests replace it."""
        self.project = project
        """Project of new threads. Keys and ids are looked up in it."""
        self._migrate = migrate
        self._create_store = create
        self._leases = Leases(backend, clock, again)
        self._writer = CommitWriter(backend, clock, self._leases)
        self._archives = Archives(backend, clock)
        self._media = Media(backend, clock)
        self._reading = LogQueries(backend, self._archives, self._media)
        self._watching = LogWatcher(backend, self._reading)
        self.lease_keeper = LeaseKeeper(backend, self._leases)
        """Renews the lease of this process while threads execute. For executors."""
        self.execution = ExecutionQueries(backend, clock, self._reading, self._media, self._leases, self._writer)
        """Queries about a held thread. For executors."""
        self.agents = Agents(backend, clock)
        """Agents with their versions, of all projects."""
        self.memories = RecordTable(backend, Memory)
        """Memories of users, of all projects."""
        self.files = RecordTable(backend, File)
        """Files that runs generated, of all projects."""
        self.feedback = RecordTable(backend, Feedback)
        """Feedback on runs, of all projects."""
        self.evals = RecordTable(backend, Eval)
        """Results of evaluations, of all projects."""
        self.datasets = RecordTable(backend, Dataset)
        """Datasets, of all projects. `lockstitch.store.datasets` creates and deletes them."""
        self.examples = RecordTable(backend, Example)
        """Examples of datasets, of all projects."""
        self.experiments = RecordTable(backend, Experiment)
        """Experiments, of all projects: named groups of runs."""
        self.saved_views = RecordTable(backend, SavedView)
        """Views of the list of threads, of all projects. `lockstitch.store.saved_views` changes them."""
        self.mirrors = MirrorStore(backend)
        """Rows of imported traces. For importers."""

    async def __aenter__(self) -> Self:
        """Create or migrate the schema, unless `open_store` was called with `migrate=False`.

        Raises `StoreUnreachable` if there is no store and `create` is False, and `SchemaMismatch` if its schema needs
        newer code.
        """
        try:
            if not self._create_store:
                await self._require_record()
            if self._migrate:
                await self.migrate()
        except BaseException:
            # `__aexit__` does not run if `__aenter__` raises, so close the backend here.
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()

    async def migrate(self) -> int:
        """Migrate the schema of the store to this version of Lockstitch. Return the schema version.

        Raises:
            SchemaMismatch: If the schema needs newer code, or was created by an unreleased version.
        """
        return await self._backend.migrate()

    async def close(self) -> None:
        """Release all threads that this process holds, and close the connections. Do not use the store afterwards."""
        await self._leases.end()
        await self._delete_copies()
        await self._backend.close()

    async def _delete_copies(self) -> None:
        """Delete copies of the record that statements have read. Subclasses with such copies override it."""

    # Writing

    async def append(
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
        sum_runs: bool = False,
    ) -> Committed:
        """Append entries to a thread, in one commit with everything that belongs to them.

        This is `commit` for a transaction with one update. A status of `waiting` or a terminal one releases the thread.
        If another writer has changed the thread since the caller read it, nothing is written.

        Args:
            head: Thread as the caller read it.
            entries: Entries to append, in order.
            fields: Changed fields of the thread.
            new_runs: Runs that start with this commit. See `new_run`.
            run_updates: Runs as the caller read them, each with its changed fields.
            consumed: Deliveries of the thread's inbox. They become stitches before the entries.
            deliveries: Deliveries to other threads, for example to the parent.
            new_threads: Threads to create, usually children.
            webhook_events: Events that are sent to webhooks after the commit.
            blob_refs: Hashes of blobs that the thread refers to.
            records: Records of an application.
            sum_runs: Set the tokens, the cost and the steps of `new_runs` and of the runs in `run_updates` from their
                stitches, stored ones and new ones.

        Returns:
            The thread after the commit, and the appended stitches with their positions.

        Raises:
            StalePosition: If another writer appended first.
            ThreadHeld: If another worker holds the thread.
            StaleFence: If the thread was claimed again since the caller read it.
            UnseenDeliveries: If `fields` set the status to `waiting` or to a terminal one, and the inbox has
                deliveries that `head` does not count.
            CancelRequested: If `new_threads` has children of the thread, and a cancel is requested.
            ThreadEnded: If the thread has ended.
            ThreadDeleted: If the thread no longer exists.
            KeyTaken: If the key of a new thread is in use.
            Refused: If a value is not valid.
        """
        update = ThreadUpdate(
            head,
            list(entries),
            fields or {},
            list(new_runs),
            list(run_updates),
            list(consumed),
            list(blob_refs),
            sum_runs=sum_runs,
        )
        transaction = Transaction([update])
        transaction.deliveries += deliveries
        transaction.new_threads += new_threads
        transaction.webhook_events += webhook_events
        transaction.records += records
        return (await self.commit(transaction))[0]

    async def commit(self, transaction: Transaction) -> list[Committed]:
        """Write a transaction, all of it or nothing.

        If the connection breaks during the commit, the store finds out whether it happened.

        Args:
            transaction: Updates of threads, new threads, deliveries and records.

        Returns:
            One result per update, in the order of the updates.

        Raises:
            Conflict: If one of the threads has changed since the caller read it. See `append` for the subclasses.
            KeyTaken: If the key of a new thread is in use.
            NotFound: If the receiver of a delivery does not exist.
            OutcomeUnknown: If the store stays unreachable after the connection broke.
            Refused: If a value is not valid.
        """
        if transaction.deliveries:
            depths = transaction.known_depths()
            for delivery in transaction.deliveries:
                if delivery.thread_id not in depths:
                    depths[delivery.thread_id] = (await self.thread(delivery.thread_id)).depth
            transaction.depths = depths
        return await self._writer.commit(transaction)

    def new_run(
        self,
        head: Thread,
        *,
        id: UUID | None = None,
        parent_run_id: UUID | None = None,
        agent: str | None = None,
        version: int | None = None,
        role: str = "agent",
        status: str = "running",
        stop_reason: str | None = None,
        input_position: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        source: str = "native",
        state: Json | None = None,
        tags: Sequence[str] = (),
        metadata: Json | None = None,
        extras: Json | None = None,
    ) -> Run:
        """Return the next run of a thread. It is not stored yet: pass it to `append(..., new_runs=[…])`.

        Args:
            head: Thread as the caller read it.
            id: Id of the run, a UUIDv7. None: a new one.
            parent_run_id: Id of the run that delegates to this one. The run then has the turn of its parent.
            agent: Name of the agent. None: the agent of the thread.
            version: Version of the agent's definition. None without `agent`: the version of the thread.
            role: `agent`, `team`, `workflow` or `trace`.
            status: Status of the run.
            stop_reason: Reason why the run ended.
            input_position: Position of the stitch that contains the input.
            model: Name of the model.
            provider: Name of the model's provider.
            source: Name of the system that the run comes from.
            state: Internal data that the engine needs to continue the run.
            tags: Tags set by the caller.
            metadata: Metadata set by the caller.
            extras: Additional data of an application.

        Raises:
            Refused: If a value is not valid.
        """
        fields = without_none(
            id=id,
            thread_id=head.id,
            sequence=head.last_sequence + 1,
            turn=head.last_turn if parent_run_id else head.last_turn + 1,
            parent_run_id=parent_run_id,
            agent=head.agent if agent is None else agent,
            version=head.version if agent is None and version is None else version,
            role=role,
            status=status,
            stop_reason=stop_reason,
            first_position=head.position + 1,
            input_position=input_position,
            model=model,
            provider=provider,
            source=source,
            state=state,
            tags=list(tags),
            metadata=metadata,
            extras=extras,
            started_at=self.clock.now(),
        )
        return Run(**fields)

    async def deliver(self, ref: ThreadRef, entry: Entry, *, kind: str, sender: str, call_id: str = "") -> Receipt:
        """Deliver an entry to a thread that another worker may hold, exactly once per `sender` and `call_id`.

        The delivery waits in the inbox of the thread, and ends its wait if the thread waits for it.

        Args:
            ref: Thread, its id or its key in the project.
            entry: Entry that the delivery becomes in the log.
            kind: Kind of the delivery, such as `input`.
            sender: Name of the sender.
            call_id: Id or key of the call that the delivery answers. Empty: none.

        Returns:
            The receipt. Its `new` is False if this sender has delivered for this call before. Nothing is written then.

        Raises:
            NotFound: If this project has no such thread.
            ThreadEnded: If the thread has ended.
            Refused: If the thread is an imported trace, or if a value is not valid.
        """
        head = await self.thread(ref)
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} is an imported trace. It cannot receive messages.")
        delivery = self.new_delivery(head, entry, kind, sender, call_id)
        (receipt,) = await self._writer.deliver(Transaction(deliveries=[delivery], depths={head.id: head.depth}))
        if receipt.position is None and not receipt.new and (await self.thread(head.id)).ended:
            raise ThreadEnded(f"Thread {head.id} has ended and accepts no messages.", thread_id=head.id)
        return receipt

    def new_delivery(self, head: Thread, entry: Entry, kind: str, sender: str, call_id: str = "") -> Delivery:
        """Return a delivery that is not stored yet, for `append(..., deliveries=[…])` or a `Transaction`.

        Args:
            head: Thread that receives the delivery.
            entry: Entry that the delivery becomes in the log.
            kind: Kind of the delivery, such as `input`.
            sender: Name of the sender.
            call_id: Id or key of the call that the delivery answers. Empty: none.

        Raises:
            Refused: If a value is not valid.
        """
        now = self.clock.now()
        body = (entry if entry.at else entry.changed(at=now)).as_json()
        return Delivery(thread_id=head.id, sender=sender, call_id=call_id, kind=kind, entry=body, at=now)

    async def inbox(self, head: Thread) -> tuple[Thread, list[Delivery]]:
        """Return the deliveries in the inbox of a thread, oldest first, and the thread that counts them.

        Pass both to `append`: the thread as `head`, and the deliveries as `consumed`. Large media of deliveries are in
        blobs. The stitches that the deliveries become have the media in place.

        Args:
            head: Thread as the caller read it.

        Raises:
            NotFound: If the thread no longer exists.
        """
        fresh = await self.thread(head.id)
        where = (Where("thread_id", "=", head.id), Where("position", "is null"))
        deliveries = await self._backend.find(Find(Delivery, where, order=("id",)))
        seen = head.changed(
            delivered=fresh.delivered,
            pending_children=fresh.pending_children,
            cancel_requested=fresh.cancel_requested,
        )
        return seen, deliveries

    async def store_text(self, ref: ThreadRef, text: str, media_type: str = "text/plain") -> str:
        """Store a text for the requests of a thread. Return its sha256. Equal texts are stored once.

        Args:
            ref: Thread, its id or its key in the project.
            text: The text.
            media_type: Media type of the text.

        Raises:
            NotFound: If this project has no such thread.
        """
        head = await self.thread(ref)
        return await self._media.put_text(head.id, text, media_type)

    # Leases

    async def register_worker(self, *, lease_seconds: float | None = None, doing: Json | None = None) -> Worker:
        """Register this process as a worker, or renew its lease. Return the worker.

        `claim` and `append` act under the id of this worker.

        Args:
            lease_seconds: Seconds without a heartbeat after which other workers may take its threads. None: the
                default.
            doing: Activity that dashboards show.

        Raises:
            WorkerDeclaredDead: Once, if the lease expired. The next call registers a new worker.
        """
        return await self._leases.heartbeat(lease_seconds, doing)

    async def claim(self, ref: ThreadRef, *, take_over: bool = False, unlimited: bool = False) -> Thread:
        """Claim one thread for this process and return it. Only the holder can append to it.

        If the holder is provably dead on this host, the thread is taken over immediately. Another holder keeps it until
        its lease expires. If two callers claim the same thread, exactly one of them gets it.

        Args:
            ref: Thread, its id or its key in the project.
            take_over: Take the thread from its holder immediately, because the holder is known to be dead.
            unlimited: Ignore concurrency limits, because the caller only ends the thread.

        Raises:
            NotFound: If this project has no such thread.
            ThreadHeld: If another worker or task holds the thread.
            LimitReached: If a limit leaves no room.
            ThreadEnded: If the thread has ended.
            WorkerDeclaredDead: If the lease of this process expired.
            Refused: If the thread is an imported trace.
        """
        return await self._leases.claim(await self.thread(ref), take_over, unlimited=unlimited)

    async def claim_next(
        self,
        *,
        agents: Sequence[str] | None = None,
        limit: int = 1,
        all_projects: bool = True,
        suspects: bool | None = None,
        alone: bool = False,
    ) -> list[Thread]:
        """Claim runnable threads for this process and return them. The list is empty if none is ready.

        Projects take turns. Within a project, threads are ordered by priority, then by the time since which they are
        ready. Two workers never get the same thread, and concurrency limits are respected.

        Args:
            agents: Only threads of these agents. None: any agent.
            limit: Maximum number of threads.
            all_projects: Claim threads of all projects, not only of this one.
            suspects: False skips threads that a worker lost and that made no progress since then. True claims one
                of those. None: both.
            alone: True if this process executes no other thread. For `suspects=True`.

        Raises:
            WorkerDeclaredDead: If the lease of this process expired.
        """
        project = None if all_projects else self.project
        return await self._leases.claim_next(agents, project, limit, suspects=suspects, alone=alone)

    async def reap(self) -> list[UUID]:
        """Release the threads of dead workers and return the ids of the threads.

        A worker is dead if its process on this host has ended, or if its lease has expired.
        """
        return await self._leases.reap()

    # The log

    async def stitches(self, ref: ThreadRef, first: int = 1, last: int | None = None) -> list[Stitch]:
        """Return the log of a thread. Archived turns are included.

        Args:
            ref: Thread, its id or its key in the project.
            first: First position.
            last: Last position, included. None: the end of the log.

        Raises:
            NotFound: If this project has no such thread.
        """
        return await self._reading.stitches(await self.thread(ref), [(first, last)])

    async def last_stitch(self, ref: ThreadRef) -> Stitch | None:
        """Return the newest `llm_call`, `tool_call` or `thread_result` of a thread. None if there is none.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        head = await self.thread(ref)
        return None if head.tip_id is None else await self._reading.last_linked(head, head.tip_id)

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        """Return a stitch.

        Args:
            stitch_id: Id of the stitch.

        Raises:
            NotFound: If this project has no such stitch, or if it is archived.
        """
        wanted = as_id(stitch_id)
        stitches = await self._backend.find(Find(Stitch, (Where("id", "=", wanted),), limit=1)) if wanted else []
        if not stitches:
            raise NotFound(f"Stitch {stitch_id} not found. If it is archived, read the log of its run.")
        await self.thread(stitches[0].thread_id)
        return (await self._media.restore(stitches))[0]

    async def run(self, run_id: UUID | str) -> Run:
        """Return a run.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If this project has no such run.
        """
        wanted = as_id(run_id)
        result = await self._backend.get(Run, (wanted,)) if wanted else None
        if result is None:
            name = codec.check_text(str(run_id), "The id")
            result = await self._backend.mirrored_run(self.project, name)
        if result is None:
            raise NotFound(f"Run {run_id} not found.")
        await self.thread(result.thread_id)
        return result

    async def match_runs(self, text: str, *, limit: int = 10) -> list[Run]:
        """Return the runs of this project whose id or short id starts with a text, the latest first.

        The last 8 to 12 characters of an id also match. Fewer than 4 characters match nothing.

        Args:
            text: Part of an id, as people type it.
            limit: Maximum number of runs.
        """
        runs = await matching_ids(self._backend, Run, text, limit)
        own = await self.threads_by_id({run.thread_id for run in runs})
        return [run for run in runs if run.thread_id in own]

    async def runs(self, ref: ThreadRef, *, limit: int | None = None) -> list[Run]:
        """Return the runs of a thread in the order in which they started, nested runs included.

        Args:
            ref: Thread, its id or its key in the project.
            limit: Maximum number of runs. None: all.

        Raises:
            NotFound: If this project has no such thread.
        """
        head = await self.thread(ref)
        return await self.find_runs(head.id, limit=limit)

    async def find_runs(
        self,
        threads: UUID | Collection[UUID],
        *where: Condition,
        order: Sequence[str] = ("sequence",),
        limit: int | None = None,
    ) -> list[Run]:
        """Return the runs of one thread or of several that meet all conditions.

        Args:
            threads: Id of a thread, or ids of several.
            where: Conditions on fields of `Run`.
            order: Fields to sort by. `-` before a name means descending.
            limit: Maximum number of runs. None: all.
        """
        of_threads = (
            Where("thread_id", "=", threads) if isinstance(threads, UUID) else Where("thread_id", "in", list(threads))
        )
        return await self._backend.find(Find(Run, (of_threads, *where), order=order, limit=limit))

    async def last_runs(self, threads: Collection[Thread]) -> dict[UUID, Run]:
        """Return the last run of each thread, nested runs included, by the id of the thread.

        The time does not depend on the number of runs.

        Args:
            threads: Heads of the threads.
        """
        places = [(thread.id, thread.last_sequence) for thread in threads if thread.last_sequence]
        if not places:
            return {}
        # As in `stitches_at`, the condition on the sequence lets SQLite find the rows.
        where = (
            Where("sequence", "in", list({sequence for _, sequence in places})),
            Where(("thread_id", "sequence"), "in", places),
        )
        return {run.thread_id: run for run in await self.find_runs([place[0] for place in places], *where, order=())}

    async def runs_by_id(self, thread_id: UUID, ids: Collection[UUID]) -> dict[UUID, Run]:
        """Return runs of a thread, by id. Ids of runs of other threads are ignored.

        Args:
            thread_id: Id of the thread.
            ids: Ids of runs.
        """
        runs = await self._backend.find(Find(Run, (Where("id", "in", list(ids)),))) if ids else []
        return {run.id: run for run in runs if run.thread_id == thread_id}

    async def find_stitches(
        self, thread_id: UUID, *where: Condition, order: Sequence[str] = ("position",), limit: int | None = None
    ) -> list[Stitch]:
        """Return the stitches of a thread that meet all conditions. Archived turns and large media are left out.

        Args:
            thread_id: Id of the thread.
            where: Conditions on fields of `Stitch`.
            order: Fields to sort by. `-` before a name means descending.
            limit: Maximum number of stitches. None: all.
        """
        of_thread = Where("thread_id", "=", thread_id)
        return await self._backend.find(Find(Stitch, (of_thread, *where), order=order, limit=limit))

    async def count_stitches(self, thread_id: UUID, *where: Condition) -> int:
        """Return the number of stitches that `find_stitches` would return.

        Args:
            thread_id: Id of the thread.
            where: Conditions on fields of `Stitch`.
        """
        return await self._backend.count(Find(Stitch, (Where("thread_id", "=", thread_id), *where)))

    async def stitches_by_id(self, threads: Collection[UUID], ids: Collection[UUID]) -> list[Stitch]:
        """Return stitches of several threads. Archived turns and large media are left out.

        Args:
            threads: Ids of the threads.
            ids: Ids of stitches. Those of other threads are ignored.
        """
        stitches = await self._backend.find(Find(Stitch, (Where("id", "in", list(ids)),))) if ids else []
        return [stitch for stitch in stitches if stitch.thread_id in threads]

    async def stitches_at(self, places: Collection[tuple[UUID, int]]) -> list[Stitch]:
        """Return the stitches at these places, in no order. Archived turns and large media are left out.

        Args:
            places: Ids of threads, each with a position.
        """
        if not places:
            return []
        # SQLite finds the rows with the first two conditions. With the last one alone it would read all stitches.
        where = (
            Where("thread_id", "in", list({thread_id for thread_id, _ in places})),
            Where("position", "in", list({position for _, position in places})),
            Where(("thread_id", "position"), "in", list(places)),
        )
        return await self._backend.find(Find(Stitch, where))

    async def _require_record(self) -> None:
        """Raise `StoreUnreachable` if the database has no tables of Lockstitch. Nothing is created."""
        try:
            await self._backend.count(Find(Thread, (Where("id", "=", UUID(int=0)),)))
        except (StoreDamaged, StoreUnreachable):
            raise
        except (StoreError, Refused) as exc:
            raise StoreUnreachable(
                "The database has no tables of Lockstitch. Run `lockstitch migrate` to create them, or check the URL."
            ) from exc
