"""Short builders for threads, changes and deliveries, and helpers that call a backend with them."""

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from lockstitch.backend import Commit, Find, FullBackend, Receipt, ThreadChange, ThreadEdit, Where
from lockstitch.model import (
    CHAIN_TYPES,
    SIDE_RECORDS,
    Delivery,
    Entry,
    Record,
    Run,
    Stitch,
    Thread,
    WebhookEvent,
    Worker,
    at_position,
    new_id,
)
from tests.samples import said

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

E = TypeVar("E", bound=Exception)

EVERY_KIND: tuple[type[Record], ...] = (Thread, Run, Stitch, Delivery, Worker, *SIDE_RECORDS)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_thread(**fields: Any) -> Thread:
    return Thread(**{"created_at": NOW, "updated_at": NOW, **fields})


def a_goal(**fields: Any) -> Thread:
    """Return a thread that is ready to be claimed."""
    return a_thread(**{"kind": "goal", "goal": "Find the answer", "wake_at": NOW, **fields})


def a_run(head: Thread, **fields: Any) -> Run:
    return Run(
        **{
            "thread_id": head.id,
            "sequence": head.last_sequence + 1,
            "turn": head.last_turn + 1,
            "first_position": head.position + 1,
            "started_at": NOW,
            **fields,
        }
    )


def a_worker(**fields: Any) -> Worker:
    return Worker(**{"started_at": NOW, "beat_at": NOW, **fields})


def note(text: str = "hi") -> Entry:
    """Return an entry that a delivery appends at once. A message (type `input`) waits in the inbox."""
    return Entry(type="note", message={"role": "user", "content": text})


def a_delivery(head: Thread, entry: Entry | None = None, *, sender: str = "ada", **fields: Any) -> Delivery:
    body = (entry or said(f"from {sender}")).changed(at=NOW).as_json()
    return Delivery(**{"thread_id": head.id, "sender": sender, "kind": "input", "entry": body, "at": NOW, **fields})


def a_webhook_event(head: Thread, **fields: Any) -> WebhookEvent:
    values = {"thread_id": head.id, "hook": "pager", "event": "failed", "body": {"why": "x"}, "due_at": NOW, "at": NOW}
    return WebhookEvent(**{**values, **fields})


def stitched(head: Thread, *entries: Entry) -> list[Stitch]:
    """Return entries as stitches at the positions after those of the head."""
    tip, stitches = head.tip_id, list[Stitch]()
    for number, entry in enumerate(entries, 1):
        stitches.append(at_position(entry, head.id, head.position + number, tip, head.fence, NOW))
        tip = entry.id if entry.type in CHAIN_TYPES else tip
    return stitches


def change(head: Thread, /, *entries: Entry, **more: Any) -> ThreadChange:
    """Return a change that fits the thread as it was seen, unless `more` overrides it."""
    compared = {"fence": head.fence, "position": head.position, "worker_id": head.worker_id}
    return ThreadChange(head.id, **{**compared, "stitches": stitched(head, *entries), **more})


async def commit(
    backend: FullBackend,
    *steps: ThreadChange | Delivery | ThreadEdit,
    threads: Sequence[Thread] = (),
    webhook_events: Sequence[WebhookEvent] = (),
) -> list[Receipt]:
    return await backend.append(Commit(steps, threads, webhook_events))


async def created(backend: FullBackend, thread: Thread | None = None, **fields: Any) -> Thread:
    thread = thread or a_thread(**fields)
    await commit(backend, threads=[thread])
    return thread


async def head_of(backend: FullBackend, thread: Thread) -> Thread:
    head = await backend.get(Thread, (thread.id,))
    assert head is not None
    return head


async def grown(backend: FullBackend, thread: Thread, /, *entries: Entry, **more: Any) -> Thread:
    """Return the head after a change with these entries."""
    await commit(backend, change(thread, *entries, **more))
    return await head_of(backend, thread)


async def registered(backend: FullBackend, **fields: Any) -> Worker:
    worker = a_worker(**fields)
    assert await backend.heartbeat(worker)
    return worker


async def held(backend: FullBackend, thread: Thread, worker: Worker | None = None) -> Thread:
    """Return the head of a thread that a worker has just claimed."""
    worker = worker or await registered(backend)
    claimed = await backend.claim(worker.id, thread_id=thread.id)
    assert [head.id for head in claimed] == [thread.id]
    return claimed[0]


async def deliveries_of(backend: FullBackend, thread: Thread) -> list[Delivery]:
    return await backend.find(Find(Delivery, (Where("thread_id", "=", thread.id),), order=("id",)))


async def log_of(backend: FullBackend, thread: Thread) -> list[Stitch]:
    return await backend.read(thread.id, [(1, None)])


async def everything(backend: FullBackend) -> dict[str, list[dict[str, Any]]]:
    """Return all records of a store. If they are equal before and after, nothing was written."""
    return {
        kind.table: [record.as_json() for record in await backend.find(Find(kind, order=kind.primary_key))]
        for kind in EVERY_KIND
    }


async def refused(error: type[E], act: Awaitable[object], message: str) -> E:
    """Return the error that `act` raises. The test fails if it raises none."""
    try:
        outcome = await act
    except error as exc:
        return exc
    pytest.fail(f"{message} was taken: {outcome}")


def an_unknown_thread() -> Thread:
    return a_thread(id=new_id())
