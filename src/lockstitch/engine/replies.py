"""Replies to a waiting thread: `approve`, `deny`, `settle`, `answer`, `submit_results`. They need no agent code.

Each question accepts one reply. Every reply is a delivery whose sender names the question: the kind of wait, the
position of the response that made the call, and the index of the call. The store never deletes the row of a delivery
and accepts one row per sender and call. So of two different replies one is accepted and the other raises
`AlreadyAnswered`, in any process, whether the thread is held or not, and also after the run has continued or ended.
Repeating the same reply has no effect and succeeds.

A request names a call by its id or by its key, both as in `waiting_for`. Some providers repeat ids in each response. An
id names the call that waits now. If several calls with this id wait, such as those of two team members, the request is
refused. A key names one call only: if the request is repeated later, it finds no other call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lockstitch.engine.decision.decide import IN_DOUBT
from lockstitch.engine.decision.snapshot import Call, RunSnapshot
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import AlreadyAnswered, NoOpenRun, NotFound, Refused, ThreadWaiting
from lockstitch.model import (
    ApprovalWait,
    Delivery,
    Entry,
    FrontendToolWait,
    InDoubtWait,
    Json,
    QuestionWait,
    Stitch,
    Thread,
    Wait,
    format_time,
    parse_time,
    parse_waits,
    person_waits,
    tool_result,
    tool_uses,
)
from lockstitch.model.message import blocks, user
from lockstitch.store import Store, Where
from lockstitch.store.threads import ThreadRef


async def approve(store: Store, ref: ThreadRef, call_id: str, *, by: str | None = None) -> None:
    """Approve a call that waits for a person.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.
        call_id: Id or key of the call.
        by: Name of the person, for the log.

    Raises:
        NotFound: If the thread does not exist, or if no such call waits for approval.
        AlreadyAnswered: If a different reply was accepted.
        NoOpenRun: If the thread has no open run.
        Refused: If several waiting calls have this id.
    """

    def make_replies(waiting: WaitingThread) -> _Replies:
        call = waiting.call(ApprovalWait.KIND, call_id)
        return [(ApprovalWait.KIND, call, _permission(call, "approved", by))]

    await _reply(store, ref, make_replies, [(ApprovalWait.KIND, call_id, ("approved", []))])


async def deny(store: Store, ref: ThreadRef, call_id: str, *, reason: str | None = None, by: str | None = None) -> None:
    """Deny a call that waits for a person. The model gets a tool result that says so.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.
        call_id: Id or key of the call.
        reason: Reason, which the model gets.
        by: Name of the person, for the log.

    Raises:
        NotFound: If the thread does not exist, or if no such call waits for approval.
        AlreadyAnswered: If a different reply was accepted.
        NoOpenRun: If the thread has no open run.
        Refused: If several waiting calls have this id.
    """
    text = "A person refused this call." + (f" Reason: {reason}" if reason else "")

    def make_replies(waiting: WaitingThread) -> _Replies:
        call = waiting.call(ApprovalWait.KIND, call_id)
        return [(ApprovalWait.KIND, call, _answer(call, text, "denied", is_error=True, by=by))]

    await _reply(store, ref, make_replies, [(ApprovalWait.KIND, call_id, ("denied", [text]))])


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
    """State the outcome of a call in doubt. Pass exactly one of `done`, `redo` and `unknown`.

    If a retry asks, the call belongs to an earlier run and is not repeated here: the model gets the statement and
    decides whether to make a new call.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.
        call_id: Id or key of the call.
        done: Result of the call, if it completed.
        redo: Run the call again.
        unknown: The outcome is unknown. The model gets a message that says so, as with `on_doubt="tell"`.
        by: Name of the person, for the log.

    Raises:
        NotFound: If the thread does not exist, or if no such call waits for its outcome.
        AlreadyAnswered: If a different reply was accepted.
        NoOpenRun: If the thread has no open run.
        Refused: If several waiting calls have this id, or if not exactly one outcome is passed.
    """
    if (done is not None) + redo + unknown != 1:
        raise Refused("Pass exactly one of done (the result of the call), redo and unknown. Nothing was changed.")
    status = "settled" if done is not None else "redo" if redo else "in_doubt"
    content = done if done is not None else IN_DOUBT if unknown else None

    def make_replies(waiting: WaitingThread) -> _Replies:
        call = waiting.call(InDoubtWait.KIND, call_id)
        if call.call.earlier:
            return [(InDoubtWait.KIND, call, _statement(call, status, content, by))]
        if content is None:
            return [(InDoubtWait.KIND, call, _permission(call, status, by))]
        return [(InDoubtWait.KIND, call, _answer(call, content, status, is_error=unknown, by=by))]

    await _reply(
        store, ref, make_replies, [(InDoubtWait.KIND, call_id, (status, [] if content is None else [content]))]
    )


async def submit_results(store: Store, ref: ThreadRef, results: Sequence[Json]) -> None:
    """Submit the results of calls to frontend tools: of all calls that the thread waits for, in one request.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.
        results: One {"tool_use_id", "content", "is_error"?} for each call. `tool_use_id` is the id or the key of
            the call.

    Raises:
        NotFound: If the thread does not exist.
        ThreadWaiting: If the thread does not wait for frontend tools.
        AlreadyAnswered: If different results were accepted.
        Refused: If the results are not those of exactly the waiting calls.
    """
    repeated: list[_RepeatedReply] = []
    for result in results:
        block = tool_result("", result.get("content", ""), is_error=bool(result.get("is_error")))
        status = "error" if result.get("is_error") else "ok"
        repeated.append((FrontendToolWait.KIND, str(result.get("tool_use_id")), (status, _texts(block))))
    await _reply(store, ref, lambda waiting: _results(waiting, results), repeated)


def _results(waiting: "WaitingThread", results: Sequence[Json]) -> "_Replies":
    pending = waiting.pending(FrontendToolWait.KIND)
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
        # A browser knows only ids, so results of calls with the same id are assigned in the order of the calls.
        earlier_calls = [waiting_call for _, waiting_call, _ in replies]
        call = waiting.call(FrontendToolWait.KIND, str(result["tool_use_id"]), earlier_calls, first=True)
        failed = bool(result.get("is_error"))
        content: Any = result.get("content", "")
        status = "error" if failed else "ok"
        replies.append((FrontendToolWait.KIND, call, _answer(call, content, status, is_error=failed)))
    return replies


async def answer(store: Store, ref: ThreadRef, text: str, *, call_id: str | None = None, by: str | None = None) -> None:
    """Answer a question that a thread asked during a run.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.
        text: The answer.
        call_id: Id or key of the call that asked. None: the first question.
        by: Name of the person, for the log.

    Raises:
        NotFound: If the thread does not exist, or if the call asked no question.
        ThreadWaiting: If the thread has no open question.
        AlreadyAnswered: If a different answer was accepted.
        NoOpenRun: If the thread has no open run.
    """

    def make_replies(waiting: WaitingThread) -> _Replies:
        questions = waiting.pending(QuestionWait.KIND)
        if not questions:
            raise ThreadWaiting(
                f"Thread {waiting.head.id} has no open question. It {_state(waiting.head)}.", thread_id=waiting.head.id
            )
        call = waiting.call(QuestionWait.KIND, call_id or questions[0], first=call_id is None)
        return [(QuestionWait.KIND, call, _answer(call, text, "ok", is_error=False, by=by))]

    await _reply(store, ref, make_replies, [(QuestionWait.KIND, call_id, ("ok", [text]))])


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A call that waits for a reply of a person or a frontend."""

    kind: str
    """Kind of the wait: `approval`, `doubt`, `input` or `frontend_tools`."""
    call_id: str
    """Id of the call. Other waiting calls may have the same id."""
    key: str
    """Key of the call, which is unique."""
    name: str
    """Name of the tool."""
    input: Any
    """Arguments of the call."""
    question: str | None
    """Question to a person, if the call asks one."""
    member: str | None
    """Team member that made the call, or None."""
    since: datetime | None
    """Time at which the thread started to wait."""

    @classmethod
    def from_json(cls, value: Json) -> "PendingReply":
        """Return the reply from its JSON.

        Args:
            value: JSON of `as_json`.
        """
        since = value["since"]
        return cls(
            kind=value["kind"],
            call_id=value["call_id"],
            key=value["call_key"],
            name=value["tool"],
            input=value["input"],
            question=value["question"],
            member=value["member"],
            since=parse_time(since) if since else None,
        )

    def as_json(self) -> Json:
        """Return the reply that is needed as JSON."""
        return {
            "kind": self.kind,
            "call_id": self.call_id,
            "call_key": self.key,
            "tool": self.name,
            "input": self.input,
            "question": self.question,
            "member": self.member,
            "since": format_time(self.since) if self.since else None,
        }


async def pending_replies(store: Store, ref: ThreadRef) -> list[PendingReply]:
    """Return the calls of a thread that wait for a reply, the longest wait first. An ended thread has none.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.

    Raises:
        NotFound: If the thread does not exist.
    """
    waiting = await WaitingThread.of(store, ref)
    pending = [await _pending(waiting, wait, call) for wait, call in waiting.open_calls()]
    return sorted(pending, key=lambda reply: format_time(reply.since) if reply.since else "")


async def waiting_calls(store: Store, head: Thread) -> list[PendingReply]:
    """Return the calls of a thread that wait for a reply, for an inbox.

    A thread without an open run may have waits that an application wrote. Then these are returned.

    Args:
        store: Open store with the thread.
        head: The thread.

    Raises:
        NotFound: If the thread does not exist.
    """
    return await pending_replies(store, head) or [
        PendingReply(
            kind=wait.kind,
            call_id=wait.call_id or "",
            key=wait.key or wait.call_id or "",
            name=wait.name or "",
            input=None,
            question=wait.question if isinstance(wait, QuestionWait) else None,
            member=wait.agent,
            since=wait.since,
        )
        for wait in person_waits(head.waits)
    ]


async def _pending(waiting: "WaitingThread", wait: Wait, waiting_call: "_WaitingCall") -> PendingReply:
    call = waiting_call.call
    arguments = call.input
    if call.earlier:
        # The response of the retried run has the arguments.
        stitches = await waiting.store.stitches(waiting.head, call.response, call.response)
        requested = tool_uses(stitches[0].message) if stitches else []
        arguments = requested[call.index].get("input") if call.index < len(requested) else arguments
    run = waiting_call.snapshot.run
    member = run.agent if run is not None and run.parent_run_id is not None else None
    question = wait.question if isinstance(wait, QuestionWait) else None
    return PendingReply(
        wait.kind, call.id, call.key, call.name, arguments, question, wait.agent or call.agent or member, wait.since
    )


_Replies = list[tuple[str, "_WaitingCall", Entry]]
"""For each reply: the kind of wait, the call, and the entry."""

_REPLIES: Final = 100
"""Number of recent replies that are searched for a repeated one."""

_ReplyContent = tuple[str | None, list[Any]]
"""The status of a reply and its texts."""

_RepeatedReply = tuple[str, str | None, _ReplyContent]
"""The parts by which a repeated reply is recognised: the kind of wait, the id of the call (None: the last call of this
kind), and the content."""


async def _reply(
    store: Store,
    ref: ThreadRef,
    make_replies: "Callable[[WaitingThread], _Replies]",
    repeated: Sequence[_RepeatedReply],
) -> None:
    """Deliver the replies. If the thread changed since it was read, try again.

    If the thread does not wait for a reply, the call succeeds only if the same reply was accepted before.
    """
    while True:
        waiting = await WaitingThread.of(store, ref)
        try:
            replies = make_replies(waiting)
        except (NotFound, ThreadWaiting):
            accepted = [await waiting.replied(*reply) for reply in repeated]
            if accepted and all(accepted):
                return
            raise
        if await waiting.reply(replies):
            return


class WaitingThread:
    """A thread that waits, its open runs, and the calls that they wait for."""

    def __init__(self, store: Store, head: Thread, snapshots: Sequence[RunSnapshot]) -> None:
        self.store = store
        self.head = head
        self.snapshots = snapshots

    @classmethod
    async def of(cls, store: Store, ref: ThreadRef) -> "WaitingThread":
        """Read a thread and its open runs from the store."""
        head = await store.thread(ref)
        session = await RunSession.load(store, head)
        lanes = [lane for lane in session.thread_session.lanes if isinstance(lane, RunSession)]
        return cls(store, head, [lane.snapshot for lane in lanes] if session.run is not None else [])

    def pending(self, kind: str) -> list[str]:
        """Return the ids of the calls that wait for a reply of this kind."""
        if not self.snapshots:
            head = self.head
            raise NoOpenRun(f"Thread {head.id} has no open run. It {_state(head)}.", thread_id=head.id)
        return [
            wait.call_id
            for snapshot in self.snapshots
            for wait in self._waits(snapshot)
            if wait.kind == kind and wait.call_id is not None
        ]

    def open_calls(self) -> "list[tuple[Wait, _WaitingCall]]":
        """Return the calls that wait for a reply, with their waits."""
        return [
            (wait, waiting_call)
            for snapshot in self.snapshots
            for wait in self._waits(snapshot)
            if wait.needs_person
            for call in snapshot.calls
            if _asks_for(wait, wait.kind, call)
            and self._is_open(wait.kind, waiting_call := _WaitingCall(snapshot, call))
        ]

    def ids_by_key(self) -> dict[str, str]:
        """Return the ids of the open calls by their keys."""
        return {call.key: call.id for snapshot in self.snapshots for call in snapshot.calls}

    def call(
        self, kind: str, call_id: str, but: "Sequence[_WaitingCall]" = (), *, first: bool = False
    ) -> "_WaitingCall":
        """Return the call that waits for a reply of this kind, without those in `but`. With `first`, the first of
        several.

        Raises `NotFound` if no call waits, and `Refused` if several calls with this id wait.
        """
        self.pending(kind)
        matches = [
            waiting_call
            for snapshot in self.snapshots
            for call in snapshot.calls
            if call_id in (call.id, call.key)
            and (waiting_call := _WaitingCall(snapshot, call)) not in but
            and self._is_open(kind, waiting_call)
        ]
        if len(matches) == 1 or (matches and first):
            return matches[0]
        if matches:
            keys = ", ".join(f"{waiting_call.call.key} ({waiting_call.call.name})" for waiting_call in matches)
            raise Refused(
                f"{len(matches)} calls with the id {call_id} wait for {kind} in thread {self.head.id}. "
                f"Choose one of them by its key: {keys}. Nothing was changed."
            )
        waits = [wait for snapshot in self.snapshots for wait in self._waits(snapshot)]
        pending = ", ".join(f"{wait.kind} {wait.call_id}" for wait in waits) or "nothing"
        raise NotFound(f"Thread {self.head.id} does not wait for {kind} of call {call_id}. It waits for {pending}.")

    def _is_open(self, kind: str, waiting_call: "_WaitingCall") -> bool:
        """True if the run waits for this reply and the log has no reply to it since the run paused."""
        snapshot, call = waiting_call.snapshot, waiting_call.call
        if not any(_asks_for(wait, kind, call) for wait in self._waits(snapshot)):
            return False
        return call.state != "answered" and not any(
            stitch.position > waiting_call.paused_at(kind)
            and stitch.type in ("permission", "tool_started")
            and stitch.call_index == call.index
            for stitch in snapshot.after_response
            if not call.earlier
        )

    async def reply(self, replies: _Replies) -> bool:
        """Deliver the replies. Return False if the thread ended since it was read, so that none was accepted."""
        deliveries: list[Delivery] = [
            self.store.new_delivery(self.head, entry, kind, waiting_call.question(kind), waiting_call.call.key)
            for kind, waiting_call, entry in replies
        ]
        receipts = await self.store.execution.deliver_all(self.head, deliveries)
        repeated = [delivery for delivery, receipt in zip(deliveries, receipts, strict=True) if not receipt.new]
        return all([await self._same_reply_exists(delivery) for delivery in repeated])

    async def _same_reply_exists(self, delivery: Delivery) -> bool:
        """True if the accepted reply to this question is the same. False if there is none, because the thread has
        ended.

        Raises `AlreadyAnswered` if the accepted reply is different.
        """
        first = await self.store.execution.earlier_delivery(delivery)
        if first is None:
            return False
        self._compare(first, _reply_content(delivery.as_entry()))
        return True

    async def replied(self, kind: str, call_id: str | None, content: _ReplyContent) -> bool:
        """True if this reply was accepted before, False if none was. Raises `AlreadyAnswered` if a different one
        was."""
        where = (Where("thread_id", "=", self.head.id), Where("kind", "=", kind), Where("call_id", "!=", ""))
        for delivery in await self.store.table(Delivery).find(*where, order=("-at", "-id"), limit=_REPLIES):
            first = await self.store.execution.earlier_delivery(delivery)
            if first is not None and call_id in (None, delivery.call_id, first.call_id):
                self._compare(first, content)
                # Frontend results are refused once the run has continued.
                return kind != FrontendToolWait.KIND or delivery.call_id in self.ids_by_key()
        return False

    def _compare(self, first: Entry | Stitch, content: _ReplyContent) -> None:
        if _reply_content(first) != content:
            raise AlreadyAnswered(
                f"Call {first.call_id} of thread {self.head.id} already has a different reply ({first.status}). "
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
class _WaitingCall:
    """A call that waits, and the snapshot of its run."""

    snapshot: RunSnapshot
    call: Call

    def paused_at(self, kind: str) -> int:
        """Return the position of the last pause that asks for this call; 0 if the pause is not in the log."""
        pauses = [stitch for stitch in self.snapshot.after_response if stitch.type == "run_paused"]
        asking = [
            pause.position for pause in pauses if any(_asks_for(wait, kind, self.call) for wait in _waits_of(pause))
        ]
        return max(asking, default=0)

    def question(self, kind: str) -> str:
        """Return the id of the question.

        A call can be in doubt again, so the id also contains the attempt: the position of the `tool_started` entry, or
        of the run that retries the run of the call.
        """
        name = f"{kind}:{self.call.response}.{self.call.index}"
        if kind != InDoubtWait.KIND:
            return name
        if self.call.earlier:
            assert self.snapshot.run is not None
            return f"{name}:{self.snapshot.run.first_position}"
        marks = [
            stitch.position
            for stitch in self.snapshot.after_response
            if stitch.type == "tool_started" and stitch.call_index == self.call.index
        ]
        return f"{name}:{max(marks, default=0)}"


_STATEMENTS: Final = {
    "settled": "It took effect. Its result: {said}",
    "redo": "It did not take effect. You may make this call again.",
    "in_doubt": "Whether it took effect is still unknown. Check before you make this call again, or tell the user.",
}


def _statement(waiting_call: _WaitingCall, status: str, result: str | None, by: str | None) -> Entry:
    """Return the entry with a person's statement about a call of the retried run. The model gets its message."""
    call = waiting_call.call
    whose = f" of {call.agent}" if call.agent else ""
    text = f"[call_settled {call.name} {call.id}{whose}] {_STATEMENTS[status].format(said=result)}"
    data: Json = {"response": call.response, "said": [] if result is None else [result], **({"by": by} if by else {})}
    return _entry(waiting_call, "permission", status=status, message=user(text), data=data)


def _permission(waiting_call: _WaitingCall, status: str, by: str | None) -> Entry:
    return _entry(waiting_call, "permission", status=status, data={"by": by} if by else {})


def _answer(waiting_call: _WaitingCall, content: Any, status: str, *, is_error: bool, by: str | None = None) -> Entry:
    block = tool_result(waiting_call.call.id, content, is_error=is_error)
    data = {"by": by} if by else {}
    return _entry(
        waiting_call, "tool_call", status=status, message=block, data=data, reply_to=waiting_call.call.response
    )


def _entry(waiting_call: _WaitingCall, kind: str, **fields: Any) -> Entry:
    run, call = waiting_call.snapshot.run, waiting_call.call
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


def _reply_content(reply: Entry | Stitch) -> _ReplyContent:
    """Return the content of a reply. Media are not compared, because they may be stored elsewhere."""
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
