"""`StoreCore`: append, commit, deliver, inbox, leases, runs, stitches. `Store` adds reports and maintenance."""

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from lockstitch.backend import Fields, Find, FullBackend, Receipt, Where
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
    as_id,
    codec,
)
from lockstitch.store.lease_keeper import LeaseKeeper
from lockstitch.store.leases import Leases
from lockstitch.store.queries.execution import ExecutionQueries
from lockstitch.store.queries.log import LogQueries, LogWatcher
from lockstitch.store.tables import Agents, RecordTable
from lockstitch.store.threads import ThreadRef, ThreadsApi
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
        self._create = create
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
        self.mirrors = MirrorStore(backend)
        """Rows of imported traces. For importers."""

    async def __aenter__(self) -> Self:
        """Create or migrate the schema, unless `open_store` was called with `migrate=False`.

        Raises `StoreUnreachable` if there is no store and `create` is False, and `SchemaMismatch` if its schema is
        newer than this code.
        """
        try:
            if not self._create:
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
        """Migrate the schema of the store to this version of Lockstitch. Return the schema version."""
        return await self._backend.migrate()

    async def close(self) -> None:
        """Release all threads that this process holds, and close the connections. Do not use the store afterwards."""
        await self._leases.end()
        await self._backend.close()

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
    ) -> Committed:
        """Append entries to a thread, in one commit with everything that belongs to them.

        This is `commit` for a transaction with one update. `head` is the thread as the caller read it. If another
        writer has changed the thread since then, nothing is written and the method raises a subclass of `Conflict`:

        - `StalePosition`: another writer appended first.
        - `ThreadHeld` or `StaleFence`: another worker claimed the thread.
        - `UnseenDeliveries`: `fields` set the status to `waiting` or to a terminal one, and the inbox has deliveries
          that `head` does not count.
        - `CancelRequested`: `new_threads` has children of the thread, and a cancel is requested.
        - `ThreadEnded`: the thread has ended. `ThreadDeleted`: it no longer exists.

        `fields` are changed fields of the head. `run_updates` are runs as the caller read them, each with its changed
        fields. `consumed` are deliveries of the thread's inbox, which become stitches before the entries. `deliveries`
        go to other threads, for example to the parent. `new_threads` are usually children. `webhook_events` are sent
        after the commit. `blob_refs` are hashes of blobs that the thread refers to. `records` belong to an application.

        A status of `waiting` or a terminal one releases the thread. Raises `Refused` if a value is not valid.
        """
        update = ThreadUpdate(
            head, list(entries), fields or {}, list(new_runs), list(run_updates), list(consumed), list(blob_refs)
        )
        transaction = Transaction([update])
        transaction.deliveries += deliveries
        transaction.new_threads += new_threads
        transaction.webhook_events += webhook_events
        transaction.records += records
        return (await self.commit(transaction))[0]

    async def commit(self, transaction: Transaction) -> list[Committed]:
        """Write a transaction, all of it or nothing. Return one result per update, in the order of the updates.

        Raises a subclass of `Conflict` if one of the threads has changed since the caller read it (see `append`), and
        `KeyTaken` if the key of a new thread is in use. If the connection breaks during the commit, the store finds out
        whether it happened. Raises `OutcomeUnknown` if the store stays unreachable.
        """
        if transaction.deliveries:
            depths = transaction.known_depths()
            for delivery in transaction.deliveries:
                if delivery.thread_id not in depths:
                    depths[delivery.thread_id] = (await self.thread(delivery.thread_id)).depth
            transaction.depths = depths
        return await self._writer.commit(transaction)

    def new_run(self, head: Thread, **fields: Any) -> Run:
        """Return the next run of a thread. It is not stored yet: pass it to `append(..., new_runs=[…])`.

        `fields` are fields of `Run`, such as `id`, `agent`, `version`, `role`, `status`, `parent_run_id`,
        `input_position`, `model`, `source`, `extras`, `metadata` and `tags`. With `parent_run_id` the run is nested and
        has the turn of its parent.
        """
        nested = fields.get("parent_run_id") is not None
        values: dict[str, Any] = {
            "thread_id": head.id,
            "sequence": head.last_sequence + 1,
            "turn": head.last_turn if nested else head.last_turn + 1,
            "first_position": head.position + 1,
            "agent": head.agent,
            "version": head.version,
            "started_at": self.clock.now(),
            **fields,
        }
        return Run(**values)

    async def deliver(self, ref: ThreadRef, entry: Entry, *, kind: str, sender: str, call_id: str = "") -> Receipt:
        """Deliver an entry to a thread that another worker may hold, exactly once per `sender` and `call_id`.

        The delivery waits in the inbox of the thread, and ends its wait if the thread waits for it. `kind` is the kind
        of the delivery, such as `input`. If this sender has delivered for this call before, nothing is written and
        `Receipt.new` is False. Raises `ThreadEnded` if the thread has ended, and `Refused` if it is an imported trace.
        """
        head = await self.thread(ref)
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} is an imported trace. It cannot receive messages.")
        delivery = self.new_delivery(head, entry, kind, sender, call_id)
        (receipt,) = await self._writer.deliver(Transaction(deliveries=[delivery], depths={head.id: head.depth}))
        if receipt.position is None and not receipt.new and (await self.thread(head.id)).ended:
            raise ThreadEnded(f"Thread {head.id} is {head.status} and accepts no more messages.", thread_id=head.id)
        return receipt

    def new_delivery(self, head: Thread, entry: Entry, kind: str, sender: str, call_id: str = "") -> Delivery:
        """Return a delivery to a thread that is not stored yet.

        Pass it to `append(..., deliveries=[…])` or a `Transaction`.
        """
        now = self.clock.now()
        body = (entry if entry.at else entry.changed(at=now)).as_json()
        return Delivery(thread_id=head.id, sender=sender, call_id=call_id, kind=kind, entry=body, at=now)

    async def inbox(self, head: Thread) -> tuple[Thread, list[Delivery]]:
        """Return the head that counts all deliveries, and the deliveries in the inbox of a thread, oldest first.

        Pass both to `append`: the head, and the deliveries as `consumed`. Large media of deliveries are in blobs. The
        stitches that the deliveries become have the media in place.
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
        """Store a text for the requests of a thread. Return its sha256. Equal texts are stored once."""
        head = await self.thread(ref)
        return await self._media.put_text(head.id, text, media_type)

    # Leases

    async def register_worker(self, *, lease_seconds: float | None = None, doing: Json | None = None) -> Worker:
        """Register this process as a worker, or renew its lease. Return the worker.

        `claim` and `append` act under the id of this worker. `lease_seconds` is the time without a heartbeat after
        which other workers may take its threads. `doing` is the activity that dashboards show. Raises
        `WorkerDeclaredDead` once if the lease expired; the next call registers a new worker.
        """
        return await self._leases.heartbeat(lease_seconds, doing)

    async def claim(self, ref: ThreadRef, *, take_over: bool = False, unlimited: bool = False) -> Thread:
        """Claim one thread for this process and return it. Only the holder can append to it.

        If the holder is provably dead on this host, the thread is taken over immediately. Another holder keeps it until
        its lease expires. `take_over` takes it immediately in any case, for a user who knows that the holder is dead.
        `unlimited` ignores concurrency limits, for a caller that only ends the thread.

        Raises `ThreadHeld` if another worker or task holds the thread, `LimitReached` if a limit leaves no room,
        `ThreadEnded` if it has ended, `WorkerDeclaredDead` if the lease of this process expired, and `Refused` if it is
        an imported trace. If two callers claim the same thread, exactly one of them gets it.
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
        """Claim runnable threads for this process, at most `limit`. Return an empty list if none is ready.

        `agents` limits the claim to threads of these agents; None means any agent. `all_projects` False claims threads
        of this project only. Projects take turns. Within a project, threads are ordered by priority, then by the time
        since which they are ready. Two workers never get the same thread, and concurrency limits are respected.

        If `suspects` is False, threads that a worker lost and that made no progress since then are skipped. If True,
        one of those is claimed; pass `alone` if this process executes no other thread.
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
        """Return the log of a thread from position `first` to `last`, both included. Archived turns are included."""
        return await self._reading.stitches(await self.thread(ref), [(first, last)])

    async def last_stitch(self, ref: ThreadRef) -> Stitch | None:
        """Return the newest `llm_call`, `tool_call` or `thread_result` of a thread, or None."""
        head = await self.thread(ref)
        return None if head.tip_id is None else await self._reading.last_linked(head, head.tip_id)

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        """Return a stitch by its id. Raises `NotFound` if there is none, or if it is archived."""
        wanted = as_id(stitch_id)
        stitches = await self._backend.find(Find(Stitch, (Where("id", "=", wanted),), limit=1)) if wanted else []
        if not stitches:
            raise NotFound(f"Stitch {stitch_id} not found. If it is archived, read the log of its run.")
        await self.thread(stitches[0].thread_id)
        return (await self._media.restore(stitches))[0]

    async def run(self, run_id: UUID | str) -> Run:
        """Return a run by its id. For an imported run, its id in the other system also works. Raises `NotFound`."""
        wanted = as_id(run_id)
        result = await self._backend.get(Run, (wanted,)) if wanted else None
        if result is None:
            name = codec.check_text(str(run_id), "The id")
            result = await self._backend.mirrored_run(self.project, name)
        if result is None:
            raise NotFound(f"Run {run_id} not found.")
        await self.thread(result.thread_id)
        return result

    async def runs(self, ref: ThreadRef, *, limit: int | None = None) -> list[Run]:
        """Return the runs of a thread in the order in which they started, nested runs included."""
        head = await self.thread(ref)
        return await self.find_runs(head.id, limit=limit)

    async def find_runs(
        self,
        threads: UUID | Collection[UUID],
        *where: Where,
        order: Sequence[str] = ("sequence",),
        limit: int | None = None,
    ) -> list[Run]:
        """Return the runs of one thread or of several that meet all conditions.

        `order` lists fields; `-` before a name means descending.
        """
        of_threads = (
            Where("thread_id", "=", threads) if isinstance(threads, UUID) else Where("thread_id", "in", list(threads))
        )
        return await self._backend.find(Find(Run, (of_threads, *where), order=order, limit=limit))

    async def runs_by_id(self, thread_id: UUID, ids: Collection[UUID]) -> dict[UUID, Run]:
        """Return the runs of a thread with these ids. Ids of other threads are ignored."""
        runs = await self._backend.find(Find(Run, (Where("id", "in", list(ids)),))) if ids else []
        return {run.id: run for run in runs if run.thread_id == thread_id}

    async def find_stitches(
        self, thread_id: UUID, *where: Where, order: Sequence[str] = ("position",), limit: int | None = None
    ) -> list[Stitch]:
        """Return the stitches of a thread that meet all conditions. Archived turns and large media are left out."""
        of_thread = Where("thread_id", "=", thread_id)
        return await self._backend.find(Find(Stitch, (of_thread, *where), order=order, limit=limit))

    async def count_stitches(self, thread_id: UUID, *where: Where) -> int:
        """Return the number of stitches that `find_stitches` would return."""
        return await self._backend.count(Find(Stitch, (Where("thread_id", "=", thread_id), *where)))

    async def stitches_by_id(self, threads: Collection[UUID], ids: Collection[UUID]) -> list[Stitch]:
        """Return the stitches of these threads with these ids. Archived turns and large media are left out."""
        stitches = await self._backend.find(Find(Stitch, (Where("id", "in", list(ids)),))) if ids else []
        return [stitch for stitch in stitches if stitch.thread_id in threads]

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
