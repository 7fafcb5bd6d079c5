"""Leases and fences on files: claim, heartbeat and release.

A worker's document contains its last heartbeat and the length of its lease. A thread's head contains its holder and the
fence. Claim and release raise the fence, and every change compares it. So a worker that lost a thread without noticing
cannot write to it. All processes run on one host, so its monotonic clock decides about leases.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from lockstitch.backends.files import append, disk, format, tables
from lockstitch.backends.files.transaction import Folder, Transaction
from lockstitch.model import Json, Limit, Thread, Worker, format_time
from lockstitch.model.worker import (
    ClaimRequest,
    EndCause,
    HostClock,
    expired_on_host,
    free_slots,
    in_fair_order,
    most_suspect,
)

_ANY_TIME = "9999"
"""A text that is greater than every stored time."""


class Moment(NamedTuple):
    """Time of a claim or a release: on the wall clock, and on the clock that decides about leases."""

    now: datetime
    here: HostClock


def claim_thread(
    transaction: Transaction, claim_request: ClaimRequest, thread_id: UUID, moment: Moment
) -> list[Thread]:
    """Claim this thread, ready or not, if no live worker holds it and it has not ended."""
    head = tables.head(transaction, thread_id)
    if head is None or head.ended or not _alive(transaction, claim_request.worker_id):
        return []
    if head.worker_id is not None and _holds(transaction, head.worker_id, moment):
        return []
    limits = _stored(transaction, claim_request)
    if limits and free_slots(limits, _held(transaction, thread_id)).get(head.agent or "", 1) <= 0:
        return []
    if head.worker_id is not None:
        crashed = len(_held_by(transaction, head.worker_id)) == 1
        return [_take(transaction, head.changed(**_lost(head, crashed)), claim_request.worker_id, moment.now)]
    return [_take(transaction, head, claim_request.worker_id, moment.now)]


def claim(transaction: Transaction, claim_request: ClaimRequest, moment: Moment) -> list[Thread]:
    """Claim ready threads in fair order, or the first suspect."""
    now = moment.now
    if not _alive(transaction, claim_request.worker_id):
        return []
    ready = _heads(transaction, lambda values: append.is_ready(values, format_time(now)))
    limits = _stored(transaction, claim_request)
    if limits:
        agents = [head.agent or "" for head in ready]
        claim_request = claim_request._replace(limits=limits).limited_to(_held(transaction), agents)
    ready = [
        head
        for head in ready
        if (claim_request.agents is None or (head.agent or "") in claim_request.agents)
        and (claim_request.project is None or head.project == claim_request.project)
    ]
    if claim_request.suspects:
        first = most_suspect(ready)[:1]
        return [_take(transaction, head, claim_request.worker_id, now, alone=claim_request.alone) for head in first]
    if claim_request.suspects is not None:
        ready = [head for head in ready if not head.suspect]
    return [
        _take(transaction, head, claim_request.worker_id, now)
        for head in in_fair_order(ready, claim_request.after)[: claim_request.limit]
    ]


def seconds_until_ready(folder: Folder, agents: Sequence[str], project: str | None, now: datetime) -> float | None:
    """Return the seconds until the first thread of these agents is ready; None if none waits for a time."""
    wanted = set(agents)
    heads = _heads(
        folder,
        lambda values: (
            append.is_ready(values, _ANY_TIME)
            and values["agent"] in wanted
            and (project is None or values["project"] == project)
        ),
    )
    first = min((head.wake_at for head in heads if head.wake_at is not None), default=None)
    return None if first is None else (first - now).total_seconds()


def heartbeat(transaction: Transaction, worker: Worker, now: datetime) -> bool:
    """Register a worker, or renew its lease. Return False if it was declared dead."""
    known = tables.load(transaction, Worker, disk.record(Worker, (worker.id,)))
    if known is not None and known.dead:
        return False
    alive = worker.changed(dead=False) if known is None else known.changed(doing=worker.doing, uptime=worker.uptime)
    _write(transaction, alive.changed(beat_at=now))
    return True


def release(
    transaction: Transaction, worker_id: UUID, expired_only: bool, cause: EndCause, moment: Moment
) -> list[UUID]:
    """Declare a worker dead and release its threads. `wake_at` is unchanged, and with it the place in the queue."""
    now = moment.now
    worker = tables.load(transaction, Worker, disk.record(Worker, (worker_id,)))
    if worker is None or (expired_only and not worker.dead and not expired_on_host(worker, *moment)):
        return []
    if not worker.dead:
        _write(transaction, worker.changed(dead=True, end_cause=cause))
    held = _held_by(transaction, worker_id)
    for head in held:
        fields = {"worker_id": None, "fence": head.fence + 1, "updated_at": now, "wake_at": head.wake_at or now}
        fields |= {"alone": False}
        if cause != "stopped":
            fields |= _lost(head, cause in ("died", "expired") and len(held) == 1)
        append.write_head(transaction, head, head.changed(**fields, status=head.status if head.ended else "pending"))
    return [head.id for head in sorted(held, key=lambda head: (-head.depth, head.id))]


def _lost(head: Thread, crashed: bool) -> Json:
    """Return the changed fields of a lost thread. `crashed` is True if its worker held only this thread and crashed."""
    crashes = head.crashes + (crashed and head.alone)
    return {"lost_by": head.worker_id, "losses": head.losses + 1, "alone": False, "crashes": crashes}


def _held_by(folder: Folder, worker_id: UUID) -> list[Thread]:
    return _heads(folder, lambda values: values["worker_id"] == str(worker_id))


def _take(transaction: Transaction, head: Thread, worker_id: UUID, now: datetime, *, alone: bool = False) -> Thread:
    thread = head.changed(status="running", worker_id=worker_id, fence=head.fence + 1, alone=alone, updated_at=now)
    append.write_head(transaction, head, thread)
    return thread


def _heads(folder: Folder, fits: Callable[[Json], bool]) -> list[Thread]:
    """Return the heads with matching documents. Many documents are read and few match, so only these become records."""
    paths = (f"{disk.HEADS}/{name}" for name in folder.names(disk.HEADS))
    documents = (folder.document(path) for path in paths)
    return [format.decode_record(Thread, values) for values in documents if values is not None and fits(values)]


def _stored(folder: Folder, claim_request: ClaimRequest) -> list[Limit]:
    """Return the limits as stored. The folder is locked, so no other process claims now."""
    limits = (tables.load(folder, Limit, disk.record(Limit, (limit.name,))) for limit in claim_request.limits)
    return [limit for limit in limits if limit is not None]


def _held(folder: Folder, but: UUID | None = None) -> Counter[str]:
    """Return the number of held threads of each agent, without the thread `but`."""
    held = _heads(folder, lambda values: values["worker_id"] is not None and values["id"] != str(but))
    return Counter(head.agent or "" for head in held)


def _alive(folder: Folder, worker_id: UUID) -> bool:
    worker = tables.load(folder, Worker, disk.record(Worker, (worker_id,)))
    return worker is not None and not worker.dead


def _holds(folder: Folder, worker_id: UUID, moment: Moment) -> bool:
    """True if a worker is alive and its lease has not expired."""
    worker = tables.load(folder, Worker, disk.record(Worker, (worker_id,)))
    return worker is not None and not worker.dead and not expired_on_host(worker, *moment)


def _write(transaction: Transaction, worker: Worker) -> None:
    transaction.put(disk.record(Worker, (worker.id,)), format.encode_record(worker))
