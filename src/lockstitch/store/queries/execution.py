"""`ExecutionQueries`: the queries and writes of an executor for the thread that it holds."""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from uuid import UUID

from lockstitch.backend import WATCHING, WORK_READY, Fields, Find, FullBackend, Receipt, Where
from lockstitch.model import (
    TERMINAL_STATUSES,
    Clock,
    Delivery,
    Entry,
    Json,
    Message,
    Run,
    Stitch,
    Thread,
    Worker,
    answer_of,
)
from lockstitch.store.leases import Leases
from lockstitch.store.queries.log import LogQueries
from lockstitch.store.transaction import Transaction
from lockstitch.store.writes.media import Media, has_large_media
from lockstitch.store.writes.writer import CommitWriter


class ExecutionQueries:
    """Queries for the holder of a thread. They take heads, because a holder has the head of its thread."""

    def __init__(
        self,
        backend: FullBackend,
        clock: Clock,
        reading: LogQueries,
        media: Media,
        leases: Leases,
        writer: CommitWriter,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._reading = reading
        self._media = media
        self._leases = leases
        self._writer = writer

    async def open_run(self, head: Thread) -> Run | None:
        """Return the top-level run of a thread that has not ended, or None."""
        last = await self.last_run(head)
        return last if last is not None and last.status not in TERMINAL_STATUSES else None

    async def last_run(self, head: Thread) -> Run | None:
        """Return the newest top-level run of a thread, or None."""
        if not head.last_sequence:
            return None
        where = (Where("thread_id", "=", head.id), Where("parent_run_id", "is null"))
        runs = await self._backend.find(Find(Run, where, order=("-sequence",), limit=1))
        return runs[0] if runs else None

    async def nested_runs(self, head: Thread, run: Run) -> list[Run]:
        """Return the nested runs of a top-level run: runs of members, and later runs of team leaders."""
        where = (
            Where("thread_id", "=", head.id),
            Where("turn", "=", run.turn),
            Where("parent_run_id", "is not null"),
        )
        return await self._backend.find(Find(Run, where, order=("sequence",)))

    async def lane_stitches(self, head: Thread, run: Run) -> list[Stitch]:
        """Return the stitches of a member's run and its context."""
        return await self._reading.lane_stitches(head, run.lane or run.id)

    async def hold_new(self, thread: Thread) -> Thread:
        """Return a new thread that this process holds from its first commit, without a claim.

        Not for threads that `create_if_required` has created.
        """
        return await self._leases.hold(thread)

    def request_release(self, head: Thread, fields: Fields | None = None) -> None:
        """Release a thread because its executor has ended, unless a commit of the executor has released it.

        `head` is the thread as it was claimed. Without fields the thread gets its state before the claim. Does not
        wait: a task of the store repeats the release until it succeeds.
        """
        self._leases.releases.end(head, fields)

    async def release(self, head: Thread, fields: Fields) -> None:
        """Call `request_release` and wait for the first attempt. Raises no error of the store."""
        self.request_release(head, fields)
        await self._leases.releases.wait_for_attempt(head)

    async def reconcile(self) -> None:
        """Release threads that this process holds and does not execute, if the last check is long ago."""
        await self._leases.releases.reconcile_if_due()

    def is_holder(self, head: Thread) -> bool:
        """True if this process is the worker that holds the thread, by its own knowledge. Needs no query."""
        return head.worker_id == self._leases.worker_id

    async def create_if_required(self, thread: Thread, message: Message) -> bool:
        """Create a new thread before its first commit, if that commit requires it. Return True if it does.

        References to media require that the thread exists. A thread that a limit covers must be claimed, because
        `hold_new` does not check limits.
        """
        if not has_large_media(message) and not await self._leases.limited([thread.agent]):
            return False
        await self._writer.commit(Transaction(new_threads=[thread]))
        return True

    async def context_stitches(self, head: Thread, *, until: int | None = None) -> list[Stitch]:
        """Return the stitches that the context is built from: since the last compaction, and those that it keeps."""
        return await self._reading.for_context(head, until) if head.position else []

    async def answer_text_at(self, head: Thread, position: int) -> str | None:
        """Return the text of the model's answer at a position, or None."""
        stitches = await self._reading.stitches(head, [(position, position)])
        return answer_of(stitches[0].message) if stitches else None

    async def run_log(self, head: Thread, run: Run) -> list[Stitch]:
        """Return all stitches of a run in the order of their positions."""
        return await self._reading.log(head, run)

    async def files_of(self, head: Thread, run: Run) -> list[Json]:
        """Return the files that a run created or changed, as JSON."""
        return (await self._reading.files(head, [run]))[run.id]

    def local_worker_died(self) -> bool:
        """True if a worker of this host has died since the last `reap`."""
        return self._leases.local_worker_died()

    async def forget_dead_workers(self, before: datetime) -> int:
        """Delete workers that died before then. Return the number of workers."""
        return await self._leases.forget_dead_workers(before)

    async def has_limit(self, agents: Sequence[str]) -> bool:
        """True if a limit covers one of these agents."""
        return await self._leases.limited(agents)

    async def seconds_until_ready(self, agents: Sequence[str], project: str | None) -> float | None:
        """Return the seconds until a thread of these agents may be ready, not above 0 if one may be now; None if none
        waits for a time."""
        return await self._backend.seconds_until_ready(agents, project)

    async def ready_hints(self) -> AsyncGenerator[None, None]:
        """Yield once at the start, and whenever threads may have become ready to be claimed."""
        async with aclosing(self._backend.watch(work_only=True)) as hints:
            async for hint in hints:
                # Threads may have become ready before the watch started, so its start is a hint too.
                if hint in (WATCHING, WORK_READY):
                    yield

    async def renew_lease(self) -> None:
        """Send a heartbeat, unless the heartbeat thread of this process has just sent one."""
        await self._leases.renew_if_due()

    async def ready_agents_except(self, known: Sequence[str], project: str | None) -> set[str]:
        """Return some agents that are not among these and have pending threads."""
        where = [Where("status", "=", "pending"), *(Where("agent", "!=", name) for name in known)]
        if project is not None:
            where.append(Where("project", "=", project))
        return {str(head.agent) for head in await self._backend.find(Find(Thread, where, limit=20)) if head.agent}

    async def ready_suspect(self, agents: Sequence[str], project: str | None) -> Thread | None:
        """Return the ready suspect of these agents that was lost most often."""
        where = [
            Where("status", "=", "pending"),
            Where("lost_by", "is not null"),
            Where("agent", "in", agents),
            Where("wake_at", "<=", self._clock.now()),
        ]
        if project is not None:
            where.append(Where("project", "=", project))
        threads = await self._backend.find(Find(Thread, where, order=("-losses",), limit=1))
        return threads[0] if threads else None

    async def worker(self, worker_id: UUID) -> Worker | None:
        """Return a worker by its id; None if it ended long ago and was deleted."""
        return await self._backend.get(Worker, (worker_id,))

    async def reported_children(self, head: Thread, children: Sequence[str]) -> set[str]:
        """Return those of these children that have reported to their parent, also if the parent has not read it yet."""
        if not head.delivered or not children:
            return set()
        where = (Where("thread_id", "=", head.id), Where("sender", "in", list(children)))
        return {delivery.sender for delivery in await self._backend.find(Find(Delivery, where))}

    async def tree_cost(self, head: Thread, *, but: UUID | None = None) -> float:
        """Return the cost in USD of all runs of the thread's tree, without the run `but`."""
        root = head
        while root.parent_id is not None:
            above = await self._backend.get(Thread, (root.parent_id,))
            if above is None:
                break
            root = above
        level, costs = [root.id], list[float]()
        while level:
            runs = await self._backend.find(Find(Run, (Where("thread_id", "in", level),)))
            costs += [run.total_cost for run in runs if run.total_cost is not None and run.id != but]
            children = await self._backend.find(Find(Thread, (Where("parent_id", "in", level),)))
            level = [child.id for child in children]
        return math.fsum(costs)

    async def put_texts(self, texts: Mapping[str, str], *, trusted: bool = False) -> None:
        """Write texts as blobs by their sha256. The append that first refers to them adds the references.

        `trusted` is explained in `Media.write_trusted`.
        """
        write = self._media.write_trusted if trusted else self._media.write
        await write({digest: (text, "text/plain") for digest, text in texts.items()})

    async def text(self, digest: str) -> str:
        """Return a stored text by its sha256. Raises `StoreDamaged` if it is missing."""
        return await self._reading.text(digest)

    async def deliver_all(self, head: Thread, deliveries: Sequence[Delivery]) -> list[Receipt]:
        """Write several deliveries to one thread, all of them or none. Return one receipt per delivery."""
        return await self._writer.deliver(Transaction(deliveries=list(deliveries), depths={head.id: head.depth}))

    async def delivery(self, delivery_id: UUID) -> Delivery | None:
        """Return a delivery by its id, also one that has become a stitch, or None."""
        deliveries = await self._backend.find(Find(Delivery, (Where("id", "=", delivery_id),), limit=1))
        return deliveries[0] if deliveries else None

    async def earlier_delivery(self, delivery: Delivery) -> Entry | Stitch | None:
        """Return the earlier delivery of the same sender for the same call: its entry, or the stitch that it became."""
        earlier = await self.delivery_from(delivery.thread_id, delivery.sender, delivery.call_id)
        return None if earlier is None else await self.content_of(earlier)

    async def delivery_from(self, thread_id: UUID, sender: str, call_id: str = "") -> Delivery | None:
        """Return the delivery of a sender for a call, also one that has become a stitch, or None."""
        same = {"thread_id": thread_id, "sender": sender, "call_id": call_id}
        where = [Where(name, "=", value) for name, value in same.items()]
        deliveries = await self._backend.find(Find(Delivery, where, limit=1))
        return deliveries[0] if deliveries else None

    async def content_of(self, delivery: Delivery) -> Entry | Stitch | None:
        """Return the entry of a delivery, or the stitch that it became; None if the stitch is not in the log."""
        if delivery.position is None:
            return delivery.as_entry()
        stitches = await self._backend.read(delivery.thread_id, [(delivery.position, delivery.position)])
        return stitches[0] if stitches else None
