"""A draft: what somebody wants to append to a thread, before it has its place in the log."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from lockstitch.backend import Fields, ThreadChange
from lockstitch.errors import Refused, ThreadEnded, ThreadHeld
from lockstitch.model import TERMINAL_STATUSES, Delivery, Entry, Run, Stitch, Thread, at_position
from lockstitch.model.context import replaces_context
from lockstitch.model.stitch import TAKEN_OVER
from lockstitch.model.wait import awaiting_person_since, parse_waits

_DERIVED = frozenset(
    {"id", "position", "tip_id", "fence", "delivered", "pending_children", "created_at", "asks_since"}
    | {"crashes", "losses", "lost_by", "alone"}
)
_CLEARED: Fields = {"crashes": 0, "losses": 0, "lost_by": None, "alone": False}
"""A thread that makes progress is no longer a suspect."""
_FIXED = frozenset({"key", "project", "kind", "parent_id", "depth"})
RESTING_STATUSES = frozenset({"pending", "waiting"}) | TERMINAL_STATUSES


class ThreadUpdate(NamedTuple):
    """Entries, changed fields of the head, new runs and changed runs, against the head as it was seen."""

    head: Thread
    entries: Sequence[Entry] = ()
    fields: Fields = {}
    new_runs: Sequence[Run] = ()
    run_updates: Sequence[tuple[Run, Fields]] = ()
    consumed: Sequence[Delivery] = ()
    new_children: int = 0
    blob_refs: Sequence[str] = ()

    @property
    def all_entries(self) -> list[Entry]:
        """Letters taken out of the inbox come first: they happened before what their reader does next."""
        return [*(letter.as_entry() for letter in self.consumed), *self.entries]


class Placed(NamedTuple):
    """A draft as a change, and the head it leaves if nobody was first."""

    change: ThreadChange
    head: Thread
    stitches: Sequence[Stitch]


def plan_commit(draft: ThreadUpdate, worker_id: UUID | None, now: datetime) -> Placed:
    """Give every entry its place and derive the head's other fields. Refuses what the rules of a thread forbid."""
    head = draft.head
    require_holder(head, worker_id)
    draft = draft._replace(new_runs=numbered_runs(draft)) if draft.new_runs else draft
    given = validate_head_fields(draft)
    runs = [(run.id, run.validate_fields(changed)) for run, changed in draft.run_updates]
    stitches, tip_id = position_entries(head, draft.all_entries if draft.consumed else draft.entries, now)
    fields: Fields = {**derived_head_fields(draft, stitches), **given, "updated_at": now}
    if head.suspect and _progresses(draft, fields):
        fields |= _CLEARED
    status = fields.get("status", head.status)
    asks = None
    if status == "waiting":
        asks = awaiting_person_since(parse_waits(fields["waiting_for"]) if "waiting_for" in fields else head.waits)
    if asks != head.asks_since and ("status" in given or "waiting_for" in given):
        fields["asks_since"] = asks
    if status != "running" and head.worker_id is not None and "status" in fields:
        fields["worker_id"] = None
        if head.alone:
            fields["alone"] = False
    if status == "pending" and "status" in fields:
        fields.setdefault("wake_at", now)
    if status in TERMINAL_STATUSES and head.worker_id is None and not stitches:
        # Nothing else that is compared would change, and who saw it open could still write to it.
        fields["fence"] = head.fence + 1
    goes_to_rest = "status" in fields and status in RESTING_STATUSES and status != "pending"
    taken = [(letter.id, stitch.position) for letter, stitch in zip(draft.consumed, stitches, strict=False)]
    change = ThreadChange(
        thread_id=head.id,
        fence=head.fence,
        position=head.position,
        worker_id=head.worker_id,
        delivered=head.delivered if goes_to_rest else None,
        stitches=stitches,
        head=fields,
        new_runs=draft.new_runs,
        runs=runs,
        consumed=taken,
        new_children=draft.new_children,
        blob_refs=draft.blob_refs,
    )
    after = head.changed(
        **fields,
        position=head.position + len(stitches),
        tip_id=tip_id,
        pending_children=head.pending_children + draft.new_children,
    )
    return Placed(change, after, stitches)


def _progresses(draft: ThreadUpdate, fields: Fields) -> bool:
    """True if the holder writes something new. Deliveries and the note of a takeover are no progress.

    A poisonous thread makes none before it ends, or its turn: runs of members end first, in separate commits.
    """
    if draft.head.worker_id is None or all(entry.type == TAKEN_OVER for entry in draft.entries):
        return False
    return not draft.head.poisonous or "total_runs" in fields or fields.get("status") in TERMINAL_STATUSES


def numbered_runs(draft: ThreadUpdate) -> list[Run]:
    """New runs with the numbers that come next, whatever their makers thought: numbers are the store's own."""
    turn = draft.head.last_turn
    runs: list[Run] = []
    for sequence, run in enumerate(draft.new_runs, start=draft.head.last_sequence + 1):
        turn += run.parent_run_id is None
        runs.append(run.changed(sequence=sequence, turn=turn))
    return runs


def position_entries(head: Thread, entries: Sequence[Entry], now: datetime) -> tuple[list[Stitch], UUID | None]:
    """The entries in their places, and the tip that they leave."""
    stitches: list[Stitch] = []
    tip = head.tip_id
    for number, entry in enumerate(entries, start=1):
        stitch = at_position(entry, head.id, head.position + number, tip, head.fence, now)
        if stitch.in_chain:
            tip = stitch.id
        stitches.append(stitch)
    return stitches, tip


def derived_head_fields(draft: ThreadUpdate, stitches: Sequence[Stitch]) -> Fields:
    """What follows from the draft: where the context begins, and the counters of runs."""
    head = draft.head
    fields: Fields = {}
    for stitch in stitches:
        if stitch.lane is None and replaces_context(stitch):
            fields["context_from"] = stitch.position
    finished = 0
    if draft.new_runs:
        fields["last_sequence"] = max(run.sequence for run in draft.new_runs)
        fields["last_turn"] = max(head.last_turn, *(run.turn for run in draft.new_runs))
        fields["last_run_at"] = max(run.started_at for run in draft.new_runs)
        finished += sum(run.parent_run_id is None and run.status in TERMINAL_STATUSES for run in draft.new_runs)
    for run, changed in draft.run_updates:
        if (
            changed.get("status") in TERMINAL_STATUSES
            and run.status not in TERMINAL_STATUSES
            and run.parent_run_id is None
        ):
            finished += 1
    if finished:
        fields["total_runs"] = head.total_runs + finished
    return fields


def require_holder(head: Thread, worker_id: UUID | None) -> None:
    if head.worker_id is not None and head.worker_id != worker_id:
        raise ThreadHeld(
            f"Only worker {head.worker_id}, which holds thread {head.id}, can append to it. Use deliver().",
            thread_id=head.id,
        )


def validate_head_fields(draft: ThreadUpdate) -> Fields:
    """The fields as they go into the row, checked as those of a new thread would be."""
    head, fields = draft.head, draft.fields
    if not fields and not head.ended:
        return fields
    wrong = fields.keys() & (_DERIVED | _FIXED)
    if wrong:
        raise Refused(f"{', '.join(sorted(wrong))} cannot be set; nothing was written.")
    unknown = fields.keys() - Thread.model_fields.keys()
    if unknown:
        raise Refused(f"A thread has no {', '.join(sorted(unknown))}; nothing was written.")
    status = fields.get("status")
    if head.kind == "chat" and status == "completed":
        raise Refused("A chat is never completed: between turns it waits for input. Nothing was written.")
    if head.ended and not (status == "pending" and head.status != "completed"):
        raise ThreadEnded(
            f"Thread {head.id} is {head.status}. Use retry() to reopen a failed or cancelled thread.",
            thread_id=head.id,
        )
    return head.validate_fields(fields)
