"""The core of a store: writing to threads, the leases under which that is done, and their logs."""

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
from lockstitch.store.transaction import ThreadUpdate
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
        self._appender = CommitWriter(backend, clock, self._leases)
        self._archives = Archives(backend, clock)
        self._media = Media(backend, clock)
        self._reading = LogQueries(backend, self._archives, self._media)
        self._watching = LogWatcher(backend, self._reading)
        self.lease_keeper = LeaseKeeper(backend, self._leases)
        self.execution = ExecutionQueries(backend, clock, self._reading, self._media, self._leases, self._appender)
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
        """Append to a thread as it was seen, in one commit with everything that belongs to it, or raise Conflict.

        `fields` are changed fields of the head, `runs` changed fields of runs as they were seen. Going to wait or to
        an end gives the thread back and raises `UnseenDeliveries` while the inbox has unread deliveries.
        `letters` are for the thread's parent, `threads` are new children, `uses` hashes of texts that it refers to.
        `records` are an application's own, put in the same transaction.
        """
        spawned = 0
        if new_threads:
            spawned = sum(thread.parent_id == head.id for thread in new_threads)
            # The lock order rests on depths, so they are not left to whoever makes a child.
            new_threads = [
                thread.changed(depth=head.depth + 1) if thread.parent_id == head.id else thread
                for thread in new_threads
            ]
        draft = ThreadUpdate(head, entries, fields or {}, new_runs, run_updates, consumed, spawned, blob_refs)
        return (
            await self.commit([draft], letters=deliveries, threads=new_threads, notices=webhook_events, records=records)
        )[0]

    async def commit(
        self,
        drafts: Sequence[ThreadUpdate],
        *,
        letters: Sequence[Delivery] = (),
        threads: Sequence[Thread] = (),
        notices: Sequence[WebhookEvent] = (),
        records: Sequence[Record] = (),
    ) -> list[Committed]:
        """Append to several threads in one commit, all or none."""
        addressed = await self._addressed(letters, drafts) if letters else ()
        return await self._appender.commit(drafts, addressed, threads, notices, records)

    def new_run(self, head: Thread, **fields: Any) -> Run:
        """The next run of a thread, to be stored with its first append. A nested run shares its parent's turn."""
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
        """Hand an entry to a thread that somebody else may hold, exactly once per sender and call.

        ThreadEnded when the thread has ended and takes no more.
        """
        head = await self.thread(ref)
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} mirrors what happened in another system; nobody there reads this.")
        receipt = (await self._appender.deliver([(head.depth, self.new_delivery(head, entry, kind, sender, call_id))]))[
            0
        ]
        if receipt.position is None and not receipt.new and (await self.thread(head.id)).ended:
            raise ThreadEnded(f"Thread {head.id} is {head.status} and accepts no more messages.", thread_id=head.id)
        return receipt

    def new_delivery(self, head: Thread, entry: Entry, kind: str, sender: str, call_id: str = "") -> Delivery:
        """A letter to a thread, for `append(..., letters=[…])` or `deliver`."""
        now = self.clock.now()
        body = (entry if entry.at else entry.changed(at=now)).as_json()
        return Delivery(thread_id=head.id, sender=sender, call_id=call_id, kind=kind, entry=body, at=now)

    async def inbox(self, head: Thread) -> tuple[Thread, list[Delivery]]:
        """The letters that wait for a thread's holder, oldest first, and the head that has them taken into account.

        Large media in them stand in blobs already; they come back with the stitches that the letters become.
        """
        fresh = await self.thread(head.id)
        where = (Where("thread_id", "=", head.id), Where("position", "is null"))
        letters = await self._backend.find(Find(Delivery, where, order=("id",)))
        seen = head.changed(
            delivered=fresh.delivered,
            pending_children=fresh.pending_children,
            cancel_requested=fresh.cancel_requested,
        )
        return seen, letters

    async def store_text(self, ref: ThreadRef, text: str, media_type: str = "text/plain") -> str:
        """Keep a text once, by its hash, for the requests of a thread that refer to it; the hash."""
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
        found = await self._backend.find(Find(Stitch, (Where("id", "=", wanted),), limit=1)) if wanted else []
        if not found:
            raise NotFound(f"There is no stitch {stitch_id} in this store; an archived one is read through its run.")
        await self.thread(found[0].thread_id)
        return (await self._media.restore(found))[0]

    async def run(self, run_id: UUID | str) -> Run:
        """One run by its id, or a mirror by the id that its own system knows it by."""
        wanted = as_id(run_id)
        found = await self._backend.get(Run, (wanted,)) if wanted else None
        if found is None:
            name = codec.check_text(str(run_id), "The id")
            found = await self._backend.mirrored_run(self.project, name)
        if found is None:
            raise NotFound(f"There is no run {run_id} in this store.")
        await self.thread(found.thread_id)
        return found

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

    async def _addressed(
        self, letters: Sequence[Delivery], drafts: Sequence[ThreadUpdate]
    ) -> list[tuple[int, Delivery]]:
        """Letters with the depth of their receiver: the parent's of a draft is known, others are looked up."""
        depths: dict[UUID, int] = {}
        for draft in drafts:
            depths[draft.head.id] = draft.head.depth
            if draft.head.parent_id is not None:
                depths[draft.head.parent_id] = draft.head.depth - 1
        for letter in letters:
            if letter.thread_id not in depths:
                depths[letter.thread_id] = (await self.thread(letter.thread_id)).depth
        return [(depths[letter.thread_id], letter) for letter in letters]
