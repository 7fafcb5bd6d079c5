"""Deliveries from the inbox into the log; a child's report to its parent.

The summary is short and made without a model: what `complete_thread` was given, or else the last answer, cut.
"""

from typing import Any, Final

from lockstitch.engine.decision.in_doubt import sentence
from lockstitch.engine.session.run_session import RunSession
from lockstitch.model import Clock, Delivery, Entry, Json, Thread
from lockstitch.model.delivery import child_report as letter_of


async def take_deliveries(session: RunSession, *, resting: bool = False, ending: bool = False) -> None:
    """Take deliveries into the log: answers at once, results of children where no call is open, or where the end of
    the run is going to answer it.

    A message to a chat stays in the inbox until this run has ended: it gets its own run. A message to a thread
    that ends with its run, such as a goal, enters the open run like the result of a child. What cannot enter yet is
    looked at again; but where the thread is about to rest, only by the next holder.
    """
    ledger = session.ledger
    async with ledger.inbox_lock:
        deliveries = await session.letters_waiting()
        entries = {delivery.id: delivery.as_entry() for delivery in deliveries}
        ledger.queued_messages = [delivery for delivery in deliveries if _gets_own_run(session, entries[delivery.id])]
        selected = [delivery for delivery in deliveries if _can_enter_log(session, entries[delivery.id], ending)]
        if len(selected) + len(ledger.queued_messages) < len(deliveries) and not resting:
            # It is for a run beside this one, which has not come as far.
            ledger.inbox_dirty = True
        if not selected:
            return
        await session.commit(consumed=[_addressed_to_run(session, delivery) for delivery in selected])


def _gets_own_run(session: RunSession, entry: Entry) -> bool:
    return entry.type == "input" and session.head.kind == "chat"


def _can_enter_log(session: RunSession, entry: Entry, ending: bool) -> bool:
    if entry.type in ("tool_call", "permission"):
        return True
    if _gets_own_run(session, entry):
        return False
    receiver = _receiver(session, entry)
    lanes = [lane for lane in _lanes(session) if lane.lane == receiver.lane and not (ending and lane is session)]
    return not any(lane.in_use or any(call.state != "answered" for call in lane.snapshot.calls) for lane in lanes)


def _addressed_to_run(session: RunSession, delivery: Delivery) -> Delivery:
    """A letter as part of the run that it is for, where its sender did not know which that was; an answer that came too
    late, when its call was answered or its run over, as no more than a note."""
    entry = delivery.as_entry()
    receiver = _receiver(session, entry)
    if entry.type in ("tool_call", "permission") and not _is_open(receiver, delivery, entry):
        text = f"An answer to call {entry.call_id} came when it was answered already."
        data: Json = {"type": "LateAnswer", "message": text, "fatal": False}
        late = Entry(id=entry.id, type="error", run_id=receiver.open_run.id, lane=receiver.lane, data=data)
        return delivery.changed(entry=late.as_json())
    if entry.run_id is not None:
        return delivery
    return delivery.changed(entry=entry.changed(run_id=receiver.open_run.id, lane=receiver.lane).as_json())


def _receiver(session: RunSession, entry: Entry) -> RunSession:
    """The run that an entry is for: its own if it is open, else the one that the thread is driven for."""
    lanes = _lanes(session)
    return next((lane for lane in lanes if lane.run is not None and lane.run.id == entry.run_id), lanes[0])


def _lanes(session: RunSession) -> list[RunSession]:
    return [lane for lane in session.ledger.lanes if isinstance(lane, RunSession)]


def _is_open(receiver: RunSession, delivery: Delivery, answer: Entry) -> bool:
    """True if the call that a delivery answers is open. An open call of a later response may have the same id."""
    return any(
        call.state != "answered"
        and answer.call_index in (None, call.index)
        and answer.reply_to in (None, call.response)
        and (delivery.call_id or answer.call_id) in (call.key, call.id)
        for call in receiver.snapshot.calls
    )


SUMMARY: Final = 2_000
"""Characters of a summary."""


def result(status: str, summary: str | None, error: str | None, *, output: Any = None, data: Any = None) -> Json:
    """What a thread ends with. `data` is what it was completed with, `output` its structured answer."""
    value: Json = {"status": status, "summary": summary, "error": error}
    if output is not None:
        value["output"] = output
    if data is not None:
        value["data"] = data
    return value


def report(head: Thread, ended: Json, clock: Clock) -> list[Delivery]:
    """The letter to the parent of a thread that ends so; none for a root."""
    if head.parent_id is None:
        return []
    summary = str(ended.get("summary") or ended.get("error") or "")[:SUMMARY]
    doubts: list[Json] = ended.get("in_doubt") or []
    if ended["status"] != "completed":
        # A model of the child knew about the doubts of a completed run, and answered with that knowledge.
        summary = " ".join(filter(None, (summary, sentence(doubts))))
    more: Json = {"data": ended.get("data"), "output": ended.get("output"), "in_doubt": doubts or None}
    return [letter_of(head, head.parent_id, str(ended["status"]), summary, clock.now(), **more)]
