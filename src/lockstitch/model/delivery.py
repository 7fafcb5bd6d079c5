"""`Delivery` (an inbox row), the effects of its arrival, and a child's report to its parent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, NamedTuple
from uuid import UUID

from pydantic import Field

from lockstitch.model import codec
from lockstitch.model.ids import as_id, new_id
from lockstitch.model.message import Message, user
from lockstitch.model.record import Json, Record, Text, Time
from lockstitch.model.stitch import CHAIN_TYPES, Entry, Stitch, at_position
from lockstitch.model.thread import Thread
from lockstitch.model.wait import ChildrenWait, NextMessageWait, Wait, waits_json

_ANSWERS: Final = ("tool_call", "permission")
"""Types of entries that answer a call or approve it."""

_RUN_OPTIONS: Final = "lockstitch:run"
"""Key in the data of a message's entry: the options of the run that answers the message."""

_MESSAGE_SENDER: Final = "message:"
"""Prefix of the sender of a message. The id of the message follows."""

MESSAGE_ID_CHARS: Final = 200
"""Maximum number of characters of a message id."""


class Delivery(Record):
    """One entry sent to a thread, unique per thread, sender and call.

    `call_id` is the key of the call that the delivery answers (`call_key`). Call ids may repeat within a thread, so a
    delivery by id alone could answer another call than its sender saw.

    If no worker holds the thread, the store appends the entry at once and sets `position`. If a worker holds the
    thread, and always for a message (an entry of type `input`), the delivery waits in the inbox with its `entry` until
    a holder appends it to the log. The row stays, without the entry, so that the store recognises a duplicate. The run
    that a message to a chat causes has the id of the delivery.
    """

    table: ClassVar[str] = "inbox"

    id: UUID = Field(default_factory=new_id)
    """Id of the delivery. The run that a message to a chat causes has the same id."""
    thread_id: UUID
    """Id of the receiving thread."""
    sender: Annotated[Text, Field(min_length=1, max_length=255)]
    """Name of the sender, such as a caller's key or the id of a child thread."""
    call_id: Annotated[Text, Field(max_length=255)] = ""
    """Key of the call that the delivery answers, or empty."""
    kind: Annotated[Text, Field(max_length=50)]
    """Kind of wait that the delivery ends."""
    entry: Json | None = None
    """Entry as JSON, until it is in the log."""
    position: int | None = None
    """Position of the entry in the log, once it is there."""
    at: Time
    """Time of the delivery."""

    def as_entry(self) -> Entry:
        """Return the entry that the delivery contains. Its time is that of the delivery, unless it has another."""
        entry = Entry.from_json(self.entry or {})
        return entry if entry.at is not None else entry.changed(at=self.at)


def message_entry(
    message: Message,
    *,
    extras: Json | None = None,
    metadata: Json | None = None,
    tags: Sequence[str] = (),
    message_id: str | None = None,
) -> Entry:
    """Return the entry of a message, with the options of the run that answers it.

    `extras`, `metadata` and `tags` become those of the run. `run_options` reads them. `message_id` is the id that the
    sender chose.
    """
    options: Json = {"extras": extras or {}, "metadata": metadata or {}, "tags": list(tags)}
    data: Json = {_RUN_OPTIONS: options} if any(options.values()) else {}
    return Entry(type="input", message=message, data=data | identity_of_message(message, message_id))


def identity_of_message(message: Message, message_id: str | None) -> Json:
    """Return the data that identifies a message with an id: the id and the hash of the content. Empty without an id.

    The hash shows whether a second message with the same id has the same content. Large media of the stored message
    may be in blobs, so the messages themselves cannot be compared.
    """
    if message_id is None:
        return {}
    return {"message_id": message_id, "sha256": codec.digest(message)}


def message_sender(message_id: str | None) -> str:
    """Return the sender of a message. Without an id the sender is unique, so the message is always new."""
    return f"{_MESSAGE_SENDER}{new_id() if message_id is None else message_id}"


def run_options(entry: Entry) -> Json:
    """Return the run options that `message_entry` put into an entry; empty if the entry has none."""
    return entry.data.get(_RUN_OPTIONS, {})


class DeliveryEffect(NamedTuple):
    """Effects of a delivery: the delivery as stored (None: not stored), changed head fields, and the stitch if any."""

    delivery: Delivery | None
    head: dict[str, Any]
    stitch: Stitch | None


def apply_delivery(head: Thread, delivery: Delivery, now: datetime) -> DeliveryEffect:
    """Return the effects of a delivery on a thread, while the row of the thread is locked.

    A thread that has ended does not change, and the delivery is not stored. For any other thread `delivered` rises.
    A holder compares it when the thread goes to rest, so no wake-up is missed. A delivery is stored in the inbox

    - if a worker holds the thread;
    - if it is a message. The run that answers the message takes it into the log. In the log at once, it would also be
      in the context of an earlier run, and only one of several messages would be the input of the next run;
    - if it answers a call that the thread does not wait for. The call may have been answered since; the next holder
      checks whether it is still open.

    Otherwise the entry becomes a stitch at once. If the thread waited for the delivery, it becomes `pending`.
    """
    if head.ended:
        return DeliveryEffect(None, {}, None)
    changes: dict[str, Any] = {"delivered": head.delivered + 1, "updated_at": now}
    if delivery.kind == "children":
        changes["pending_children"] = max(0, head.pending_children - 1)
    entry = delivery.as_entry()
    if head.held:
        return DeliveryEffect(delivery, changes, None)
    if entry.type == "input":
        return DeliveryEffect(delivery, {**changes, **(_woken(now) if is_at_rest(head) else {})}, None)
    if entry.type in _ANSWERS and delivery.call_id and not answers_awaited_call(head, delivery):
        return DeliveryEffect(delivery, changes, None)
    stitch = at_position(entry, head.id, head.position + 1, head.tip_id, head.fence, now)
    changes["position"] = stitch.position
    if entry.type in CHAIN_TYPES:
        changes["tip_id"] = stitch.id
    waits = remaining_waits(head, delivery, entry)
    if wakes_thread(head, delivery):
        # Answers to several calls may arrive in one commit. The thread still waits for the other calls.
        changes |= {**_woken(now), "waiting_for": waits if entry.type in _ANSWERS else []}
    elif waits != head.waiting_for:
        changes["waiting_for"] = waits
    return DeliveryEffect(delivery.changed(entry=None, position=stitch.position), changes, stitch)


def _woken(now: datetime) -> dict[str, Any]:
    return {"status": "pending", "waiting_for": [], "awaiting_person_since": None, "wake_at": now}


def is_at_rest(head: Thread) -> bool:
    """True if a thread waits for its next message, and not for the answer to a question of its open run."""
    return head.status == "waiting" and any(isinstance(wait, NextMessageWait) for wait in head.waits)


def wakes_thread(head: Thread, delivery: Delivery) -> bool:
    """True if the arrival of the delivery ends the wait of a waiting thread.

    A thread waits for all or any of the children with the listed ids. Without ids it waits for all open children.
    """
    if head.status != "waiting":
        return False
    if delivery.kind != "children":
        return head.wait_for(delivery.kind, delivery.call_id or None) is not None
    wait = next((wait for wait in head.waits if isinstance(wait, ChildrenWait)), None)
    if wait is None:
        return False
    if wait.child_ids is None:
        return wait.any_child or head.pending_children <= 1
    child = str(delivery.as_entry().child_id)
    return child in wait.child_ids and (wait.any_child or all(child_id == child for child_id in wait.child_ids))


def answers_awaited_call(head: Thread, delivery: Delivery) -> bool:
    """True if a thread waits for the answer to this call, or is ready with the answer to another one."""
    requested = any(_answers(wait, delivery, delivery.as_entry()) for wait in head.waits)
    return requested and head.status in ("waiting", "pending")


def _answers(wait: Wait, delivery: Delivery, entry: Entry) -> bool:
    """True if a delivery ends this wait. It names the call by its key or by its id."""
    if wait.kind != delivery.kind or not wait.names(delivery.call_id):
        return False
    return wait.run_id is None or wait.run_id == entry.run_id


def remaining_waits(head: Thread, delivery: Delivery, entry: Entry) -> list[Json]:
    """Return the waits that remain after the delivery: without the call it answers or the child that reported."""
    if entry.type in _ANSWERS and delivery.call_id:
        return waits_json(wait for wait in head.waits if not _answers(wait, delivery, entry))
    if delivery.kind != "children":
        return head.waiting_for
    child = str(entry.child_id)
    return waits_json(wait.without(child) if isinstance(wait, ChildrenWait) else wait for wait in head.waits)


def child_report(
    child: Thread,
    parent_id: UUID,
    status: str,
    summary: str,
    now: datetime,
    **data: Any,
) -> Delivery:
    """Return the delivery that reports a child's end to its parent.

    The sender is only the child's id, so a child reports once, no matter how it ends.
    """
    text = f"[thread_result thread={child.id} status={status}] goal: {child.goal}\n summary: {summary}"
    report: Json = {"summary": summary, **{name: value for name, value in data.items() if value is not None}}
    entry = Entry(
        type="thread_result",
        run_id=_named(child, "parent_run"),
        lane=reporting_lane(child),
        child_id=child.id,
        name=child.agent,
        status=status,
        message=user([{"type": "text", "text": text}]),
        data=report,
        at=now,
    )
    return Delivery(thread_id=parent_id, sender=str(child.id), kind="children", entry=entry.as_json(), at=now)


def reporting_lane(child: Thread) -> UUID | None:
    """Return the lane of the parent in which the child was created. Its report goes there."""
    return _named(child, "parent_lane")


def _named(child: Thread, what: str) -> UUID | None:
    name = child.state.get(what)
    return as_id(name) if isinstance(name, str) else None
