"""`Transaction`: everything that one commit writes. `plan_commit` turns it into the `Commit` that a backend executes.

A transaction contains the changes that the caller requests, relative to the heads of threads as the caller read them.
It may be rejected. In a commit all values are final: entries have positions, runs have numbers, and steps are in the
order in which the backend locks rows. The functions here are pure. They read nothing, and they change neither the
transaction nor its parts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit, Condition, Fields, Find, RecordChange, ThreadChange
from lockstitch.errors import Refused, ThreadEnded, ThreadHeld
from lockstitch.model import TERMINAL_STATUSES, Delivery, Entry, Record, Run, Stitch, Thread, WebhookEvent, at_position
from lockstitch.model.context import replaces_context
from lockstitch.model.figures import FIGURES, error_text, figures_after
from lockstitch.model.record import Json, new_dict, new_list
from lockstitch.model.stitch import TAKEN_OVER
from lockstitch.model.wait import awaiting_person_since, parse_waits

_DERIVED = frozenset(
    {"id", "position", "tip_id", "fence", "delivered", "pending_children", "created_at", "awaiting_person_since"}
    | {"crashes", "losses", "lost_by", "alone"}
    | set(FIGURES)
)
_CLEARED: Fields = {"crashes": 0, "losses": 0, "lost_by": None, "alone": False}
"""The fields of a thread that is no longer a suspect, because it makes progress."""
_FIXED = frozenset({"key", "project", "kind", "parent_id", "depth"})
RESTING_STATUSES = frozenset({"pending", "waiting"}) | TERMINAL_STATUSES
"""Statuses of a thread that no worker holds."""


@dataclass(slots=True)
class ThreadUpdate:
    """The part of a transaction that changes one thread. Its entries and fields are valid for `head` only."""

    head: Thread
    """The thread as the caller read it. If it has changed since then, the commit raises `Conflict`."""
    entries: list[Entry] = field(default_factory=new_list)
    """Entries to append. The stitches of `consumed` come before them."""
    fields: Fields = field(default_factory=new_dict)
    """Changed fields of the head."""
    new_runs: list[Run] = field(default_factory=new_list)
    """Runs to create. `plan_commit` sets their `sequence` and `turn`."""
    run_updates: list[tuple[Run, Fields]] = field(default_factory=new_list)
    """Runs as the caller read them, each with its changed fields."""
    consumed: list[Delivery] = field(default_factory=new_list)
    """Deliveries of the inbox that become stitches."""
    blob_refs: list[str] = field(default_factory=new_list)
    """Hashes of the blobs that the thread refers to from now on."""
    sum_runs: bool = False
    """True: the store sets the tokens, the cost and the steps of `new_runs` and `run_updates` from their stitches."""
    moved_key: Fields = field(default_factory=new_dict)
    """The new `key` of the thread, if `Transaction.move_key` changes it; else empty."""


@dataclass(slots=True)
class Transaction:
    """Everything that one commit writes: all of it or nothing. It may have no updates."""

    updates: list[ThreadUpdate] = field(default_factory=new_list)
    """Changes of threads that the caller has read, at most one per thread."""
    deliveries: list[Delivery] = field(default_factory=new_list)
    """Deliveries to threads that another worker may hold."""
    new_threads: list[Thread] = field(default_factory=new_list)
    """Threads to create. The depth of an updated thread's child is set by `plan_commit`."""
    delete_threads: list[UUID | Thread] = field(default_factory=new_list)
    """Threads to delete, with their descendants and all of their records. No worker may hold them. If a `Thread` has
    changed since the caller read it, the commit raises `Conflict`."""
    webhook_events: list[WebhookEvent] = field(default_factory=new_list)
    """Events to send to webhooks after the commit."""
    records: list[Record] = field(default_factory=new_list)
    """Records of an application. A record replaces the stored record that has the same key."""
    new_records: list[Record] = field(default_factory=new_list)
    """Records of an application that must not exist: if a key is in use, the commit raises `Conflict`."""
    default_records: list[Record] = field(default_factory=new_list)
    """Records of an application that are written unless a record with the same key exists."""
    delete_records: list[Find[Any]] = field(default_factory=new_list)
    """Selections of records of an application to delete, before the other records are written. See `delete`."""
    changed_records: list[RecordChange] = field(default_factory=new_list)
    """Changes of single fields of stored records. See `change`."""
    depths: dict[UUID, int] = field(default_factory=new_dict)
    """Depths of threads that receive deliveries, for the lock order. `Store.commit` reads the depths that are missing.
    The depths of updated threads and of their parents are known without it."""

    def update(self, head: Thread) -> ThreadUpdate:
        """Return the update of a thread. The first call for a thread adds it.

        Args:
            head: Thread as the caller read it.
        """
        for update in self.updates:
            if update.head is head or update.head.id == head.id:
                return update
        update = ThreadUpdate(head)
        self.updates.append(update)
        return update

    def delete(self, kind: type[Record], *where: Condition) -> None:
        """Delete the records of an application that meet all conditions.

        Args:
            kind: Class of the records.
            where: Conditions on fields of the records. Without conditions, all records of the class are deleted.
        """
        self.delete_records.append(Find(kind, where))

    def change(self, record: Record, fields: Fields, *, seen: Sequence[str] = ()) -> None:
        """Change fields of a stored record. Its other fields keep the values that they have in the store.

        If the record was deleted, or one of the fields in `seen` has changed since, the commit raises `Conflict`.

        Args:
            record: Record as the caller read it.
            fields: Changed fields.
            seen: Names of the fields to compare.
        """
        key = [getattr(record, name) for name in record.primary_key]
        values = {name: getattr(record, name) for name in seen}
        self.changed_records.append(RecordChange(type(record), key, values, record.validate_fields(fields)))

    def move_key(self, head: Thread, new_thread: Thread) -> None:
        """Give the key of a thread to a thread of `new_threads`, which has none yet.

        Args:
            head: Thread as the caller read it.
            new_thread: Thread that gets the key.
        """
        self.update(head).moved_key = {"key": None}
        self.update(new_thread).moved_key = {"key": head.key}

    @property
    def only_updates(self) -> bool:
        """True if it has nothing but updates."""
        records = self.records or self.new_records or self.default_records or self.delete_records
        others = self.deliveries or self.new_threads or self.delete_threads or self.webhook_events
        return not (others or records or self.changed_records)

    def known_depths(self) -> dict[UUID, int]:
        """Return the depths of the updated threads, of their parents, and those in `depths`."""
        depths = dict(self.depths)
        for update in self.updates:
            head = update.head
            depths[head.id] = head.depth
            if head.parent_id is not None:
                depths[head.parent_id] = head.depth - 1
        return depths


def plan_commit(transaction: Transaction, worker_id: UUID | None, now: datetime) -> Commit:
    """Return the commit that writes a transaction for a worker.

    The steps are ordered for locking: descendants before ancestors, then by thread id. Every writer uses this order, so
    two commits never wait for each other. Deliveries to one thread keep their order.

    Raises `ThreadBusy`, `ThreadEnded` or `Refused` if the rules of a thread forbid an update.
    """
    updates = transaction.updates
    if len(updates) == 1 and transaction.only_updates:
        return Commit((_plan_update(updates[0], 0, worker_id, now),))
    if any(issubclass(find.kind, Thread | Run | Stitch) for find in transaction.delete_records):
        raise Refused("`delete_records` cannot delete threads, runs or stitches. Nothing was written.")
    if any(issubclass(change.kind, Thread | Run | Stitch) for change in transaction.changed_records):
        raise Refused("`change` cannot change threads, runs or stitches. Nothing was written.")
    heads = {update.head.id: update.head for update in updates}
    if len(heads) < len(updates):
        raise Refused("A transaction has at most one update per thread. Nothing was written.")
    new_threads = [_with_depth(thread, heads) for thread in transaction.new_threads]
    new_children = Counter(thread.parent_id for thread in new_threads)
    depths = transaction.known_depths()
    steps: list[ThreadChange | Delivery]
    steps = [_plan_update(update, new_children[update.head.id], worker_id, now) for update in updates]
    steps += transaction.deliveries
    # No other writer can lock a new thread, so its steps may come last. `move_key` needs it: the key must be free.
    new_ids = {thread.id for thread in new_threads}
    steps.sort(key=lambda step: (step.thread_id in new_ids, -depths[step.thread_id], step.thread_id))
    new_threads.sort(key=lambda thread: thread.depth)
    return Commit(
        steps,
        new_threads,
        webhook_events=transaction.webhook_events,
        records=transaction.records,
        new_records=transaction.new_records,
        default_records=transaction.default_records,
        deleted_records=transaction.delete_records,
        changed_records=transaction.changed_records,
        deleted_threads=[ref for ref in transaction.delete_threads if isinstance(ref, UUID)],
        superseded=_unchanged([ref for ref in transaction.delete_threads if isinstance(ref, Thread)]),
    )


def _unchanged(heads: Sequence[Thread]) -> Sequence[ThreadChange]:
    """Return the comparisons of threads to delete. No worker may hold them, so the holder is not one of the values."""
    ordered = sorted(heads, key=lambda head: (-head.depth, head.id))
    return [ThreadChange(head.id, head.fence, head.position) for head in ordered]


def head_after(update: ThreadUpdate, change: ThreadChange) -> Thread:
    """Return the head of a thread after its change is committed."""
    values = update.head.__dict__ | change.head
    values["position"] += len(change.stitches)
    values["pending_children"] += change.new_children
    tip_id = change.tip_id
    if tip_id is not None:
        values["tip_id"] = tip_id
    return Thread.unchecked(values)


def _with_depth(thread: Thread, heads: dict[UUID, Thread]) -> Thread:
    """Return a new thread with its depth set from its parent. The lock order needs exact depths."""
    parent = heads.get(thread.parent_id) if thread.parent_id is not None else None
    return thread if parent is None else thread.changed(depth=parent.depth + 1)


def _plan_update(update: ThreadUpdate, new_children: int, worker_id: UUID | None, now: datetime) -> ThreadChange:
    """Position the entries, number the runs, and derive the other fields of the head."""
    head = update.head
    require_holder(head, worker_id)
    set_fields = validate_head_fields(update)
    new_runs = numbered_runs(update) if update.new_runs else update.new_runs
    runs = [(run.id, run.validate_fields(changed)) for run, changed in update.run_updates]
    entries = update.entries
    if update.consumed:
        # The deliveries arrived before their reader wrote its entries.
        entries = [*(delivery.as_entry() for delivery in update.consumed), *entries]
    stitches = position_entries(head, entries, now)
    fields = derived_head_fields(update, new_runs, stitches)
    fields |= set_fields
    fields |= update.moved_key
    fields["updated_at"] = now
    if head.suspect and _progresses(update, fields):
        fields |= _CLEARED
    status = fields.get("status", head.status)
    if "status" in set_fields or "waiting_for" in set_fields:
        since = _awaiting_person_since(head, status, fields)
        if since != head.awaiting_person_since:
            fields["awaiting_person_since"] = since
    goes_to_rest = False
    if "status" in fields:
        if status != "running" and head.worker_id is not None:
            fields["worker_id"] = None
            if head.alone:
                fields["alone"] = False
        if status == "pending":
            fields.setdefault("wake_at", now)
        goes_to_rest = status in RESTING_STATUSES and status != "pending"
    if status in TERMINAL_STATUSES and head.worker_id is None and not stitches:
        # No compared value changes otherwise, so a writer that read the open thread could still write to it.
        fields["fence"] = head.fence + 1
    consumed: list[tuple[UUID, int]] = []
    if update.consumed:
        consumed = [(delivery.id, stitch.position) for delivery, stitch in zip(update.consumed, stitches, strict=False)]
    return ThreadChange(
        thread_id=head.id,
        fence=head.fence,
        position=head.position,
        worker_id=head.worker_id,
        delivered=head.delivered if goes_to_rest else None,
        stitches=stitches,
        head=fields,
        new_runs=new_runs,
        runs=runs,
        consumed=consumed,
        new_children=new_children,
        blob_refs=update.blob_refs,
    )


def _awaiting_person_since(head: Thread, status: str, fields: Fields) -> datetime | None:
    """Return the time since which a thread waits for a person after a change."""
    if status != "waiting":
        return None
    return awaiting_person_since(parse_waits(fields["waiting_for"]) if "waiting_for" in fields else head.waits)


def _progresses(update: ThreadUpdate, fields: Fields) -> bool:
    """True if the holder writes a new entry. Deliveries and the entry about a takeover are no progress.

    For a poisonous thread, only the end of the thread or of a turn is progress. Runs of members end earlier, in
    separate commits.
    """
    if update.head.worker_id is None or all(entry.type == TAKEN_OVER for entry in update.entries):
        return False
    return not update.head.poisonous or "total_runs" in fields or fields.get("status") in TERMINAL_STATUSES


def numbered_runs(update: ThreadUpdate) -> list[Run]:
    """Return the new runs with the next numbers of the thread. The numbers that the caller set are ignored."""
    turn = update.head.last_turn
    runs: list[Run] = []
    for sequence, run in enumerate(update.new_runs, start=update.head.last_sequence + 1):
        turn += run.parent_run_id is None
        runs.append(run.changed(sequence=sequence, turn=turn))
    return runs


def position_entries(head: Thread, entries: Sequence[Entry], now: datetime) -> list[Stitch]:
    """Return the entries as stitches at the next positions of the thread."""
    stitches: list[Stitch] = []
    tip_id = head.tip_id
    for position, entry in enumerate(entries, start=head.position + 1):
        stitch = _placed(entry, head, position, tip_id)
        if stitch is None:
            stitch = at_position(entry, head.id, position, tip_id, head.fence, now)
        if stitch.in_chain:
            tip_id = stitch.id
        stitches.append(stitch)
    return stitches


def _placed(entry: Entry, head: Thread, position: int, tip_id: UUID | None) -> Stitch | None:
    """Return the entry if it is already the stitch at this position, as the session of a held thread buffers it."""
    if not isinstance(entry, Stitch) or entry.position != position or entry.thread_id is not head.id:
        return None
    if entry.fence != head.fence or entry.at is None or entry.log_id is not None:
        return None
    return entry if entry.previous_id is (tip_id if entry.in_chain else None) else None


def derived_head_fields(update: ThreadUpdate, new_runs: Sequence[Run], stitches: Sequence[Stitch]) -> Fields:
    """Return the position where the context starts, and the counters and figures of runs, as far as they change."""
    head = update.head
    fields: Fields = {}
    for stitch in stitches:
        if stitch.lane is None and replaces_context(stitch):
            fields["context_from"] = stitch.position
    finished = 0
    if new_runs:
        fields["last_sequence"] = max(run.sequence for run in new_runs)
        fields["last_turn"] = max(head.last_turn, *(run.turn for run in new_runs))
        fields["last_run_at"] = max(run.started_at for run in new_runs)
        finished += sum(run.parent_run_id is None and run.status in TERMINAL_STATUSES for run in new_runs)
    for run, changed in update.run_updates:
        if (
            changed.get("status") in TERMINAL_STATUSES
            and run.status not in TERMINAL_STATUSES
            and run.parent_run_id is None
        ):
            finished += 1
    if finished:
        fields["total_runs"] = head.total_runs + finished
    ended: list[tuple[Run | None, Run]] = [(None, run) for run in new_runs if not run.open]
    for run, changed in update.run_updates:
        if "status" in changed or not run.open:
            ended.append((run, run.changed(**changed)))
    if ended:
        fields |= figures_after(head, ended, fields)
    elif update.fields.get("status") == "failed" and head.status != "failed":
        # A goal can fail before its first run, for example after crashes.
        result: Json = update.fields.get("result") or {}
        fields["last_error"] = error_text(result.get("error"))
    return fields


def require_holder(head: Thread, worker_id: UUID | None) -> None:
    """Raise `ThreadHeld` if another worker holds the thread."""
    if head.worker_id is not None and head.worker_id != worker_id:
        raise ThreadHeld(
            f"Only worker {head.worker_id}, which holds thread {head.id}, can append to it. Use deliver().",
            thread_id=head.id,
        )


def validate_head_fields(update: ThreadUpdate) -> Fields:
    """Return the changed fields of the head as the row stores them. Raises `Refused` if one is not valid."""
    head, fields = update.head, update.fields
    if not fields and not head.ended:
        return fields
    wrong = fields.keys() & (_DERIVED | _FIXED)
    if wrong:
        raise Refused(f"{', '.join(sorted(wrong))} cannot be set. Nothing was written.")
    unknown = fields.keys() - Thread.model_fields.keys()
    if unknown:
        raise Refused(f"Unknown fields of a thread: {', '.join(sorted(unknown))}. Nothing was written.")
    status = fields.get("status")
    if head.kind == "chat" and status == "completed":
        raise Refused("A chat cannot be completed. Between turns it waits for input. Nothing was written.")
    only_key_moves = bool(update.moved_key) and not fields and not update.entries
    if head.ended and not only_key_moves and not (status == "pending" and head.status != "completed"):
        raise ThreadEnded(
            f"Thread {head.id} is {head.status}. Use retry() to reopen a failed or cancelled thread.",
            thread_id=head.id,
        )
    if status == "running" and head.worker_id is None:
        raise Refused(
            "Only claim() makes a thread running, because no worker takes a running one. Nothing was written."
        )
    return head.validate_fields(fields)
