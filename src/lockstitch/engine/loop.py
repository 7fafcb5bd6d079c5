"""`run_loop()`: decide the next action, execute it, record the outcome, until the run ends or pauses.

The loop itself decides nothing and has no code for recovery. After a crash it makes the same decision as a loop that
was never interrupted.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from lockstitch import model
from lockstitch.engine.actions.compaction import compact, retrieve_memory, update_memory
from lockstitch.engine.actions.delegate import compile_answer, run_members
from lockstitch.engine.actions.model import call_model
from lockstitch.engine.actions.output import check_answer, fetch_files, make_title
from lockstitch.engine.actions.recorded import answer_calls, record_arrivals, take_memories, take_response
from lockstitch.engine.actions.summary import summarize
from lockstitch.engine.actions.tools import run_tools
from lockstitch.engine.decision.action import (
    Action,
    AnswerCalls,
    CallModel,
    CheckAnswer,
    Compact,
    CompileAnswer,
    FetchFiles,
    Finish,
    Idle,
    MakeTitle,
    Pause,
    RecordEntries,
    RetrieveMemory,
    RunMembers,
    RunTools,
    Summarize,
    UpdateMemory,
)
from lockstitch.engine.decision.decide import decide
from lockstitch.engine.decision.in_doubt import doubt_of, shown, when_ended, when_resumed, with_doubts
from lockstitch.engine.session.deliveries import report_to_parent, take_deliveries, thread_result
from lockstitch.engine.session.run_context import Activity, RunCancelled, RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.engine.turns import take_turn
from lockstitch.engine.usage import estimate
from lockstitch.engine.webhooks import webhook_events_of_end, webhook_events_of_wait
from lockstitch.errors import Conflict, Refused, StaleFence
from lockstitch.model import Json, NextMessageWait, RetryWait, Wait, answer_of, waits_json
from lockstitch.model.message import blocks

LoopOutcome = Literal["finished", "paused", "idle", "left"]
"""Why the loop returned; `left` if it released the thread to another process."""

_LOOK_AGAIN: Final = timedelta(seconds=30)
"""Time until a thread with a missing tool is claimed again."""

_TRANSFORMATIONS: Final[dict[type[Any], str]] = {
    CallModel: "assistant_message_added",
    RunTools: "tool_result_added",
    AnswerCalls: "tool_result_added",
    RunMembers: "tool_result_added",
    CompileAnswer: "assistant_message_added",
    Compact: "compaction",
    RetrieveMemory: "memory_injected",
    CheckAnswer: "feedback_added",
    RecordEntries: "message_added",
}
"""The `transformation_type` that an action has in the log."""


_ACTIVITY_NAMES: Final[dict[type[Any], str]] = {
    CallModel: "model call",
    RunTools: "tools",
    AnswerCalls: "tools",
    RunMembers: "members",
    CompileAnswer: "compiling",
    Compact: "compaction",
    RetrieveMemory: "memory",
    UpdateMemory: "memory",
    CheckAnswer: "check",
    FetchFiles: "files",
    MakeTitle: "title",
    Summarize: "summary",
    RecordEntries: "record",
}
"""Names of the actions in the heartbeat."""


async def run_loop(context: RunContext) -> LoopOutcome:
    """Execute the open run until it ends, waits, or is to be released to another process. Then release the thread.

    A nested run is executed in the same way, but the thread stays held, because the outer run continues. Raises
    `StaleFence` if this process no longer holds the thread. Then nothing more is written.
    """
    session = context.session
    while True:
        await take_turn()
        if context.lost is not None:
            lost = session.head.id
            raise StaleFence(f"This process no longer holds thread {lost}: {context.lost}.", thread_id=lost)
        if context.stopping and not session.head.cancel_requested:
            session.head = session.head.changed(cancel_requested=True)
        now = session.clock.now()
        action = decide(context.config, session.snapshot, now)
        if isinstance(action, Idle):
            return "idle"
        if context.should_release() and not isinstance(action, Pause | Finish):
            await (session.commit() if session.nested else session.commit(status="pending"))
            return "left"
        if isinstance(action, Pause):
            if await (_pause_nested(context, action) if session.nested else _pause(context, action)):
                return "paused"
        elif isinstance(action, Finish):
            if await (_finish_nested(context, action) if session.nested else _finish(context, action)):
                return "finished"
        else:
            await _execute_action(context, action, now)


async def _execute_action(context: RunContext, action: Action, now: datetime) -> None:
    session = context.session
    if isinstance(action, CallModel) and session.inbox_dirty:
        await take_deliveries(session)
    context.activity = Activity(_ACTIVITY_NAMES[type(action)], session.open_run.steps, now)
    full = context.config.definition.log == "full"
    before = _record_received(context) if full else None
    try:
        await _perform(context, action)
    except RunCancelled:
        return
    if before is not None and _context_size(session) != before:
        _record_transformation(session, _TRANSFORMATIONS.get(type(action), "message_added"), before)


class _ContextSize(NamedTuple):
    messages: int
    tokens: int


def _context_size(session: RunSession) -> _ContextSize:
    """Return the size of the context. Tool results enter it when all results of their response are there."""
    snapshot = session.snapshot
    results = [stitch for stitch in snapshot.after_response if stitch.type == "tool_call" and stitch.message]
    is_complete = snapshot.response is None or len(results) >= (snapshot.response.calls or 0)
    pending = 0 if is_complete else sum(estimate(stitch.message) for stitch in results if stitch.message)
    return _ContextSize(len(session.messages), session.tokens - pending)


def _record_received(context: RunContext) -> _ContextSize:
    """Record the deliveries and replies since the last transformation. Return the size of the context."""
    session = context.session
    size = _context_size(session)
    last = session.snapshot.last("context_transformation")
    if last is not None:
        before = _ContextSize(int(last.data["messages_after_count"]), int(last.data["tokens_after"]))
        if before != size:
            is_result = any(block["type"] == "tool_result" for block in blocks(session.messages[-1]))
            kind = "tool_result_added" if is_result else "message_added"
            _record_transformation(session, kind, before)
    return size


def _record_transformation(session: RunSession, kind: str, before: _ContextSize) -> None:
    after = _context_size(session)
    data: Json = {
        "transformation_type": kind,
        "messages_before_count": before.messages,
        "messages_after_count": after.messages,
        "tokens_before": before.tokens,
        "tokens_after": after.tokens,
    }
    counts = {"messages_count": after.messages, "estimated_tokens": after.tokens}
    step = session.open_run.steps + (kind == _TRANSFORMATIONS[Compact])
    session.record(session.entry("context_transformation", step_number=step, data=data, **counts), must_commit=False)


async def _perform(context: RunContext, action: Action) -> None:
    match action:
        case RecordEntries():
            context.session.record(*action.entries, must_commit=action.must_commit)
            _apply_recorded(context, action)
        case CallModel():
            if context.recorded is not None:
                record_arrivals(context, context.recorded, action.step)
                if take_response(context, context.recorded, action):
                    return
            await call_model(context, action)
        case RunTools():
            await run_tools(context, action.calls)
        case AnswerCalls():
            assert context.recorded is not None
            await answer_calls(context, context.recorded, action.calls)
        case RunMembers():
            await run_members(context, action.calls, run_loop)
        case CompileAnswer():
            await compile_answer(context, run_loop)
        case Compact():
            await compact(context, action.tokens)
        case RetrieveMemory() if context.recorded is not None:
            take_memories(context, context.recorded)
        case RetrieveMemory():
            await retrieve_memory(context)
        case FetchFiles():
            await fetch_files(context, action.file_ids)
        case CheckAnswer():
            await check_answer(context, action.text)
        case MakeTitle():
            await make_title(context)
        case Summarize():
            await summarize(context, action)
        case UpdateMemory():
            await update_memory(context)
        case Pause() | Finish() | Idle():
            raise AssertionError("the loop itself rests")


def _apply_recorded(context: RunContext, action: RecordEntries) -> None:
    """Update the run for entries that were recorded without another action."""
    session = context.session
    for entry in action.entries:
        if entry.type == "run_resumed":
            session.change_run(status="running", stop_reason=None, state=when_resumed(session.snapshot))
        elif entry.type == "tool_call" and entry.status == "in_doubt":
            session.change_run(state=with_doubts(session.open_run, [doubt_of(entry)]))


async def _pause(context: RunContext, action: Pause) -> bool:
    """Commit the pause. The event follows the commit, so that an immediate reply finds the pause."""
    session = context.session
    run = {"status": "waiting", "stop_reason": f"awaiting_{action.waits[0].kind}"}
    waits = waits_json(action.waits)
    webhook_events = webhook_events_of_wait(context, action.waits) if action.entries else ()
    wake_at = _wake_at(action.waits, session.clock.now())
    if not await session.commit_rest(
        action.entries, run, webhook_events=webhook_events, status="waiting", waiting_for=waits, wake_at=wake_at
    ):
        await take_deliveries(session, resting=True)
        return False
    context.emit("paused", {"waiting_for": waits, "pending": _pending(context)}, now=True)
    return True


def _wake_at(waits: Sequence[Wait], now: datetime) -> datetime | None:
    """Return the time at which the thread is claimed again: the first time limit, or soon if code is missing."""
    limits = [wait.until for wait in waits if wait.until is not None]
    if any(isinstance(wait, RetryWait) for wait in waits):
        limits.append(now + _LOOK_AGAIN)
    return min(limits, default=None)


async def _pause_nested(context: RunContext, action: Pause) -> bool:
    """Commit the pause of a nested run. The outer run waits for it and for the other nested runs."""
    session = context.session
    run = session.open_run
    if action.entries:
        session.record(*action.entries)
        session.change_run(status="waiting", stop_reason=f"awaiting_{action.waits[0].kind}")
        await session.commit()
    session.thread_session.resting_runs[run.id] = [wait.of_member(run.id, run.agent) for wait in action.waits]
    return True


async def _finish_nested(context: RunContext, action: Finish) -> bool:
    """Commit the end of a nested run. The thread adds its cost and continues."""
    session = context.session
    if action.summary is not None:
        session.change_run(state={**session.open_run.state, "summary": action.summary})
    state = _state_after(context)
    if state != session.head.state:
        session.record(must_commit=False, state=state)
    session.record(*action.entries)
    session.change_run(**_changes(context, action))
    if not session.open_run.compiles:
        answer_text = await _answer_text(context, action)
        value: Json = {
            "agent": session.open_run.agent,
            "status": action.status,
            "output_text": answer_text,
            "error": action.error,
        }
        context.emit("member_finished", value)
    await session.commit()
    return True


async def _finish(context: RunContext, action: Finish) -> bool:
    """Commit the end of the run. Return False if new deliveries or a failed finish hook require another decision."""
    session = context.session
    if action.status == "cancelled" and session.head.pending_children:
        # Before the end of the run, so that the next holder repeats it after a crash.
        await session.store.request_cancel_of_children(session.head)
    state, text = _state_after(context), await _answer_text(context, action)
    changes = _changes(context, action)
    fields = _thread_fields_at_finish(context, action, text, shown(session.open_run.changed(**changes)))
    if state != session.head.state:
        fields["state"] = state
    if session.head.cancel_requested:
        fields["cancel_requested"] = False
    summary = _result_summary(context, action)
    deliveries = report_to_parent(session.head, fields["result"], session.clock, summary) if "result" in fields else ()
    webhook_events = webhook_events_of_end(context, action)
    written = await _finish_records(context, action, changes)
    try:
        rests = await session.commit_rest(
            action.entries, changes, deliveries=deliveries, webhook_events=webhook_events, records=written, **fields
        )
    except (Refused, Conflict) as exc:
        if not written or getattr(exc, "thread_id", None) is not None:
            raise
        # The database rejected the records of the application. The run ends without them.
        _skip_finish_hook(context, exc)
        return False
    if not rests:
        await take_deliveries(session, resting=True, ending=True)
        return False
    if text and action.answer is not None and not action.answer.compiles:
        context.emit("text", {"text": text}, now=True)
    if action.status == "failed":
        context.emit("failed", {"error": action.error, "type": action.entries[-1].data.get("type")}, now=True)
    return True


def _result_summary(context: RunContext, action: Finish) -> str | None:
    """Return the model's summary of the answer; None if there is none, or if the thread ends with another result."""
    summary: Json = context.session.open_run.state.get("result_summary") or {}
    if action.status != "completed" or action.summary is not None:
        return None
    return summary.get("text") if summary.get("position") == _output_position(context, action) else None


def _changes(context: RunContext, action: Finish) -> dict[str, Any]:
    """Return the changed fields of a run that ends."""
    session = context.session
    changes: dict[str, Any] = {
        "status": action.status,
        "stop_reason": action.stop_reason,
        "completed_at": session.clock.now(),
        "error": action.error,
        "output_position": _output_position(context, action),
    }
    state = when_ended(session.snapshot, action.entries, completed=action.status == "completed")
    if state != session.open_run.state:
        changes["state"] = state
    if action.answer is not None and action.answer.output is not None:
        changes["output"] = action.answer.output
    return changes


def _output_position(context: RunContext, action: Finish) -> int | None:
    """Return the position of the answer, which this run or a nested run gave.

    The answer of a cancelled run is the text that the user has read: the last response, as far as it has text.
    """
    response = context.session.snapshot.response
    if action.answer is not None:
        return action.answer.output_position
    if action.stop_reason == "delegated" or response is None or response.message is None:
        return None
    if action.status == "cancelled":
        return response.position if answer_of(response.message) else None
    return response.position if action.status == "completed" else None


async def _answer_text(context: RunContext, action: Finish) -> str | None:
    """Return the answer of a run that ends."""
    session = context.session
    position, response = _output_position(context, action), session.snapshot.response
    if position is None:
        return None
    if response is not None and response.position == position:
        return answer_of(response.message)
    return await session.store.execution.answer_text_at(session.head, position)


def _state_after(context: RunContext) -> Json:
    """Return the state of the thread after the run."""
    run, state = context.session.open_run, {**context.session.head.state}
    if run.total_cost is not None:
        state["total_cost"] = float(state.get("total_cost") or 0.0) + run.total_cost
    if "container_id" in run.state and run.lane is None:
        state["container_id"] = run.state["container_id"]
    return state


async def _finish_records(context: RunContext, action: Finish, changes: dict[str, Any]) -> Sequence[model.Record]:
    """Return the records that the application writes with the end of the run. If its hook raises, the run ends without
    them."""
    session, on_finish = context.session, context.config.on_finish
    if on_finish is None or context.skip_finish_hook:
        return ()
    run = session.open_run.changed(**changes)
    entries = [*session.buffered, *action.entries]
    value: Json = {
        "text": await _answer_text(context, action),
        "output": run.output,
        "error": action.error,
        "noted": entries,
    }
    work = on_finish(session.store, session.head, run, value)
    try:
        return await work
    except Exception as exc:  # an error of the hook must not block the thread
        _skip_finish_hook(context, exc)
        return ()


def _skip_finish_hook(context: RunContext, exc: Exception) -> None:
    context.skip_finish_hook = True
    context.session.record(context.error_entry(exc, fatal=False, where="ending"), must_commit=False)


def _thread_fields_at_finish(
    context: RunContext, action: Finish, text: str | None, doubts: Sequence[Json]
) -> dict[str, Any]:
    """Return the fields of the thread after the run: a chat waits for its next message or continues with a queued one,
    a goal ends with its run."""
    session = context.session
    if session.head.kind == "chat":
        now = session.clock.now()
        if session.queued or session.unanswered_inputs:
            return {"status": "pending", "waiting_for": [], "wake_at": now}
        return {"status": "waiting", "waiting_for": [NextMessageWait(now).as_json()], "wake_at": None}
    if context.recorded is not None and action.status == "completed" and not context.recorded.is_last:
        # The next run of the replay starts with the next recorded message.
        return {"status": "pending", "waiting_for": [], "wake_at": session.clock.now()}
    # A partial answer is not the result of a goal.
    answer = text if action.status == "completed" else None
    summary = answer if action.summary is None else action.summary
    ended = thread_result(action.status, summary, action.error, output=session.open_run.output, data=action.data)
    if doubts:
        ended["in_doubt"] = list(doubts)
    return {"status": action.status, "waiting_for": [], "wake_at": None, "result": ended}


def _pending(context: RunContext) -> list[Json]:
    """Return the open calls of all open runs that wait for a reply."""
    lanes = (lane for lane in context.session.thread_session.lanes if isinstance(lane, RunSession))
    return [
        {"tool_use_id": call.id, "name": call.name, "input": call.input}
        for lane in lanes
        for call in lane.snapshot.calls
        if call.state != "answered" and lane.snapshot.member_run(call) is None
    ]
