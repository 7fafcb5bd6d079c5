"""A letter: what somebody who does not hold a thread has for it, and what its arrival changes."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, NamedTuple
from uuid import UUID

from pydantic import Field

from lockstitch.records.ids import new_id
from lockstitch.records.record import Json, Record, Text, Time
from lockstitch.records.stitch import CHAIN, Entry, Stitch, place
from lockstitch.records.thread import Thread

_ANSWERS: Final = ("tool_call", "permission")
"""Entries that answer a call, or agree to it."""


class Letter(Record):
    """One delivery, unique per thread, sender and call.

    Where nobody holds the thread its entry is appended at once and `position` says where. Otherwise, and for a
    message to a chat with an open run, it lies in the inbox with its `entry` until a holder takes it into the log. The
    row stays, without the entry, so that a second delivery of the same is recognised.
    """

    table: ClassVar[str] = "inbox"

    id: UUID = Field(default_factory=new_id)
    thread_id: UUID
    sender: Annotated[Text, Field(min_length=1, max_length=255)]
    call_id: Annotated[Text, Field(max_length=255)] = ""
    kind: Annotated[Text, Field(max_length=50)]
    entry: Json | None = None
    position: int | None = None
    at: Time

    def opened(self) -> Entry:
        """The entry that an inbox row carries."""
        return Entry.from_json(self.entry or {})


class Arrival(NamedTuple):
    """What a letter's arrival does: the letter as it is kept, changed fields of the head, the stitch if any."""

    letter: Letter | None
    head: dict[str, Any]
    stitch: Stitch | None


def in_line(head: Thread, letter: Letter) -> bool:
    """Whether a letter is a message that comes in line if a run of its thread is open, although nobody holds it."""
    return head.kind == "chat" and not head.ended and not head.held and letter.opened().type == "input"


def receive(head: Thread, letter: Letter, now: datetime, *, behind: bool = False) -> Arrival:
    """Decide what `letter` does to a thread whose row is locked.

    A thread that has ended keeps its end: nothing changes and the letter is not kept. A held thread gets the
    letter into its inbox, and so does one with an open run that the letter is in line `behind`: in the log it would
    be told to that run too, and so be answered twice. Any other that nobody holds gets the stitch at once and is woken
    if it waited for this. `delivered` rises in all cases, and whoever goes to wait compares it, so no wake-up is
    missed.

    An answer to a call that is not waited for lies in the inbox too: it was given while the thread was held, and its
    holder may have answered the call since. Whoever holds the thread next sees whether it is still open.
    """
    if head.ended:
        return Arrival(None, {}, None)
    changes: dict[str, Any] = {"delivered": head.delivered + 1, "updated_at": now}
    if letter.kind == "children":
        changes["pending_children"] = max(0, head.pending_children - 1)
    entry = letter.opened()
    if head.held or behind or (entry.type in _ANSWERS and letter.call_id and not _awaits(head, letter)):
        return Arrival(letter, changes, None)
    stitch = place(entry, head.id, head.position + 1, head.tip_id, head.fence, now)
    changes["position"] = stitch.position
    if entry.type in CHAIN:
        changes["tip_id"] = stitch.id
    waits = _left_to_wait_for(head, letter, entry)
    if wakes(head, letter):
        changes |= {"status": "pending", "waiting_for": [], "asks_since": None, "wake_at": now}
    elif waits != head.waiting_for:
        changes["waiting_for"] = waits
    return Arrival(letter.changed(entry=None, position=stitch.position), changes, stitch)


def wakes(head: Thread, letter: Letter) -> bool:
    """Whether a waiting thread has what it waits for once `letter` is there.

    Children are awaited by their ids, all of them or any; where none are named, all that are open.
    """
    if head.status != "waiting":
        return False
    if letter.kind != "children":
        return head.waits_for(letter.kind, letter.call_id or None) is not None
    awaited = head.waits_for("children")
    if awaited is None:
        return False
    names: list[str] | None = awaited.get("ids")
    if names is None:
        return awaited.get("mode") == "any" or head.pending_children <= 1
    child = str(letter.opened().child_id)
    return child in names and (awaited.get("mode") == "any" or all(name == child for name in names))


def _awaits(head: Thread, letter: Letter) -> bool:
    """Whether a thread waits for the answer to this very call."""
    asked = any(one.get("kind") == letter.kind and one.get("id") == letter.call_id for one in head.waiting_for)
    return asked and head.status == "waiting"


def _left_to_wait_for(head: Thread, letter: Letter, entry: Entry) -> list[Json]:
    """What a thread waits for once `letter` is there: a child that has reported is awaited no more."""
    if letter.kind != "children":
        return head.waiting_for
    child = str(entry.child_id)
    return [
        {**one, "ids": [name for name in one["ids"] if name != child]}
        if one.get("kind") == "children" and one.get("ids")
        else one
        for one in head.waiting_for
    ]
