"""Decisions about the members of a team. Pure functions for `decide`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

from lockstitch.engine.config import RunConfig
from lockstitch.engine.decision.action import CompileAnswer, RunMembers
from lockstitch.engine.decision.snapshot import Call, RunSnapshot
from lockstitch.model import ChildrenWait, Json, RetryWait, Run, Wait

DELEGATE: Final = "delegate"
"""The tool with which a leader delegates tasks to members."""


def input_of(call: Call) -> Json:
    value: Any = call.input
    return cast("Json", value) if isinstance(value, dict) else {}


def member_of(call: Call) -> str:
    return str(input_of(call).get("member") or "")


def task_of(call: Call) -> str:
    return str(input_of(call).get("task") or "")


def problem_of(config: RunConfig, call: Call) -> str | None:
    """Return why a call to `delegate` is not valid, as a message for the leader; None if it is valid."""
    team = config.definition.team
    names = team.names if team is not None else []
    if member_of(call) not in names:
        return f"Your team has no member {member_of(call)!r}. Choose from: {', '.join(names)}."
    return None if task_of(call).strip() else "The task is empty. Describe the task of the member."


def next_members(
    config: RunConfig, snapshot: RunSnapshot, calls: Sequence[Call], now: datetime
) -> tuple[list[Call], list[Wait]]:
    """Return the calls that members work on now, and the waits of the other calls."""
    team = config.definition.team
    if team is not None and team.mode == "sequence":
        # A later member gets the answers of the earlier ones, so only one works at a time.
        calls = calls[:1]
    working: list[Call] = []
    waits: list[Wait] = []
    for call in calls:
        run, name = snapshot.member_run(call), member_of(call)
        if run is not None and run.id in snapshot.resting:
            waits += snapshot.resting[run.id]
        elif _has_code(config, name) or (run is not None and not run.open):
            working.append(call)
        else:
            why = f"unknown_member: this app has no member {name}. Resume the thread with an app that has it."
            waits.append(RetryWait(now, call_id=call.id, name=name, reason=why))
    return working, waits


def unchecked_members_action(config: RunConfig, snapshot: RunSnapshot) -> RunMembers | CompileAnswer | None:
    """Return the action for nested runs that were not executed since the thread was claimed. They may have new
    deliveries."""
    matches = [(call, snapshot.member_run(call)) for call in snapshot.calls if call.state != "answered"]
    calls = [
        call
        for call, run in matches
        if run is not None and run.id not in snapshot.resting and (_has_code(config, member_of(call)) or not run.open)
    ]
    if calls:
        return RunMembers(calls)
    last = snapshot.compile_run()
    return CompileAnswer() if last is not None and last.open and last.id not in snapshot.resting else None


def open_members_action(snapshot: RunSnapshot) -> RunMembers | CompileAnswer | None:
    """Return the action for nested runs that must end before this run does."""
    matches = [(call, snapshot.member_run(call)) for call in snapshot.calls if call.state != "answered"]
    calls = [call for call, run in matches if run is not None and run.open]
    if calls:
        return RunMembers(calls)
    last = snapshot.compile_run()
    return CompileAnswer() if last is not None and last.open else None


def was_delegated(snapshot: RunSnapshot) -> bool:
    """True if members worked on the last response."""
    return bool(snapshot.nested_runs) and any(snapshot.member_run(call) is not None for call in snapshot.calls)


def pass_through_run(config: RunConfig, snapshot: RunSnapshot) -> Run | None:
    """Return the member run whose answer is passed through as the answer of the turn; None if the leader compiles
    it."""
    team = config.definition.team
    if team is None or team.answer == "compile":
        return None
    requested = [(call, run) for call in snapshot.calls if (run := snapshot.member_run(call)) is not None]
    if team.answer == "choose":
        requested = [(call, run) for call, run in requested if input_of(call).get("final") is True]
    if not requested:
        return None
    last = requested[-1][1]
    return last if last.status == "completed" and last.output_position is not None else None


def same_waits(announced: Sequence[Wait], snapshot: RunSnapshot) -> bool:
    """True if the member runs wait for the same calls and children as in the announced pause."""
    now = [wait for waits in snapshot.resting.values() for wait in waits]
    return {_mark(wait) for wait in announced if wait.run_id} == {_mark(wait) for wait in now}


def _mark(wait: Wait) -> tuple[Any, ...]:
    # The next call of a member may have the same id, so the key belongs to it.
    child_ids = wait.child_ids if isinstance(wait, ChildrenWait) else None
    return wait.run_id, wait.kind, wait.call_id, wait.key, tuple(child_ids or ())


def _has_code(config: RunConfig, name: str) -> bool:
    return config.members is not None and name in config.members.names
