"""Replies: what people and browsers say to a thread that waits for them. No code of the agent is needed for that.

A reply is made once per pause: saying it twice is saying it once. To a thread that somebody holds it is delivered; to
one that nobody holds it is appended only if the thread is as it was when the reply was checked, so that nothing is
answered that a cancelled run has answered already.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lockstitch.errors import Conflict, NotFound, Refused, ThreadWaiting
from lockstitch.records import Entry, Json, Letter, Thread, tool_result
from lockstitch.runtime.decide import IN_DOUBT
from lockstitch.runtime.journal import Journal
from lockstitch.runtime.situation import Call, Situation
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef


async def approve(store: Store, ref: ThreadRef, call_id: str, *, by: str | None = None) -> None:
    """Agree to a call that waits for a person."""

    def make(waiting: _Waiting) -> _Replies:
        call = waiting.call("approval", call_id)
        return [("approval", call, _permission(call, "approved", by))] if call.call.state != "allowed" else []

    await _reply(store, ref, make)


async def deny(store: Store, ref: ThreadRef, call_id: str, *, reason: str | None = None, by: str | None = None) -> None:
    """Refuse a call that waits for a person; the model is told, and why."""
    said = "A person refused this call." + (f" Reason: {reason}" if reason else "")

    def make(waiting: _Waiting) -> _Replies:
        call = waiting.call("approval", call_id)
        return [("approval", call, _answer(call, said, "denied", is_error=True, by=by))]

    await _reply(store, ref, make)


async def settle(
    store: Store,
    ref: ThreadRef,
    call_id: str,
    *,
    done: str | None = None,
    redo: bool = False,
    unknown: bool = False,
    by: str | None = None,
) -> None:
    """Say what became of a call that was cut off: what it gave, that it may be made again, or that nobody knows.

    Of a call that nobody knows about the model is told so, as if it had not been asked for (`on_doubt="tell"`).
    """
    if (done is not None) + redo + unknown != 1:
        raise Refused("Say either what the call gave (done), that it may be made again (redo), or that it is unknown.")

    def make(waiting: _Waiting) -> _Replies:
        call = waiting.call("doubt", call_id)
        if done is not None:
            return [("doubt", call, _answer(call, done, "settled", is_error=False, by=by))]
        if unknown:
            return [("doubt", call, _answer(call, IN_DOUBT, "in_doubt", is_error=True, by=by))]
        return [("doubt", call, _permission(call, "redo", by))] if call.call.state != "allowed" else []

    await _reply(store, ref, make)


async def submit_results(store: Store, ref: ThreadRef, results: Sequence[Json]) -> None:
    """Hand in the results of the calls that a browser was to execute: exactly those that are waited for, all at once.

    Each is {"tool_use_id", "content", "is_error"?}.
    """
    await _reply(store, ref, lambda waiting: _results(waiting, results))


def _results(waiting: "_Waiting", results: Sequence[Json]) -> "_Replies":
    pending = waiting.pending("frontend_tools")
    given = [str(result.get("tool_use_id")) for result in results]
    if not pending:
        raise ThreadWaiting(f"Thread {waiting.head.id} waits for no results of a browser.", thread_id=waiting.head.id)
    if sorted(given) != sorted(pending):
        missing = sorted(set(pending) - set(given))
        extra = sorted(set(given) - set(pending)) or sorted({one for one in given if given.count(one) > 1})
        raise Refused(
            f"The results must be those of exactly these calls: {', '.join(pending)}"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not asked for: {', '.join(extra)}" if extra else "")
            + ". Nothing was changed."
        )
    replies: _Replies = []
    for result in results:
        call = waiting.call("frontend_tools", str(result["tool_use_id"]), [asked for _, asked, _ in replies])
        failed = bool(result.get("is_error"))
        content: Any = result.get("content", "")
        status = "error" if failed else "ok"
        replies.append(("frontend_tools", call, _answer(call, content, status, is_error=failed)))
    return replies


async def answer(store: Store, ref: ThreadRef, text: str, *, by: str | None = None) -> None:
    """Answer the question that a thread asked in the middle of a run."""

    def make(waiting: _Waiting) -> _Replies:
        questions = waiting.pending("input")
        if not questions:
            raise ThreadWaiting(
                f"Thread {waiting.head.id} asked nothing; it {_state(waiting.head)}.", thread_id=waiting.head.id
            )
        call = waiting.call("input", questions[0])
        return [("input", call, _answer(call, text, "ok", is_error=False, by=by))]

    await _reply(store, ref, make)


_Replies = list[tuple[str, "_Asked", Entry]]
"""To what kind of waiting, for which call, and what is said."""


async def _reply(store: Store, ref: ThreadRef, make: "Callable[[_Waiting], _Replies]") -> None:
    """Check and reply, again if the thread changed in between."""
    while True:
        waiting = await _Waiting.of(store, ref)
        if await waiting.reply(make(waiting)):
            return


class _Waiting:
    """A thread that waits, its open runs and the calls they wait for."""

    def __init__(self, store: Store, head: Thread, situations: Sequence[Situation]) -> None:
        self.store = store
        self.head = head
        self.situations = situations

    @classmethod
    async def of(cls, store: Store, ref: ThreadRef) -> "_Waiting":
        head = await store.thread(ref)
        journal = await Journal.load(store, head)
        if journal.run is None:
            raise ThreadWaiting(
                f"Thread {head.id} has no open run; it {_state(head)}.", thread_id=head.id, reason="idle"
            )
        lanes = [lane for lane in journal.ledger.lanes if isinstance(lane, Journal)]
        return cls(store, head, [lane.situation for lane in lanes])

    def pending(self, kind: str) -> list[str]:
        return [
            str(one["id"])
            for situation in self.situations
            for one in self._waits(situation)
            if one.get("kind") == kind and one.get("id") is not None
        ]

    def call(self, kind: str, call_id: str, but: "Sequence[_Asked]" = ()) -> "_Asked":
        """The call that is waited for in this way, and whose it is. Models of several runs may have given the same id:
        then it is the first of them that nobody has said anything of."""
        found = [
            _Asked(situation, call)
            for situation in self.situations
            if any(one.get("kind") == kind and one.get("id") == call_id for one in self._waits(situation))
            for call in situation.calls
            if call.id == call_id and call.state != "answered"
        ]
        found = [one for one in found if one not in but]
        if found:
            return next((one for one in found if one.call.state != "allowed"), found[0])
        waits = [one for situation in self.situations for one in self._waits(situation)]
        told = ", ".join(f"{one.get('kind')} {one.get('id')}" for one in waits) or "nothing"
        raise NotFound(f"No call {call_id} waits for {kind} in thread {self.head.id}; it waits for {told}.")

    async def reply(self, replies: _Replies) -> bool:
        """Reply to what this thread waits for; False when it has changed since it was read."""
        if not replies:
            return True
        if self.head.worker_id is None:
            now = self.store.clock.now()
            try:
                await self.store.append(
                    self.head, [entry for *_, entry in replies], fields={"status": "pending", "wake_at": now}
                )
            except Conflict:
                return False
            return True
        letters: list[Letter] = [
            self.store.letter(self.head, entry, kind, f"{kind}:{asked.paused_at}", asked.call.id)
            for kind, asked, entry in replies
        ]
        receipts = await self.store.desk.deliver_all(self.head, letters)
        # One that is neither new nor anywhere was said before and waits to be looked at; or the thread has ended.
        lost = any(receipt.position is None and not receipt.new for receipt in receipts)
        return not lost or not (await self.store.thread(self.head)).ended

    def _waits(self, situation: Situation) -> list[Json]:
        """What a run itself waits for, and nobody within it."""
        # A holder that has just taken the thread has not said anew what it waits for: the pause in the log has.
        pause = situation.last("run_paused")
        top = situation.run is None or situation.run.parent_run_id is None
        said: list[Json] = self.head.waiting_for if top else []
        waits: list[Json] = pause.data.get("waiting_for", []) if pause is not None else said
        answered = {call.id for call in situation.calls if call.state == "answered"}
        return [one for one in waits if one.get("id") not in answered and not one.get("run")]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that waits, and the run that made it."""

    situation: Situation
    call: Call

    @property
    def paused_at(self) -> int:
        pause = self.situation.last("run_paused")
        return pause.position if pause is not None else 0


def _permission(asked: _Asked, status: str, by: str | None) -> Entry:
    return _entry(asked, "permission", status=status, data={"by": by} if by else {})


def _answer(asked: _Asked, content: Any, status: str, *, is_error: bool, by: str | None = None) -> Entry:
    block = tool_result(asked.call.id, content, is_error=is_error)
    data = {"by": by} if by else {}
    return _entry(asked, "tool_call", status=status, message=block, data=data, reply_to=asked.call.response)


def _entry(asked: _Asked, kind: str, **fields: Any) -> Entry:
    run, call = asked.situation.run, asked.call
    assert run is not None
    return Entry(
        type=kind,
        run_id=run.id,
        lane=run.lane,
        name=call.name,
        call_id=call.id,
        call_index=call.index,
        step_number=call.step,
        **fields,
    )


def _state(head: Thread) -> str:
    return "waits for input" if head.status == "waiting" else f"is {head.status}"
