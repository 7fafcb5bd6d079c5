"""Threads that start with a goal, with imported messages, or as a fork."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.backend import Fields, JoinsTransactions
from lockstitch.errors import Refused
from lockstitch.model import (
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
from lockstitch.model.message import blocks, tool_uses, user
from lockstitch.store.core import StoreCore
from lockstitch.store.transaction import ThreadUpdate, Transaction

_NOT_CARRIED = "This call was not answered in the conversation that was taken over."


async def adopt(store: StoreCore, messages: Sequence[Message], fields: dict[str, Any]) -> Thread:
    """Write the messages as turns, in one append; the thread's context is then what they were.

    A turn begins with what a user says. Calls that nobody answered are answered as errors, because a context is
    never invalid. Where one message mixes results and words, the words follow as a message of their own. What is
    refused is refused before the thread is made.
    """
    fields = {"kind": "chat", **fields, "id": fields.get("id") or new_id()}
    ahead = store.new_thread(**fields)
    runs: list[Run] = []
    entries: list[Entry] = []
    for turn in _turns(messages):
        run = store.new_run(ahead, status="completed", stop_reason="end_turn", source="adopted")
        said, answered_at = _entries(turn, run, ahead.position)
        codec.dumps([entry.message for entry in said])
        entries += said
        runs.append(
            run.changed(
                input_position=run.first_position if said[0].type == "input" else None,
                output_position=answered_at,
                steps=sum(entry.type == "llm_call" for entry in said),
                completed_at=store.clock.now(),
            )
        )
        ahead = ahead.changed(position=len(entries), last_sequence=run.sequence, last_turn=run.turn)
    head = await store.create(**fields)
    if not entries:
        return head
    rest = {"status": "waiting", "waiting_for": [NextMessageWait(store.clock.now()).as_json()]}
    return (await store.append(head, entries, fields=rest, new_runs=runs)).head


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    turns: list[list[Message]] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            raise Refused(
                f"Message {number} has the role {role!r}; a conversation has user and assistant messages. "
                "System texts belong into settings, tool results into user messages as tool_result blocks."
            )
        speaks = role == "user" and not any(block.get("type") == "tool_result" for block in blocks(message))
        if speaks or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


class _OpenCall(NamedTuple):
    """A call that no result has answered yet: the position of its response, and its place in it."""

    response: int
    place: int
    id: str
    name: str


def _entries(turn: Sequence[Message], run: Run, position: int) -> tuple[list[Entry], int | None]:
    """The stitches of one turn, and the position of its last response."""
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
                raise Refused("A call of this conversation has no id or no name, so nothing can answer it.")
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
                raise Refused(f"The result for {call_id} answers no call of this conversation.")
            # Ids may repeat: a result answers the first open call of the last response that has its id.
            answer(next(call for call in same if call.response == same[-1].response), block)
        said = [block for block in blocks(message) if block.get("type") != "tool_result"]
        if said or not results:
            words = message if not results else {"role": "user", "content": said}
            entries.append(Entry(type="input", run_id=run.id, step_number=0, message=words))
    for call in list(open_calls):
        answer(call, tool_result(call.id, _NOT_CARRIED, is_error=True))
    return entries, answered_at


NOT_CARRIED_OVER = "This call was not carried over into the fork; it has no result here."


async def fork(core: StoreCore, head: Thread, at: int | None, fields: dict[str, Any]) -> Thread:
    """A new thread whose context is that of `head` at a position. Its fork stitch holds it once.

    Calls that were open there are answered with an error, so that the fork's context is valid.
    """
    position = head.position if at is None else at
    if not 1 <= position <= head.position:
        raise Refused(f"Thread {head.id} has positions 1 to {head.position}; there is no {position} to fork at.")
    log = await core.execution.context_stitches(head, until=position)
    origin: Json = {"thread_id": str(head.id), "position": position}
    settings = {name: value for name, value in head.settings.items() if name != "texts"}
    given: dict[str, Any] = {
        "user_id": head.user_id,
        "agent": head.agent,
        "version": head.version,
        "extras": head.extras,
        "settings": settings,
        **fields,
    }
    thread = core.new_thread(**given, state={"forked_from": origin})
    entry = Entry(type="fork", data={"forked_from": origin, "messages": _messages(log)})
    await core.commit(Transaction([ThreadUpdate(thread, [entry])], new_threads=[thread]))
    return await core.thread(thread)


def _messages(log: list[Stitch], lane: UUID | None = None) -> list[Message]:
    """The context, with every open call answered."""
    messages = context(log, lane)
    open_ = {(response.position, str(call.get("id"))) for response, call in open_calls(log, lane)}
    if not open_:
        return messages
    response = max((one for one, _ in open_calls(log, lane)), key=lambda one: one.position)
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


async def start(store: StoreCore, fields: Fields, at: datetime | None, connection: object | None) -> Thread:
    """Make a thread that waits for a worker, or first for its time to come."""
    given = {**fields, **(_waiting_until(at, store.clock.now()) if at is not None else {})}
    if connection is None:
        return await store.create(**given)
    if given.get("parent_id") is not None:
        raise Refused("A child is made by its parent, not in a transaction of yours; leave parent_id out.")
    if not isinstance(store._backend, JoinsTransactions):
        raise Refused("Only a store on PostgreSQL can take part in your transaction; leave `connection` out.")
    thread = store.new_thread(**given)
    await store._backend.insert_within(connection, thread)
    return thread


def numbered(tasks: Sequence[Task]) -> list[Json]:
    """A todo list as it is kept: each with an id, a description and a status."""
    return [
        {"id": str(number), "status": "pending", **(task if isinstance(task, Mapping) else {"description": task})}
        for number, task in enumerate(tasks, start=1)
    ]


def _waiting_until(at: datetime, now: datetime) -> dict[str, Any]:
    if at.tzinfo is None:
        raise Refused("`at` must say its time zone, for example datetime.now(UTC) + timedelta(hours=1).")
    at = at.astimezone(UTC)
    if at <= now:
        return {}
    return {"status": "waiting", "waiting_for": [TimerWait(now, until=at).as_json()], "wake_at": at}
