"""`StoreCore`: append, commit, deliver, inbox, leases, runs, stitches."""

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
    """What everything else of a store is built on."""

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
        self.project = project
        self._migrate = migrate
        self._create = create
        self._leases = Leases(backend, clock, again)
        self._writer = CommitWriter(backend, clock, self._leases)
        self._archives = Archives(backend, clock)
        self._media = Media(backend, clock)
        self._reading = LogQueries(backend, self._archives, self._media)
        self._watching = LogWatcher(backend, self._reading)
        self.lease_keeper = LeaseKeeper(backend, self._leases)
        self.execution = ExecutionQueries(backend, clock, self._reading, self._media, self._leases, self._writer)
        self.agents = Agents(backend, clock)
        self.memories = RecordTable(backend, Memory)
        self.files = RecordTable(backend, File)
        self.feedback = RecordTable(backend, Feedback)
        self.evals = RecordTable(backend, Eval)
        self.mirrors = MirrorStore(backend)

    async def __aenter__(self) -> Self:
        try:
            if not self._create:
                await self._require_record()
            if self._migrate:
                await self.migrate()
        except BaseException:
            # Whoever cannot enter never leaves, so what was opened is let go here.
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def migrate(self) -> int:
        """Bring the store's schema to this version of Lockstitch; the version."""
        return await self._backend.migrate()

    async def close(self) -> None:
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

        This is `commit` for a transaction with one update. `head` is the thread as the caller read it. If the thread
        has changed since then, nothing is written and `Conflict` is raised.

        `fields` are changed fields of the head. `run_updates` are runs as the caller read them, each with its changed
        fields. `new_threads` are usually children. `consumed` are deliveries of the thread's inbox, which become
        stitches before the entries. `deliveries` go to other threads, for example to the parent. `blob_refs` are
        hashes of blobs that the thread refers to. `records` belong to an application.

        A status of `waiting` or an end releases the thread. It raises `UnseenDeliveries` while the
        inbox has deliveries that `head` does not count.
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

        Raises `Conflict` if one of the threads has changed since the caller read it.
        """
        if transaction.deliveries:
            depths = transaction.known_depths()
            for delivery in transaction.deliveries:
                if delivery.thread_id not in depths:
                    depths[delivery.thread_id] = (await self.thread(delivery.thread_id)).depth
            transaction.depths = depths
        return await self._writer.commit(transaction)

    def new_run(self, head: Thread, **fields: Any) -> Run:
        """Return the next run of a thread, for its first append. A nested run has the turn of its parent."""
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
        """Deliver an entry to a thread that another worker may hold, exactly once per sender and call.

        Raises `ThreadEnded` if the thread has ended.
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
        """Return a delivery to a thread, for `append(..., deliveries=[…])` or a `Transaction`."""
        now = self.clock.now()
        body = (entry if entry.at else entry.changed(at=now)).as_json()
        return Delivery(thread_id=head.id, sender=sender, call_id=call_id, kind=kind, entry=body, at=now)

    async def inbox(self, head: Thread) -> tuple[Thread, list[Delivery]]:
        """Return the deliveries in a thread's inbox, oldest first, and the head that counts them.

        Their large media are in blobs. The stitches that they become have the media in their places.
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
        """Store a text that requests of a thread refer to. Return its hash, by which it is stored once."""
        head = await self.thread(ref)
        return await self._media.keep_text(head.id, text, media_type)

    # Leases

    async def register_worker(self, *, lease_seconds: float | None = None, doing: Json | None = None) -> Worker:
        """This process as a worker, or its lease renewed; its id is what `claim` and `append` act under."""
        return await self._leases.heartbeat(lease_seconds, doing)

    async def claim(self, ref: ThreadRef, *, take_over: bool = False, unlimited: bool = False) -> Thread:
        """Take one thread for this process, or ThreadBusy with who holds it or which limit is reached.

        A holder provably dead on this host is taken over at once, another when its lease has run out, or at once
        with `take_over`, for people who know that it is dead. `unlimited` is for whoever only wants to end it.
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
        """Claim runnable threads for this process: projects in turns, in each by priority and how long it is ready.

        With `suspects` False, threads that a worker lost and that made no progress since are left out. With True, one
        of those is claimed; pass `alone` if this process executes no other thread.
        """
        project = None if all_projects else self.project
        return await self._leases.claim_next(agents, project, limit, suspects=suspects, alone=alone)

    async def reap(self) -> list[UUID]:
        """Give back what workers hold that are dead: provably on this host, or whose lease has run out."""
        return await self._leases.reap()

    # The log

    async def stitches(self, ref: ThreadRef, first: int = 1, last: int | None = None) -> list[Stitch]:
        """The log of a thread from one position to another, archived turns included."""
        return await self._reading.stitches(await self.thread(ref), [(first, last)])

    async def last_stitch(self, ref: ThreadRef) -> Stitch | None:
        """The newest llm_call, tool_call or thread_result of a thread."""
        head = await self.thread(ref)
        return None if head.tip_id is None else await self._reading.last_linked(head, head.tip_id)

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        """One stitch by its id."""
        wanted = as_id(stitch_id)
        stitches = await self._backend.find(Find(Stitch, (Where("id", "=", wanted),), limit=1)) if wanted else []
        if not stitches:
            raise NotFound(f"There is no stitch {stitch_id} in this store; an archived one is read through its run.")
        await self.thread(stitches[0].thread_id)
        return (await self._media.restore(stitches))[0]

    async def run(self, run_id: UUID | str) -> Run:
        """One run by its id, or a mirror by the id that its own system knows it by."""
        wanted = as_id(run_id)
        result = await self._backend.get(Run, (wanted,)) if wanted else None
        if result is None:
            name = codec.check_text(str(run_id), "The id")
            result = await self._backend.mirrored_run(self.project, name)
        if result is None:
            raise NotFound(f"There is no run {run_id} in this store.")
        await self.thread(result.thread_id)
        return result

    async def runs(self, ref: ThreadRef, *, limit: int | None = None) -> list[Run]:
        """All runs of a thread in the order in which they began."""
        head = await self.thread(ref)
        return await self.find_runs(head.id, limit=limit)

    async def find_runs(
        self,
        threads: UUID | Collection[UUID],
        *where: Where,
        order: Sequence[str] = ("sequence",),
        limit: int | None = None,
    ) -> list[Run]:
        """The runs of one thread or of several that meet all conditions."""
        of_threads = (
            Where("thread_id", "=", threads) if isinstance(threads, UUID) else Where("thread_id", "in", list(threads))
        )
        return await self._backend.find(Find(Run, (of_threads, *where), order=order, limit=limit))

    async def runs_by_id(self, thread_id: UUID, ids: Collection[UUID]) -> dict[UUID, Run]:
        """The runs of a thread with these ids."""
        runs = await self._backend.find(Find(Run, (Where("id", "in", list(ids)),))) if ids else []
        return {run.id: run for run in runs if run.thread_id == thread_id}

    async def find_stitches(
        self, thread_id: UUID, *where: Where, order: Sequence[str] = ("position",), limit: int | None = None
    ) -> list[Stitch]:
        """The stitches of a thread that meet all conditions, without archived turns and large media."""
        of_thread = Where("thread_id", "=", thread_id)
        return await self._backend.find(Find(Stitch, (of_thread, *where), order=order, limit=limit))

    async def count_stitches(self, thread_id: UUID, *where: Where) -> int:
        """The number of stitches that `find_stitches` would return."""
        return await self._backend.count(Find(Stitch, (Where("thread_id", "=", thread_id), *where)))

    async def stitches_by_id(self, threads: Collection[UUID], ids: Collection[UUID]) -> list[Stitch]:
        """The stitches of these threads with these ids, without large media."""
        stitches = await self._backend.find(Find(Stitch, (Where("id", "in", list(ids)),))) if ids else []
        return [stitch for stitch in stitches if stitch.thread_id in threads]

    async def _require_record(self) -> None:
        """Ask for a row that no schema lacks the table of: nothing is made in a database that is somebody else's."""
        try:
            await self._backend.count(Find(Thread, (Where("id", "=", UUID(int=0)),)))
        except (StoreDamaged, StoreUnreachable):
            raise
        except (StoreError, Refused) as exc:
            raise StoreUnreachable(
                "There is a database here, but no record of Lockstitch in it. "
                "`lockstitch migrate` makes one; or check the URL."
            ) from exc
