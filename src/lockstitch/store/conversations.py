"""Threads that start with a goal, a message, imported messages or as a fork, and messages for a worker."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from lockstitch.backend import Fields, JoinsTransactions, Where
from lockstitch.errors import (
    Conflict,
    KeyTaken,
    MessageIdReused,
    NotFound,
    Refused,
    ThreadEnded,
    ThreadHeld,
    ThreadWaiting,
)
from lockstitch.model import (
    Delivery,
    Entry,
    Json,
    Message,
    NextMessageWait,
    Run,
    Stitch,
    Thread,
    TimerWait,
    answer_of,
    codec,
    context,
    new_id,
    open_calls,
    tool_result,
)
from lockstitch.model.delivery import MESSAGE_ID_CHARS, is_at_rest, message_entry, message_sender
from lockstitch.model.message import blocks, tool_uses, user
from lockstitch.store.core import StoreCore
from lockstitch.store.queries.log import InheritedTurns, first_own_turn, inherited_turns
from lockstitch.store.threads import ThreadRef, referenced_id
from lockstitch.store.transaction import ThreadUpdate, Transaction

_NO_RESULT = "This call has no result in the imported conversation."


async def import_messages(store: StoreCore, messages: Sequence[Message], fields: Fields) -> Thread:
    """Write messages as turns, in one append. The context of the thread then equals these messages.

    A turn starts with a user message. A call without a result gets an error result, so that the context is valid. If a
    message has results and text, the text becomes a separate message after them. All messages are checked before the
    thread is created.
    """
    planned = store._new_thread(fields)
    runs: list[Run] = []
    entries: list[Entry] = []
    for turn in _turns(messages):
        run = store.new_run(planned, status="completed", stop_reason="end_turn", source="adopted")
        lines, answered_at = _entries(turn, run, planned.position)
        codec.dumps([entry.message for entry in lines])
        entries += lines
        runs.append(
            run.changed(
                input_position=run.first_position if lines[0].type == "input" else None,
                output_position=answered_at,
                steps=sum(entry.type == "llm_call" for entry in lines),
                completed_at=store.clock.now(),
            )
        )
        planned = planned.changed(position=len(entries), last_sequence=run.sequence, last_turn=run.turn)
    head = await store._create(fields)
    if not entries:
        return head
    resting_fields = {"status": "waiting", "waiting_for": [NextMessageWait(store.clock.now()).as_json()]}
    return (await store.append(head, entries, fields=resting_fields, new_runs=runs)).head


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages as turns. Raises `Refused` if a role is not valid."""
    turns: list[list[Message]] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            raise Refused(
                f"Message {number} has the role {role!r}. A conversation has only user and assistant messages. "
                "Put system texts into settings, and tool results into user messages as tool_result blocks."
            )
        starts_turn = role == "user" and not any(block.get("type") == "tool_result" for block in blocks(message))
        if starts_turn or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


class _OpenCall(NamedTuple):
    """A call without a result: the position of its response, and its index in it."""

    response: int
    place: int
    id: str
    name: str


def _entries(turn: Sequence[Message], run: Run, position: int) -> tuple[list[Entry], int | None]:
    """Return the entries of one turn, and the position of its last answer."""
    entries: list[Entry] = []
    open_calls: list[_OpenCall] = []
    answered_at: int | None = None
    step = 0

    def answer(call: _OpenCall, block: Json) -> None:
        open_calls.remove(call)
        status = "error" if block.get("is_error") else "ok"
        entries.append(
            Entry(
                type="tool_call",
                run_id=run.id,
                step_number=step,
                reply_to=call.response,
                call_index=call.place,
                name=call.name,
                call_id=call.id,
                status=status,
                message=block,
            )
        )

    for message in turn:
        if message["role"] == "assistant":
            step += 1
            calls = tool_uses(message)
            if any(not call.get("id") or not call.get("name") for call in calls):
                raise Refused("A tool call of this conversation has no id or no name.")
            status = "tool_use" if calls else "end_turn"
            entries.append(Entry(type="llm_call", run_id=run.id, step_number=step, status=status, message=message))
            here = position + len(entries)
            answered_at = here if answer_of(message) else answered_at
            open_calls += [
                _OpenCall(here, index, str(call["id"]), str(call["name"])) for index, call in enumerate(calls)
            ]
            continue
        results = [block for block in blocks(message) if block.get("type") == "tool_result"]
        for block in results:
            call_id = str(block.get("tool_use_id"))
            same = [call for call in open_calls if call.id == call_id]
            if not same:
                raise Refused(f"The result {call_id} answers no call of this conversation.")
            # Ids may repeat. A result belongs to the first open call with its id in the last response that has one.
            answer(next(call for call in same if call.response == same[-1].response), block)
        lines = [block for block in blocks(message) if block.get("type") != "tool_result"]
        if lines or not results:
            words = message if not results else {"role": "user", "content": lines}
            entries.append(Entry(type="input", run_id=run.id, step_number=0, message=words))
    for call in list(open_calls):
        answer(call, tool_result(call.id, _NO_RESULT, is_error=True))
    return entries, answered_at


MAX_REPLACED = 20
"""Number of replaced threads that a fork names. Messages of older ones are new in the fork."""

NOT_CARRIED_OVER = "This call was not carried over into the fork. It has no result here."


class ForkPoint(NamedTuple):
    """The place where a fork starts: after a position of the thread that contains it."""

    source: Thread
    position: int
    """Last position to include. 0: none, so the context of the fork is empty."""


async def fork_point(core: StoreCore, head: Thread, at: int | None, before_turn: int | None) -> ForkPoint:
    """Return the place of a fork. Raises `Refused` if the thread has no such position or turn."""
    if before_turn is not None:
        if at is not None:
            raise Refused("Pass `at` or `before_turn`, not both.")
        source, run = await _turn(core, head, before_turn)
        return ForkPoint(source, min(run.first_position, run.input_position or run.first_position) - 1)
    position = head.position if at is None else at
    if not 1 <= position <= head.position:
        raise Refused(f"Thread {head.id} has positions 1 to {head.position}. It cannot be forked at {position}.")
    return ForkPoint(head, position)


async def _turn(core: StoreCore, head: Thread, number: int) -> tuple[Thread, Run]:
    """Return the top-level run of a turn, and the thread that contains it. A fork may have inherited the turn."""
    source = head
    if number < first_own_turn(head):
        part = next((part for part in inherited_turns(head) if part.first_turn <= number), None)
        if part is not None:
            try:
                source = await core.thread(part.thread_id)
            except NotFound as exc:
                raise Refused(
                    f"Turn {number} of thread {head.id} belongs to thread {part.thread_id}, which was deleted."
                ) from exc
    runs = await core.find_runs(
        source.id, Where("parent_run_id", "is null"), Where("turn", "=", number), order=("-sequence",), limit=1
    )
    if not runs:
        raise Refused(f"Thread {head.id} has no turn {number}. Its turns are 1 to {head.last_turn}.")
    return source, runs[0]


async def fork(core: StoreCore, head: Thread, point: ForkPoint, fields: Fields, *, take_key: bool) -> Thread:
    """Create a thread with the context at a position. Its fork stitch contains the context. See `Store.fork`."""
    transaction = await fork_transaction(core, head, point, fields, take_key=take_key)
    await core.commit(transaction)
    return await core.thread(transaction.new_threads[0].id)


async def fork_transaction(
    core: StoreCore,
    head: Thread,
    point: ForkPoint,
    fields: Fields,
    *,
    take_key: bool = False,
    replaces: Sequence[UUID] = (),
    state: Json | None = None,
) -> Transaction:
    """Return the transaction that creates a fork of `head`. With `take_key`, `head` loses its key to the fork.

    The fork has accepted all messages of the threads that it replaces. `state` is added to the state of the fork.

    Calls without a result at that position get an error result, so that the context of the fork is valid.
    """
    source, position = point
    log = await core.execution.context_stitches(source, until=position) if position else []
    origin: Json = {"thread_id": str(source.id), "position": position}
    inherited = await inherited_by_fork(core, source, position)
    settings = {name: value for name, value in head.settings.items() if name != "texts"}
    fork_state: Json = {"forked_from": origin, "inherited": [part.as_json() for part in inherited], **(state or {})}
    if replaces:
        fork_state["replaces"] = [str(id) for id in replaces[:MAX_REPLACED]]
    values: Fields = {
        "user_id": head.user_id,
        "agent": head.agent,
        "version": head.version,
        "extras": head.extras,
        "settings": settings,
        "state": fork_state,
        # The fork continues the numbers of the turns, so that a number names one turn of its history.
        "last_turn": inherited[0].last_turn if inherited else 0,
        **fields,
    }
    thread = core._new_thread(values)
    entry = Entry(type="fork", data={"forked_from": origin, "messages": _messages(log)})
    transaction = Transaction([ThreadUpdate(thread, [entry])], new_threads=[thread])
    if take_key and head.key is not None:
        transaction.move_key(head, thread)
    return transaction


def _replaced(head: Thread) -> list[UUID]:
    """Return the threads that `regenerate` replaced by this one, newest first. A sender may not know of the fork."""
    ids: list[str] = head.state.get("replaces") or []
    return [UUID(id) for id in ids]


async def inherited_by_fork(core: StoreCore, source: Thread, position: int) -> list[InheritedTurns]:
    """Return the turns that a fork of `source` after this position inherits, newest first."""
    where = (Where("parent_run_id", "is null"), Where("first_position", "<=", position))
    runs = await core.find_runs(source.id, *where, order=("-turn",), limit=1)
    earlier = inherited_turns(source)
    if not runs:
        return earlier
    return [InheritedTurns(source.id, position, first_own_turn(source), runs[0].turn), *earlier]


async def regenerate(
    core: StoreCore,
    head: Thread,
    turn: int | None,
    message: Message | None,
    agent: str | None,
    message_id: str | None,
) -> "EnqueuedMessage":
    """Fork a thread before a turn and leave the message of the turn, or another one, for a worker.

    See `Store.regenerate`.
    """
    if checked_message_id(message_id) is None:
        return await _regenerate(core, head, turn, message, agent, new_id(), message_sender(None), {})
    sender = f"regenerate:{message_id}"
    identity: Json = {"message_id": message_id, "sha256": codec.digest([turn, message])}
    fork_id = _id_from(core.project, str(head.id), sender)
    requested = (head.id, fork_id, *_replaced(head))
    earlier = await _regenerated(core, requested, sender, identity)
    if earlier is not None:
        return earlier
    try:
        return await _regenerate(core, head, turn, message, agent, fork_id, sender, identity)
    except Conflict:
        # Another caller may have sent the same request at the same time.
        earlier = await _regenerated(core, requested, sender, identity)
        if earlier is None:
            raise
        return earlier


async def _regenerated(
    core: StoreCore, thread_ids: Sequence[UUID], sender: str, identity: Json
) -> "EnqueuedMessage | None":
    """Return the message of an earlier request with the same id. By the key, the caller may have found a fork.

    Raises `MessageIdReused` if the earlier request had another turn or message.
    """
    for thread_id in thread_ids:
        delivery = await core.execution.delivery_from(thread_id, sender)
        if delivery is not None:
            await _require_same_content(core, delivery, identity)
            return EnqueuedMessage(await core.thread(thread_id), delivery.id, new=False)
    return None


async def _regenerate(
    core: StoreCore,
    head: Thread,
    turn: int | None,
    message: Message | None,
    agent: str | None,
    fork_id: UUID,
    sender: str,
    identity: Json,
) -> "EnqueuedMessage":
    if head.held:
        raise ThreadHeld(
            f"Thread {head.id} is held by worker {head.worker_id}. Cancel its run first, or wait for its end.",
            thread_id=head.id,
        )
    if not head.ended and not is_at_rest(head):
        raise ThreadWaiting(
            f"Thread {head.id} has an open run or a message. Cancel the run first, or wait for its end.",
            thread_id=head.id,
        )
    source, run = await _turn(core, head, head.last_turn if turn is None else turn)
    if message is None:
        stitches = [] if run.input_position is None else await core.stitches(source, *[run.input_position] * 2)
        message = stitches[0].message if stitches else None
        if message is None:
            raise Refused(f"Turn {run.turn} of thread {head.id} has no message that can be sent again.")
    entry = message_entry(message, extras=run.extras, metadata=run.metadata, tags=run.tags)
    entry = entry.changed(data=entry.data | identity)
    codec.dumps(entry.as_json())
    point = await fork_point(core, head, None, run.turn)
    fields: Fields = {"id": fork_id, "kind": "chat", **({} if agent is None else {"agent": agent})}
    if agent not in (None, head.agent):
        fields["version"] = None
    replaces = () if head.key is None else (head.id, *_replaced(head))
    transaction = await fork_transaction(core, head, point, fields, take_key=True, replaces=replaces)
    delivery = core.new_delivery(transaction.new_threads[0], entry, "input", sender)
    transaction.deliveries.append(delivery)
    await core.commit(transaction)
    return EnqueuedMessage(await core.thread(delivery.thread_id), delivery.id)


def _messages(log: list[Stitch], lane: UUID | None = None) -> list[Message]:
    """Return the context with an error result for every open call."""
    messages = context(log, lane)
    open_ = {(response.position, str(call.get("id"))) for response, call in open_calls(log, lane)}
    if not open_:
        return messages
    response = max((stitch for stitch, _ in open_calls(log, lane)), key=lambda stitch: stitch.position)
    results = {
        stitch.call_index: stitch.message
        for stitch in log
        if stitch.type == "tool_call" and stitch.reply_to == response.position
    }
    answers = [
        results.get(index) or tool_result(str(call.get("id")), NOT_CARRIED_OVER, is_error=True)
        for index, call in enumerate(tool_uses(response.message))
    ]
    return [*messages, user(answers)]


Task = Json | str
"""A task of a goal: its description, or JSON with `description` and other fields."""


async def start(store: StoreCore, fields: Fields, at: datetime | None, connection: object | None) -> Thread:
    """Create a thread that waits for a worker, or for the time `at`. See `Store.start`."""
    values = {**fields, **(_waiting_until(at, store.clock.now()) if at is not None else {})}
    if connection is None:
        return await store._create(values)
    if values.get("parent_id") is not None:
        raise Refused("A child thread cannot be created over `connection`. Remove `parent_id` or `connection`.")
    if not isinstance(store._backend, JoinsTransactions):
        raise Refused("Only PostgreSQL supports `connection`. Remove it.")
    thread = store._new_thread(values)
    await store._backend.insert_within(connection, thread)
    return thread


def numbered_tasks(tasks: Sequence[Task]) -> list[Json]:
    """Return the tasks in their stored form, each with an id, a description and a status."""
    return [
        {"id": str(number), "status": "pending", **(task if isinstance(task, Mapping) else {"description": task})}
        for number, task in enumerate(tasks, start=1)
    ]


def _waiting_until(at: datetime, now: datetime) -> dict[str, Any]:
    """Return the fields of a thread that waits until a time. Empty if the time is past."""
    if at.tzinfo is None:
        raise Refused("`at` needs a time zone, for example datetime.now(UTC) + timedelta(hours=1).")
    at = at.astimezone(UTC)
    if at <= now:
        return {}
    return {"status": "waiting", "waiting_for": [TimerWait(now, until=at).as_json()], "wake_at": at}


class EnqueuedMessage(NamedTuple):
    """The result of `Store.enqueue`."""

    thread: Thread
    """The thread as it was before the message, or the new thread."""
    run_id: UUID
    """Id of the run that will answer the message. A worker stores the run when it starts.

    If the thread works on a goal, the message enters the run of that goal instead. `result_for` finds the answer by
    this id in both cases.
    """
    new: bool = True
    """False if the thread had accepted a message with this id before."""


async def enqueue(
    store: StoreCore, agent: str | None, entry: Entry, ref: ThreadRef | None, *, kind: str, user_id: str | None
) -> EnqueuedMessage:
    """Leave a message for a worker in one commit. See `Store.enqueue`."""
    # Fail before anything is written, also before the blobs of the message.
    codec.dumps(entry.as_json())
    message_id = entry.data.get("message_id")
    if ref is None and message_id is not None:
        ref = thread_id_of_message(store.project, agent, user_id, message_id)
    while True:
        head = await _known_thread(store, ref, user_id)
        try:
            if head is None:
                return await _enqueue_in_new_thread(store, agent, entry, ref, kind, user_id)
            if message_id is not None:
                run_id = await accepted_message(store, head, message_id, entry.data["sha256"])
                if run_id is not None:
                    return EnqueuedMessage(head, run_id, new=False)
            _require_started_or_due(head)
            return await _enqueue_in_thread(store, agent, entry, head)
        except KeyTaken:
            # Another caller has created the thread since then. In another project its id stays unknown here.
            if await _known_thread(store, ref, user_id) is None:
                raise


def checked_message_id(message_id: str | None) -> str | None:
    """Return the id of a message. Raises `Refused` if it is empty, too long or not storable."""
    if message_id is None:
        return None
    if not 1 <= len(message_id) <= MESSAGE_ID_CHARS:
        raise Refused(f"A message id has 1 to {MESSAGE_ID_CHARS} characters. This one has {len(message_id)}.")
    return codec.check_text(message_id, "The message id")


def thread_id_of_message(project: str, agent: str | None, user_id: str | None, message_id: str) -> UUID:
    """Return the id of the thread that a message with an id creates if it names no thread.

    A second message of the same user with this id to this agent goes to the same thread, where the id is known.
    """
    return _id_from(project, agent, user_id, message_id)


def _id_from(*values: str | None) -> UUID:
    """Return the id of a thread that is derived from values, so that the same values give the same id."""
    return uuid5(NAMESPACE_OID, codec.dumps(["lockstitch:message", *values]).decode())


async def accepted_message(store: StoreCore, head: Thread, message_id: str, digest: str) -> UUID | None:
    """Return the id of the run that answers the message with this id; None if the thread has not accepted it yet.

    A fork has also accepted the messages of its inherited turns, and all messages of the threads that it replaces.
    `digest` is the hash of the message (`codec.digest`). Raises `MessageIdReused` if the accepted message has another
    content.
    """
    sender = message_sender(message_id)
    first = None
    for thread_id in (head.id, *_replaced(head)):
        first = first or await store.execution.delivery_from(thread_id, sender)
    for part in inherited_turns(head) if first is None else ():
        first = await store.execution.delivery_from(part.thread_id, sender)
        if first is not None and first.position is not None and first.position <= part.position:
            break
        first = None
    if first is None:
        return None
    await _require_same_content(store, first, {"message_id": message_id, "sha256": digest})
    return first.id


async def _require_same_content(store: StoreCore, delivery: Delivery, identity: Json) -> None:
    """Raise `MessageIdReused` if a delivery with the same message id has another content."""
    content = await store.execution.content_of(delivery)
    # An archived stitch is not in the log. Then the content cannot be compared.
    if content is not None and content.data.get("sha256") != identity["sha256"]:
        raise MessageIdReused(
            f"Thread {delivery.thread_id} has accepted another message with the id {identity['message_id']}. "
            "Nothing was changed.",
            thread_id=delivery.thread_id,
        )


async def _known_thread(store: StoreCore, ref: ThreadRef | None, user_id: str | None) -> Thread | None:
    """Return the thread of a key or id; None if it is to be created. Raises `Refused` if it belongs to another user."""
    if ref is None:
        return None
    try:
        head = await store.thread(ref)
    except NotFound:
        if isinstance(ref, Thread):
            raise
        return None
    if user_id is not None and head.user_id != user_id:
        raise Refused(f"Thread {ref.id if isinstance(ref, Thread) else ref} belongs to another user.")
    return head


async def _enqueue_in_new_thread(
    store: StoreCore, agent: str | None, entry: Entry, ref: ThreadRef | None, kind: str, user_id: str | None
) -> EnqueuedMessage:
    """Create the thread together with its first message. Raises `KeyTaken` if the thread exists by now."""
    wanted = None if ref is None else referenced_id(store, ref)
    key = ref if isinstance(ref, str) and wanted is None else None
    thread = store.new_thread(id=wanted, key=key, agent=agent, kind=kind, user_id=user_id)
    try:
        delivery = _message_delivery(store, thread, entry)
        await store.commit(Transaction([ThreadUpdate(thread)], deliveries=[delivery], new_threads=[thread]))
    except KeyTaken:
        raise
    except Conflict as exc:
        raise KeyTaken(
            f"Thread {thread.key or thread.id} exists already, or belongs to another project. Nothing was written.",
            thread_id=thread.id,
        ) from exc
    return EnqueuedMessage(thread, delivery.id)


async def _enqueue_in_thread(store: StoreCore, agent: str | None, entry: Entry, head: Thread) -> EnqueuedMessage:
    """Deliver a message to a thread that exists.

    If the thread waits for its next message and belongs to another agent, the same commit gives it to `agent`. A thread
    that has other messages or an open run keeps its agent: its next runs are those of other callers.
    """
    if agent not in (None, head.agent) and not head.held and is_at_rest(head):
        delivery = _message_delivery(store, head, entry)
        try:
            update = ThreadUpdate(head, fields={"agent": agent, "version": None})
            await store.commit(Transaction([update], deliveries=[delivery]))
        except Conflict as exc:
            if isinstance(exc, ThreadEnded) or exc.thread_id != head.id:
                raise
            return await _enqueue_in_thread(store, agent, entry, await store.thread(head))
        return EnqueuedMessage(head, delivery.id)
    return await deliver_message(store, head, entry)


async def deliver_message(store: StoreCore, head: Thread, entry: Entry) -> EnqueuedMessage:
    """Deliver a message to a thread that exists.

    If the thread has accepted the id of the message before, nothing is written, and the run is that of the first
    message. Raises `MessageIdReused` if the first message has another content.
    """
    if head.kind == "replay":
        raise Refused(f"Thread {head.id} is a replay and takes no messages. Fork it to continue. Nothing was written.")
    message_id = entry.data.get("message_id")
    receipt = await store.deliver(head, entry, kind="input", sender=message_sender(message_id))
    assert receipt.delivery_id is not None
    if not receipt.new and message_id is not None:
        await accepted_message(store, head, message_id, entry.data["sha256"])
    return EnqueuedMessage(head, receipt.delivery_id, receipt.new)


def _message_delivery(store: StoreCore, head: Thread, entry: Entry) -> Delivery:
    return store.new_delivery(head, entry, "input", message_sender(entry.data.get("message_id")))


def _require_started_or_due(head: Thread) -> None:
    """Raise `ThreadWaiting` if a thread waits for the time of its first run."""
    if head.status == "waiting" and not head.last_sequence and head.wait_for(TimerWait.KIND) is not None:
        raise ThreadWaiting(
            f'Thread {head.id} waits for timer. Reply to that first, or pass on_waiting="cancel".',
            thread_id=head.id,
        )


async def reopen(store: StoreCore, head: Thread) -> Thread:
    """Make a thread that failed or was cancelled ready for its next run, in one commit. See `Store.reopen`."""
    if head.kind == "replay":
        raise Refused(f"Thread {head.id} is a replay, which is not retried. Start a new replay. Nothing was written.")
    # A request to cancel may have arrived after the end. It was meant for the run that has ended.
    fields = {"status": "pending", "result": None, "cancel_requested": False}
    return (await store.append(head, fields=fields)).head


async def wake(store: StoreCore, head: Thread) -> Thread:
    """Make a thread ready for a worker now, in one commit. See `Store.wake`."""
    if head.ended:
        raise ThreadEnded(f"Thread {head.id} is {head.status}. Nothing was changed.", thread_id=head.id)
    if head.held:
        raise ThreadHeld(
            f"Thread {head.id} is held by worker {head.worker_id}. Nothing was changed.",
            thread_id=head.id,
        )
    now = store.clock.now()
    ready = head.wake_at is not None and head.wake_at <= now
    if ready or (is_at_rest(head) and head.wake_at is None):
        return head
    return (await store.append(head, fields={"wake_at": now})).head
