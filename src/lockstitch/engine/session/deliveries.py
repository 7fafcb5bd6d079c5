"""Take deliveries from the inbox into the log, and report the end of a child thread to its parent.

The summary of a report is short and needs no model call: the text passed to `complete_thread`, else the last answer,
cut to `SUMMARY` characters.
"""

from typing import Any, Final

from lockstitch.engine.decision.in_doubt import sentence
from lockstitch.engine.session.run_session import RunSession
from lockstitch.model import Clock, Delivery, Entry, Json, Thread
from lockstitch.model.delivery import child_report


async def take_deliveries(session: RunSession, *, resting: bool = False, ending: bool = False) -> None:
    """Take deliveries from the inbox into the log.

    Replies enter at once. The report of a child enters if no call of its lane is open, or if `ending` is set, because
    the end of the run answers the open calls. A message to a chat stays in the inbox until this run has ended, because
    it gets its own run. A message to a thread that ends with its run, such as a goal, enters the open run like a
    child's report.

    A delivery that cannot enter yet is read again later. If the thread is about to rest (`resting`), the next holder
    reads it.
    """
    thread_session = session.thread_session
    async with thread_session.inbox_lock:
        deliveries = await session.read_inbox()
        entries = {delivery.id: delivery.as_entry() for delivery in deliveries}
        thread_session.queued_messages = [
            delivery for delivery in deliveries if _gets_own_run(session, entries[delivery.id])
        ]
        selected = [delivery for delivery in deliveries if _can_enter_log(session, entries[delivery.id], ending)]
        if len(selected) + len(thread_session.queued_messages) < len(deliveries) and not resting:
            # The delivery is for another open run, which cannot take it yet.
            thread_session.inbox_dirty = True
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
    """Return a delivery with the run and lane it belongs to, if its sender did not know them. If the call is already
    answered or its run has ended, the delivery becomes a non-fatal error entry."""
    entry = delivery.as_entry()
    receiver = _receiver(session, entry)
    if entry.type in ("tool_call", "permission") and not _is_open(receiver, delivery, entry):
        text = f"A second answer to call {entry.call_id} arrived. The first answer counts."
        data: Json = {"type": "LateAnswer", "message": text, "fatal": False}
        late = Entry(id=entry.id, type="error", run_id=receiver.open_run.id, lane=receiver.lane, data=data)
        return delivery.changed(entry=late.as_json())
    if entry.run_id is not None:
        return delivery
    return delivery.changed(entry=entry.changed(run_id=receiver.open_run.id, lane=receiver.lane).as_json())


def _receiver(session: RunSession, entry: Entry) -> RunSession:
    """Return the open run that an entry names, else the top-level run of the thread."""
    lanes = _lanes(session)
    return next((lane for lane in lanes if lane.run is not None and lane.run.id == entry.run_id), lanes[0])


def _lanes(session: RunSession) -> list[RunSession]:
    return [lane for lane in session.thread_session.lanes if isinstance(lane, RunSession)]


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
"""Maximum number of characters of a summary."""


def thread_result(status: str, summary: str | None, error: str | None, *, output: Any = None, data: Any = None) -> Json:
    """Return the result that is stored for an ended thread. `data` comes from `complete_thread`, `output` is the
    structured answer."""
    value: Json = {"status": status, "summary": summary, "error": error}
    if output is not None:
        value["output"] = output
    if data is not None:
        value["data"] = data
    return value


def report_to_parent(head: Thread, ended: Json, clock: Clock, summary: str | None = None) -> list[Delivery]:
    """Return the delivery that reports the end of a thread to its parent; an empty list for a root thread.

    `summary` is the model's summary of the result. Without it, the report contains the start of the result.
    """
    if head.parent_id is None:
        return []
    summary = str(summary or ended.get("summary") or ended.get("error") or "")[:SUMMARY]
    doubts: list[Json] = ended.get("in_doubt") or []
    if ended["status"] != "completed":
        # If the run completed, the child's model knew about these calls when it answered.
        summary = " ".join(filter(None, (summary, sentence(doubts))))
    details: Json = {"data": ended.get("data"), "output": ended.get("output"), "in_doubt": doubts or None}
    return [child_report(head, head.parent_id, str(ended["status"]), summary, clock.now(), **details)]
