"""`decide()`: the next action of a run. In-process runs, workers and recovery all use it. Pure.

The same log always leads to the same action. A process that continues a run after a crash makes the decision that the
killed process would have made after the same stitch.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lockstitch.engine.config import RunConfig
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
    SummaryPurpose,
    UpdateMemory,
)
from lockstitch.engine.decision.delegation import (
    next_members,
    open_members_action,
    pass_through_run,
    problem_of,
    same_waits,
    unchecked_members_action,
    was_delegated,
)
from lockstitch.engine.decision.snapshot import FINAL_SUMMARY, Call, RunSnapshot, new_files
from lockstitch.model import (
    ApprovalWait,
    ChildrenWait,
    DepsWait,
    Entry,
    FrontendToolWait,
    InDoubtWait,
    Json,
    QuestionWait,
    RetryWait,
    Run,
    Stitch,
    Thread,
    Wait,
    answer_of,
    parse_time,
    parse_waits,
    tool_result,
    waits_json,
)
from lockstitch.model.message import user
from lockstitch.store.replays import DIVERGED

_OUT_OF_STEPS: Final = (
    "You have used all {steps} steps of this run. Write your final answer now, without tool calls. State your results "
    "and the work that remains."
)
IN_DOUBT: Final = (
    "This call was interrupted, and whether it took effect is unknown. It was not repeated. Before you call it again, "
    "check whether it took effect, or tell the user."
)
_CRASHED: Final = (
    "{crashes} processes in a row ended while this thread was the only one that they executed, so the thread failed. "
    "The thread_taken_over entries of its log name the processes. Retry the run once the cause is removed."
)
"""The error of a thread that ended too many processes."""
_STOPS: Final = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal"})


def decide(config: RunConfig, snapshot: RunSnapshot, now: datetime) -> Action:
    """Return the next action of the run in `snapshot`."""
    run = snapshot.run
    if run is None:
        return Idle()
    crashed = crash_reason(snapshot.head)
    if snapshot.nested_runs and (snapshot.head.cancel_requested or crashed is not None):
        members = open_members_action(snapshot)
        if members is not None:
            return members
    if snapshot.head.cancel_requested:
        return _end(snapshot, now, "cancelled", "cancelled", why="The run was cancelled before this call finished.")
    if crashed is not None:
        return _end(snapshot, now, "failed", "error", why="The run failed before this call finished.", error=crashed)
    problem = snapshot.fatal_error()
    if problem is not None:
        text = str(problem.data.get("message") or problem.type)
        reason = "diverged" if problem.data.get("type") == DIVERGED else "error"
        return _end(snapshot, now, "failed", reason, why="The run failed before this call finished.", error=text)
    if _is_paused(snapshot):
        unchecked = unchecked_members_action(config, snapshot) if snapshot.nested_runs else None
        if unchecked is not None:
            return unchecked
        announced = _announced_pause(config, snapshot, now)
        if announced is not None:
            return announced
        if config.deps_source == "missing":
            return _wait_for_deps(snapshot, now)
        return RecordEntries([_entry(snapshot, "run_resumed")], must_commit=False)
    if config.deps_source == "missing":
        return _wait_for_deps(snapshot, now)
    response = snapshot.response
    if response is None:
        doubts = [call for call in snapshot.calls if call.state != "answered"]
        if doubts:
            return _pause(snapshot, [_doubt(call, now) for call in doubts])
        return _next_step(config, snapshot) if run.compiles else _before_model(config, snapshot)
    files = new_files(snapshot, response)
    if files:
        return FetchFiles(files)
    if any(call.state != "answered" for call in snapshot.calls):
        return _tools(config, snapshot, now)
    ends = snapshot.requested("end")
    if ends:
        return _finish_as_requested(snapshot, now, ends[-1])
    if snapshot.requested("wait") and not snapshot.has("wait_timed_out"):
        waited = _wait(snapshot, now)
        if waited is not None:
            return waited
    if was_delegated(snapshot):
        return _after_members(config, snapshot, now)
    if snapshot.calls or _stop_reason(response) == "pause_turn" or snapshot.has("final_answer_validation_failed"):
        return _next_step(config, snapshot)
    if snapshot.has("input") and response.data.get("purpose") != FINAL_SUMMARY:
        # A message entered the run after this answer, which therefore does not answer it.
        return _next_step(config, snapshot)
    return _after_answer(config, snapshot, response, now)


def crash_reason(head: Thread) -> str | None:
    """Return the error of a thread that ended too many processes; None if the thread may be executed."""
    return _CRASHED.format(crashes=head.crashes) if head.poisonous else None


def _wait(snapshot: RunSnapshot, now: datetime) -> Action | None:
    """Pause for the children that calls wait for. Return None if they have reported."""
    orders = snapshot.requested("wait")
    reported = snapshot.reported()
    names = list(dict.fromkeys(name for order in orders for name in order["ids"]))
    left = [name for name in names if name not in reported]
    any_will_do = all(order["mode"] == "any" for order in orders)
    if not left or (any_will_do and len(left) < len(names)):
        return None
    limits = [parse_time(order["until"]) for order in orders if order.get("until")]
    until = min(limits, default=None)
    if until is not None and until <= now:
        message = user(f"[wait_timed_out] Still running: {', '.join(left)}. You receive their results when they end.")
        return RecordEntries([_entry(snapshot, "wait_timed_out", message=message, data={"ids": left})])
    return _pause(snapshot, [ChildrenWait(now, until=until, child_ids=left, mode="any" if any_will_do else "all")])


def _finish_as_requested(snapshot: RunSnapshot, now: datetime, order: Json) -> Finish:
    summary = str(order.get("summary") or "")
    failed = order["status"] == "failed"
    end = _end(snapshot, now, order["status"], "complete_thread", error=summary if failed else None)
    return replace(end, summary=summary, data=order.get("data"))


def _after_members(config: RunConfig, snapshot: RunSnapshot, now: datetime) -> Action:
    """Return the next action when all members of the last response have answered.

    A further run of the leader may delegate again and ends with that. The first run of the turn finishes the turn.
    """
    run = snapshot.run
    assert run is not None
    passed = pass_through_run(config, snapshot)
    if passed is not None:
        return _close(config, snapshot, passed, now)
    if run.compiles:
        return _end(snapshot, now, "completed", "delegated")
    last = snapshot.compile_run()
    if last is None or (last.stop_reason == "delegated" and last.output_position is None):
        return CompileAnswer()
    if last.open:
        return _pause(snapshot, snapshot.resting[last.id]) if last.id in snapshot.resting else CompileAnswer()
    if last.status != "completed":
        return _end(snapshot, now, last.status, last.stop_reason or "error", error=last.error)
    return _close(config, snapshot, last, now)


def _close(config: RunConfig, snapshot: RunSnapshot, answer: Run, now: datetime) -> Action:
    """Return the remaining actions of a run whose answer comes from a nested run."""
    return _before_finish(config, snapshot, answer) or replace(
        _end(snapshot, now, "completed", "delegated"), answer=answer
    )


def _before_finish(config: RunConfig, snapshot: RunSnapshot, answer: Run | None = None) -> Action | None:
    """Return the next action between the answer of a turn and its last commit; None if none remains.

    `answer` is the nested run that gave the answer; None if this run did.
    """
    run = snapshot.run
    assert run is not None
    if run.compiles:
        return None
    if _wants_title(config, snapshot):
        return MakeTitle()
    purpose, position = _summary_purpose(config, snapshot), _answer_position(snapshot, answer)
    if purpose is not None and position is not None:
        last: Json = run.state.get(purpose) or {}
        if last.get("position") != position:
            return Summarize(purpose, position)
    if config.memory.name != "none" and not snapshot.has("memory_update"):
        return UpdateMemory()
    return None


def _before_model(config: RunConfig, snapshot: RunSnapshot) -> Action:
    """Return the next action before a model call. A compaction comes first, because recent stitches start with it."""
    run = snapshot.run
    assert run is not None
    threshold = config.compactor.threshold
    if not snapshot.has("compaction"):
        if threshold is not None and snapshot.tokens > threshold:
            return Compact(snapshot.tokens)
        if config.definition.log == "full":
            return RecordEntries([_unapplied(snapshot, threshold)], must_commit=False)
    retrieves = config.memory.name != "none" and run.steps == 0 and not run.compiles
    if retrieves and not snapshot.has("memory_retrieval"):
        return RetrieveMemory()
    over = _over_limit(config, snapshot)
    if over:
        kind, text = over
        entry = _entry(snapshot, "error", data={"type": kind, "message": text, "fatal": True})
        return RecordEntries([entry], must_commit=False)
    return CallModel(run.steps + 1)


def _next_step(config: RunConfig, snapshot: RunSnapshot) -> Action:
    run = snapshot.run
    assert run is not None
    # The runs of a leader in one turn share one step limit.
    steps = run.steps + (int(run.state.get("asked_before") or 0) if run.compiles else 0)
    if steps < config.definition.max_steps:
        return _before_model(config, snapshot)
    if not snapshot.has("max_steps_reached"):
        message = user(_OUT_OF_STEPS.format(steps=steps))
        return RecordEntries([_entry(snapshot, "max_steps_reached", message=message, data={"max_steps": steps})])
    return CallModel(run.steps, final=True)


def _after_answer(config: RunConfig, snapshot: RunSnapshot, response: Stitch, now: datetime) -> Action:
    """Return the next action between the final answer and the last commit of the run."""
    definition = config.definition
    summary = response.data.get("purpose") == FINAL_SUMMARY
    reason = "max_steps" if summary else _stop_reason(response)
    if summary and not snapshot.has("final_summary_generation"):
        return RecordEntries(
            [_entry(snapshot, "final_summary_generation", data={"finish_reason": _stop_reason(response)})]
        )
    checks = "check" in definition.code or definition.output_schema is not None
    if checks and reason in ("end_turn", "stop_sequence") and not snapshot.has("final_answer_validation"):
        return CheckAnswer(answer_of(response.message))
    remaining = _before_finish(config, snapshot)
    if remaining is not None:
        return remaining
    return _end(snapshot, now, "completed", reason if reason in _STOPS | {"max_steps"} else "end_turn")


def _tools(config: RunConfig, snapshot: RunSnapshot, now: datetime) -> Action:
    """Return the next action for the open calls: answer invalid calls, then run tools and members, then pause once for
    all waits."""
    answers: list[Entry] = []
    runnable: list[Call] = []
    delegations: list[Call] = []
    waits: list[Wait] = []
    is_replay = snapshot.head.kind == "replay"
    for call in snapshot.calls:
        if call.state == "answered":
            continue
        tool_definition = config.definition.tool(call.name)
        if tool_definition is None:
            names = ", ".join(tool.name for tool in config.definition.tools) or "none"
            answers.append(_answer(snapshot, call, f"Tool {call.name} is unknown. Choose from: {names}.", "error"))
        elif tool_definition.side == "team":
            problem = problem_of(config, call)
            if problem is not None:
                answers.append(_answer(snapshot, call, problem, "error"))
            else:
                delegations.append(call)
        elif is_replay:
            runnable.append(call)
        elif (
            call.state in ("cut", "running") and tool_definition.side == "backend" and tool_definition.effect == "once"
        ):
            if tool_definition.on_doubt == "ask":
                waits.append(_doubt(call, now))
            else:
                answers.append(_answer(snapshot, call, IN_DOUBT, "in_doubt"))
        elif call.state == "fresh" and tool_definition.approval:
            waits.append(ApprovalWait(now, call_id=call.id, key=call.key, name=call.name))
        elif tool_definition.side == "person":
            waits.append(QuestionWait(now, call_id=call.id, key=call.key, name=call.name, question=call.question))
        elif tool_definition.side == "frontend":
            waits.append(FrontendToolWait(now, call_id=call.id, key=call.key, name=call.name))
        elif call.name in config.tools:
            runnable.append(call)
        else:
            why = f"unknown_tool: this app has no tool {call.name}. Resume the thread with an app that has it."
            waits.append(RetryWait(now, call_id=call.id, name=call.name, reason=why))
    if answers:
        return RecordEntries(answers)
    if runnable:
        return AnswerCalls(runnable) if is_replay else RunTools(runnable)
    if delegations:
        working, longer = next_members(config, snapshot, delegations, now)
        if working:
            return RunMembers(working)
        waits += longer
    return _pause(snapshot, waits)


def _doubt(call: Call, now: datetime) -> InDoubtWait:
    return InDoubtWait(now, call_id=call.id, key=call.key, name=call.name, agent=call.agent)


def _wait_for_deps(snapshot: RunSnapshot, now: datetime) -> Pause:
    """Pause until a caller resumes the run with its `deps`. Nested runs keep their waits for persons."""
    return _pause(snapshot, [DepsWait(now), *(wait for waits in snapshot.resting.values() for wait in waits)])


def _pause(snapshot: RunSnapshot, waits: Sequence[Wait]) -> Pause:
    entry = _entry(snapshot, "run_paused", status=waits[0].kind, data={"waiting_for": waits_json(waits)})
    return Pause(waits, [entry])


def _end(
    snapshot: RunSnapshot, now: datetime, status: Any, stop_reason: str, *, why: str = "", error: str | None = None
) -> Finish:
    """Return the last commit of a run. It answers every open call, so that the context stays valid.

    A call with a `tool_started` entry and no result may have taken effect, so its answer says that the outcome is
    unknown. Only tools that must not simply run again have such entries. The record alone decides, so no agent code is
    needed.
    """
    run = snapshot.run
    assert run is not None
    entries = [
        _answer(snapshot, call, IN_DOUBT, "in_doubt")
        if call.state in ("running", "cut")
        else _answer(snapshot, call, why, status)
        for call in snapshot.calls
        if call.state != "answered" and not call.earlier
    ]
    duration = max(0, round((now - run.started_at).total_seconds() * 1000))
    data: Json = {
        "stop_reason": stop_reason,
        "total_steps": run.steps,
        "total_input_tokens": run.input_tokens,
        "total_output_tokens": run.output_tokens,
        "files_generated": len(run.state.get("files") or ()),
    }
    if status == "failed":
        problem = snapshot.fatal_error() or snapshot.last("api_error", "error")
        kind = problem.data.get("type") if problem is not None else None
        data |= {"type": kind or "Error", "message": error}
        if problem is not None:
            data["cause"] = str(problem.id)
    last = _entry(
        snapshot,
        "run_failed" if status == "failed" else "run_completed",
        status=status,
        data=data,
        duration_ms=duration,
    )
    return Finish(status, stop_reason, [*entries, last], error)


def _answer(snapshot: RunSnapshot, call: Call, text: str, status: str) -> Entry:
    """Return an entry that answers a call without running its tool."""
    return _entry(
        snapshot,
        "tool_call",
        name=call.name,
        call_id=call.id,
        call_index=call.index,
        reply_to=call.response,
        status=status,
        message=tool_result(call.id, text, is_error=True),
    )


def _entry(snapshot: RunSnapshot, kind: str, **fields: Any) -> Entry:
    run = snapshot.run
    assert run is not None
    return Entry(type=kind, run_id=run.id, lane=run.lane, step_number=run.steps, **fields)


def _is_paused(snapshot: RunSnapshot) -> bool:
    last = snapshot.last("run_paused", "run_resumed")
    return last is not None and last.type == "run_paused"


def _announced_pause(config: RunConfig, snapshot: RunSnapshot, now: datetime) -> Pause | None:
    """Return the pause in the log while no reply has arrived and no time limit has passed; else None."""
    paused = snapshot.last("run_paused")
    assert paused is not None
    waits = parse_waits(paused.data.get("waiting_for") or ())
    if paused.status == "retry":
        again = _tools(config, snapshot, now) if snapshot.calls else None
        # This process may have the code that was missing.
        return Pause(again.waits) if isinstance(again, Pause) and _lacks_tools(again) else None
    if paused.status == DepsWait.KIND and config.deps_source != "missing":
        return None
    answered = any(
        stitch.position > paused.position and stitch.type in ("tool_call", "permission", "thread_result", "input")
        for stitch in snapshot.after_response
    )
    if snapshot.nested_runs and not same_waits(waits, snapshot):
        return None
    due = any(wait.until is not None and wait.until <= now for wait in waits)
    return None if answered or due else Pause(waits)


def _lacks_tools(pause: Pause) -> bool:
    return any(isinstance(wait, RetryWait) for wait in pause.waits)


def _wants_title(config: RunConfig, snapshot: RunSnapshot) -> bool:
    head, run = snapshot.head, snapshot.run
    if not config.writes_title or head.title or head.kind != "chat" or run is None or run.lane is not None:
        return False
    return not any(stitch.data.get("purpose") == "title" for stitch in snapshot.after_response)


def _summary_purpose(config: RunConfig, snapshot: RunSnapshot) -> SummaryPurpose | None:
    """Return the kind of summary that the model writes at the end of this run; None if it writes none."""
    head, run = snapshot.head, snapshot.run
    if run is None or run.lane is not None:
        return None
    if head.kind == "chat":
        return "session_summary" if config.definition.session_summary else None
    return "result_summary" if config.definition.result_summary and head.parent_id is not None else None


def _answer_position(snapshot: RunSnapshot, answer: Run | None) -> int | None:
    if answer is not None:
        return answer.output_position
    return snapshot.response.position if snapshot.response is not None else None


def _unapplied(snapshot: RunSnapshot, threshold: int | None) -> Entry:
    data = {
        "applied": False,
        "compaction_applied": False,
        "reason": "below_threshold" if threshold is not None else "no_compactor",
        "current_tokens": snapshot.tokens,
        "threshold": threshold,
    }
    # A check belongs to the step that it precedes.
    entry = _entry(snapshot, "compaction", data=data, estimated_tokens=snapshot.tokens)
    return entry.changed(step_number=(entry.step_number or 0) + 1)


def _over_limit(config: RunConfig, snapshot: RunSnapshot) -> tuple[str, str] | None:
    """Return the limit that a run has reached: an error type and a message."""
    run = snapshot.run
    assert run is not None
    definition = config.definition
    longest = definition.max_stitches
    if snapshot.head.position >= longest:
        return "StitchesReached", f"The thread has {snapshot.head.position} stitches, and its maximum is {longest}."
    if definition.run_budget is None and definition.thread_budget is None:
        return None
    spent = run.total_cost or 0.0
    before = float(snapshot.head.state.get("total_cost") or 0.0)
    limits = ((definition.run_budget, spent, "run"), (definition.thread_budget, spent + before, "thread"))
    for limit, cost, what in limits:
        if limit is not None and cost >= limit:
            return "BudgetReached", f"The {what} has spent {cost:.6f} USD of its budget of {limit} USD."
    return None


def _stop_reason(response: Stitch) -> str:
    return str(response.data.get("stop_reason") or "end_turn")
