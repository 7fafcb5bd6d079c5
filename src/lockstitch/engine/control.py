"""Replies: what people and browsers say to a thread that waits for them. No agent code is needed for that.

Each question takes one reply. Every reply is a delivery whose sender names the question: the kind of waiting, the
position of the response that made the call, and the index of the call. The store keeps the row of a delivery for ever
and accepts one row per sender and call. So of two different replies one is accepted and the other raises
`AlreadyAnswered`, in any process, whether the thread is held or not, and also after the run has continued or ended. The
same reply again changes nothing and succeeds.

A request names a call by its id or by its key, both as in `waiting_for`. Some providers repeat ids in each response. An
id names the call that waits now; if several calls with this id wait, such as those of two team members, the request is
refused. A key names one call only: if the request is repeated later, it finds no other call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lockstitch.engine.decision.decide import IN_DOUBT
from lockstitch.engine.decision.snapshot import Call, RunSnapshot
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import AlreadyAnswered, NoOpenRun, NotFound, Refused, ThreadWaiting
from lockstitch.model import Delivery, Entry, Json, Stitch, Thread, Wait, parse_waits, tool_result
from lockstitch.model.message import blocks, user
from lockstitch.store import Store, Where
from lockstitch.store.threads import ThreadRef


async def approve(store: Store, ref: ThreadRef, call_id: str, *, by: str | None = None) -> None:
    """Agree to a call that waits for a person."""

    def make(waiting: WaitingThread) -> _Replies:
        call = waiting.call("approval", call_id)
        return [("approval", call, _permission(call, "approved", by))]

    await _reply(store, ref, make, [("approval", call_id, ("approved", []))])


async def deny(store: Store, ref: ThreadRef, call_id: str, *, reason: str | None = None, by: str | None = None) -> None:
    """Refuse a call that waits for a person; the model is told, and why."""
    text = "A person refused this call." + (f" Reason: {reason}" if reason else "")

    def make(waiting: WaitingThread) -> _Replies:
        call = waiting.call("approval", call_id)
        return [("approval", call, _answer(call, text, "denied", is_error=True, by=by))]

    await _reply(store, ref, make, [("approval", call_id, ("denied", [text]))])


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
    """State the outcome of a call in doubt: its result (`done`), that it may be made again (`redo`), or `unknown`.

    If the outcome is unknown, the model gets a message that says so, as with `on_doubt="tell"`. If a retry asks, the
    call belongs to an earlier run and is not repeated here: the model gets the statement and decides whether to make a
    new call.
    """
    if (done is not None) + redo + unknown != 1:
        raise Refused("Pass exactly one of done (the result of the call), redo and unknown. Nothing was changed.")
    status = "settled" if done is not None else "redo" if redo else "in_doubt"
    content = done if done is not None else IN_DOUBT if unknown else None

    def make(waiting: WaitingThread) -> _Replies:
        call = waiting.call("doubt", call_id)
        if call.call.earlier:
            return [("doubt", call, _statement(call, status, content, by))]
        if content is None:
            return [("doubt", call, _permission(call, status, by))]
        return [("doubt", call, _answer(call, content, status, is_error=unknown, by=by))]

    await _reply(store, ref, make, [("doubt", call_id, (status, [] if content is None else [content]))])


async def submit_results(store: Store, ref: ThreadRef, results: Sequence[Json]) -> None:
    """Hand in the results of the calls that a browser was to execute: exactly those that are waited for, all at once.

    Each is {"tool_use_id", "content", "is_error"?}, where tool_use_id is the id of the call or its key.
    """
    sayings: list[_Saying] = []
    for result in results:
        block = tool_result("", result.get("content", ""), is_error=bool(result.get("is_error")))
        status = "error" if result.get("is_error") else "ok"
        sayings.append(("frontend_tools", str(result.get("tool_use_id")), (status, _texts(block))))
    await _reply(store, ref, lambda waiting: _results(waiting, results), sayings)


def _results(waiting: "WaitingThread", results: Sequence[Json]) -> "_Replies":
    pending = waiting.pending("frontend_tools")
    ids = waiting.ids_by_key()
    values = [ids.get(name, name) for name in (str(result.get("tool_use_id")) for result in results)]
    if not pending:
        raise ThreadWaiting(
            f"Thread {waiting.head.id} does not wait for frontend tool results.", thread_id=waiting.head.id
        )
    if sorted(values) != sorted(pending):
        missing = sorted(set(pending) - set(values))
        extra = sorted(set(values) - set(pending)) or sorted({value for value in values if values.count(value) > 1})
        raise Refused(
            f"The results must be those of exactly these calls: {', '.join(pending)}"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not asked for: {', '.join(extra)}" if extra else "")
            + ". Nothing was changed."
        )
    replies: _Replies = []
    for result in results:
        # A browser knows ids only, so results of calls with one id are taken in the order of the calls.
        given_before = [requested for _, requested, _ in replies]
        call = waiting.call("frontend_tools", str(result["tool_use_id"]), given_before, first=True)
        failed = bool(result.get("is_error"))
        content: Any = result.get("content", "")
        status = "error" if failed else "ok"
        replies.append(("frontend_tools", call, _answer(call, content, status, is_error=failed)))
    return replies


async def answer(store: Store, ref: ThreadRef, text: str, *, call_id: str | None = None, by: str | None = None) -> None:
    """Answer the question that a thread asked in the middle of a run: the first one, or the one of this call."""

    def make(waiting: WaitingThread) -> _Replies:
        questions = waiting.pending("input")
        if not questions:
            raise ThreadWaiting(
                f"Thread {waiting.head.id} asked nothing; it {_state(waiting.head)}.", thread_id=waiting.head.id
            )
        call = waiting.call("input", call_id or questions[0], first=call_id is None)
        return [("input", call, _answer(call, text, "ok", is_error=False, by=by))]

    await _reply(store, ref, make, [("input", call_id, ("ok", [text]))])


_Replies = list[tuple[str, "_Asked", Entry]]
"""For each reply: the kind of waiting, the call, and the entry."""

_REPLIES: Final = 100
"""Replies, newest first, among which a repeated one is looked for."""

_Words = tuple[str | None, list[Any]]
"""The status of a reply and its texts."""

_Saying = tuple[str, str | None, _Words]
"""For each reply: the kind of waiting, the id of the call (None: the last call of this kind), and the words."""


async def _reply(
    store: Store, ref: ThreadRef, make: "Callable[[WaitingThread], _Replies]", sayings: Sequence[_Saying]
) -> None:
    """Check and reply, again if the thread changed in between. If the thread does not wait for the reply, it succeeds
    only if the same reply was accepted before."""
    while True:
        waiting = await WaitingThread.of(store, ref)
        try:
            replies = make(waiting)
        except (NotFound, ThreadWaiting):
            accepted = [await waiting.replied(*saying) for saying in sayings]
            if accepted and all(accepted):
                return
            raise
        if await waiting.reply(replies):
            return


class WaitingThread:
    """A thread that waits, its open runs and the calls they wait for."""

    def __init__(self, store: Store, head: Thread, situations: Sequence[RunSnapshot]) -> None:
        self.store = store
        self.head = head
        self.situations = situations

    @classmethod
    async def of(cls, store: Store, ref: ThreadRef) -> "WaitingThread":
        head = await store.thread(ref)
        session = await RunSession.load(store, head)
        lanes = [lane for lane in session.ledger.lanes if isinstance(lane, RunSession)]
        return cls(store, head, [lane.snapshot for lane in lanes] if session.run is not None else [])

    def pending(self, kind: str) -> list[str]:
        """Return the ids of the calls that wait for a reply of this kind."""
        if not self.situations:
            head = self.head
            raise NoOpenRun(f"Thread {head.id} has no open run; it {_state(head)}.", thread_id=head.id)
        return [
            wait.call_id
            for snapshot in self.situations
            for wait in self._waits(snapshot)
            if wait.kind == kind and wait.call_id is not None
        ]

    def ids_by_key(self) -> dict[str, str]:
        """The ids of the open calls, by their keys."""
        return {call.key: call.id for snapshot in self.situations for call in snapshot.calls}

    def call(self, kind: str, call_id: str, but: "Sequence[_Asked]" = (), *, first: bool = False) -> "_Asked":
        """Return the call that waits for a reply of this kind. NotFound if no call waits, Refused if several calls with
        this id wait. With `first` it is the first of several, in the order of the runs."""
        self.pending(kind)
        askeds = [
            requested
            for snapshot in self.situations
            for call in snapshot.calls
            if call_id in (call.id, call.key)
            and (requested := _Asked(snapshot, call)) not in but
            and self._is_open(kind, requested)
        ]
        if len(askeds) == 1 or (askeds and first):
            return askeds[0]
        if askeds:
            keys = ", ".join(f"{requested.call.key} ({requested.call.name})" for requested in askeds)
            raise Refused(
                f"{len(askeds)} calls with the id {call_id} wait for {kind} in thread {self.head.id}. Name one of them "
                f"by its key: {keys}. Nothing was changed."
            )
        waits = [wait for snapshot in self.situations for wait in self._waits(snapshot)]
        pending = ", ".join(f"{wait.kind} {wait.call_id}" for wait in waits) or "nothing"
        raise NotFound(f"Thread {self.head.id} does not wait for {kind} of call {call_id}. It waits for {pending}.")

    def _is_open(self, kind: str, requested: "_Asked") -> bool:
        """True if the run waits for this reply and the log has nothing about the call since the run paused."""
        snapshot, call = requested.situation, requested.call
        if not any(_asks_for(wait, kind, call) for wait in self._waits(snapshot)):
            return False
        return call.state != "answered" and not any(
            stitch.position > requested.paused_at(kind)
            and stitch.type in ("permission", "tool_started")
            and stitch.call_index == call.index
            for stitch in snapshot.after_response
            if not call.earlier
        )

    async def reply(self, replies: _Replies) -> bool:
        """Deliver the replies. False if the thread ended since it was read, and none was accepted."""
        deliveries: list[Delivery] = [
            self.store.new_delivery(self.head, entry, kind, requested.question(kind), requested.call.key)
            for kind, requested, entry in replies
        ]
        receipts = await self.store.execution.deliver_all(self.head, deliveries)
        repeated = [delivery for delivery, receipt in zip(deliveries, receipts, strict=True) if not receipt.new]
        return all([await self._same_reply_exists(delivery) for delivery in repeated])

    async def _same_reply_exists(self, delivery: Delivery) -> bool:
        """True if the reply that was accepted for this question says the same; False if there is none, since the thread
        has ended. AlreadyAnswered if it says something else."""
        first = await self.store.execution.earlier_delivery(delivery)
        if first is None:
            return False
        self._compare(first, _reply_content(delivery.as_entry()))
        return True

    async def replied(self, kind: str, call_id: str | None, words: _Words) -> bool:
        """True if this reply was accepted before, False if none was. AlreadyAnswered if another one was."""
        where = (Where("thread_id", "=", self.head.id), Where("kind", "=", kind), Where("call_id", "!=", ""))
        for delivery in await self.store.table(Delivery).find(*where, order=("-at", "-id"), limit=_REPLIES):
            first = await self.store.execution.earlier_delivery(delivery)
            if first is not None and call_id in (None, delivery.call_id, first.call_id):
                self._compare(first, words)
                # Results of a browser continue the run, and are refused once it has continued.
                return kind != "frontend_tools" or delivery.call_id in self.ids_by_key()
        return False

    def _compare(self, first: Entry | Stitch, words: _Words) -> None:
        if _reply_content(first) != words:
            raise AlreadyAnswered(
                f"Call {first.call_id} of thread {self.head.id} was answered otherwise before ({first.status}). "
                "Nothing was changed.",
                thread_id=self.head.id,
            )

    def _waits(self, snapshot: RunSnapshot) -> list[Wait]:
        """Return the waits of a run itself, without those of its member runs."""
        # A worker that has just claimed the thread has not stored the waits again. The pause in the log has them.
        pause = snapshot.last("run_paused")
        top = snapshot.run is None or snapshot.run.parent_run_id is None
        waits = _waits_of(pause) if pause is not None else self.head.waits if top else ()
        calls = [call for call in snapshot.calls if call.state == "answered"]
        return [wait for wait in waits if not wait.run_id and not any(_names(wait, call) for call in calls)]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that waits, and the run that made it."""

    situation: RunSnapshot
    call: Call

    def paused_at(self, kind: str) -> int:
        """Return the position of the last pause that asks for this call; 0 if the pause is not in the log."""
        pauses = [stitch for stitch in self.situation.after_response if stitch.type == "run_paused"]
        asking = [
            pause.position for pause in pauses if any(_asks_for(wait, kind, self.call) for wait in _waits_of(pause))
        ]
        return max(asking, default=0)

    def question(self, kind: str) -> str:
        """Return the name of the question. A doubt about a call can arise again, so it also names the attempt: the
        position of the started mark, or of the run that retries the run of the call."""
        name = f"{kind}:{self.call.response}.{self.call.index}"
        if kind != "doubt":
            return name
        if self.call.earlier:
            assert self.situation.run is not None
            return f"{name}:{self.situation.run.first_position}"
        marks = [
            stitch.position
            for stitch in self.situation.after_response
            if stitch.type == "tool_started" and stitch.call_index == self.call.index
        ]
        return f"{name}:{max(marks, default=0)}"


_STATEMENTS: Final = {
    "settled": "It took effect. Its result: {said}",
    "redo": "It did not take effect. You may make this call again.",
    "in_doubt": "Its outcome is still unknown. Find out before you make this call again, or tell the user.",
}


def _statement(requested: _Asked, status: str, said: str | None, by: str | None) -> Entry:
    """Return what a person states about a call of the retried run, as the model of this run gets it."""
    call = requested.call
    whose = f" of {call.agent}" if call.agent else ""
    text = f"[call_settled {call.name} {call.id}{whose}] {_STATEMENTS[status].format(said=said)}"
    data: Json = {"response": call.response, "said": [] if said is None else [said], **({"by": by} if by else {})}
    return _entry(requested, "permission", status=status, message=user(text), data=data)


def _permission(requested: _Asked, status: str, by: str | None) -> Entry:
    return _entry(requested, "permission", status=status, data={"by": by} if by else {})


def _answer(requested: _Asked, content: Any, status: str, *, is_error: bool, by: str | None = None) -> Entry:
    block = tool_result(requested.call.id, content, is_error=is_error)
    data = {"by": by} if by else {}
    return _entry(requested, "tool_call", status=status, message=block, data=data, reply_to=requested.call.response)


def _entry(requested: _Asked, kind: str, **fields: Any) -> Entry:
    run, call = requested.situation.run, requested.call
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


def _reply_content(reply: Entry | Stitch) -> _Words:
    """Return what a reply says. Media are not compared, since they may be stored elsewhere."""
    lines: list[Any] | None = reply.data.get("said")
    return reply.status, _texts(reply.message) if lines is None else lines


def _asks_for(wait: Wait, kind: str, call: Call) -> bool:
    """True if a wait asks for a reply of this kind to this call."""
    return wait.kind == kind and _names(wait, call)


def _names(wait: Wait, call: Call) -> bool:
    """True if a wait names this call. Other calls may have the same id, so the key decides."""
    return wait.call_id == call.id and wait.key in (None, call.key)


def _waits_of(pause: Stitch) -> tuple[Wait, ...]:
    return parse_waits(pause.data.get("waiting_for") or ())


def _texts(message: Json | None) -> list[Any]:
    return [block.get("text") for block in blocks(message or {})]


def _state(head: Thread) -> str:
    return "waits for input" if head.status == "waiting" else f"is {head.status}"
