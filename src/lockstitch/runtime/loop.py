"""The loop: ask what comes next, do it, note what came of it, ask again.

Nothing here decides and nothing here recovers. A loop that begins after a crash asks the same question as one that was
never interrupted.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from lockstitch.errors import ThreadBusy
from lockstitch.records import Entry, Json, Letter, Run, answer_of, format_time, parse_time, waiting
from lockstitch.runtime.action import (
    Action,
    CallModel,
    CheckAnswer,
    Compact,
    FetchFiles,
    Finish,
    Idle,
    MakeTitle,
    Pause,
    Record,
    Remember,
    Retrieve,
    RunTools,
)
from lockstitch.runtime.acts.answer import check_answer, make_title
from lockstitch.runtime.acts.compacting import compact
from lockstitch.runtime.acts.files import fetch_files
from lockstitch.runtime.acts.model import call_model
from lockstitch.runtime.acts.remembering import remember, retrieve
from lockstitch.runtime.acts.tools import run_tools
from lockstitch.runtime.decide import decide
from lockstitch.runtime.descendants import cancel_children
from lockstitch.runtime.noticing import notices_of_end, notices_of_wait
from lockstitch.runtime.reporting import report, result
from lockstitch.runtime.stage import Stage, Stopped
from lockstitch.runtime.tokens import estimate

Ended = Literal["finished", "paused", "idle", "left"]

_LOOK_AGAIN: Final = timedelta(seconds=30)
"""How long a thread whose tool this code lacks is left to others before it is looked at again."""

_TRANSFORMATIONS: Final[dict[type[Any], str]] = {
    CallModel: "assistant_message_added",
    RunTools: "tool_result_added",
    Compact: "compaction",
    Retrieve: "memory_injected",
    CheckAnswer: "feedback_added",
    Record: "message_added",
}


_ACTS: Final[dict[type[Any], str]] = {
    CallModel: "model call",
    RunTools: "tools",
    Compact: "compaction",
    Retrieve: "memory",
    Remember: "memory",
    CheckAnswer: "check",
    FetchFiles: "files",
    MakeTitle: "title",
    Record: "record",
}
"""What a beat calls an act."""


async def drive(stage: Stage) -> Ended:
    """Drive the open run of a thread until it ends or waits for others, or is to be left to another process, and give
    the thread back.

    Conflict when the thread was taken over: then everything is another's now, and nothing more is written.
    """
    journal = stage.journal
    while True:
        if stage.lost is not None:
            lost = journal.head.id
            raise ThreadBusy(f"Thread {lost} is another's now: {stage.lost}.", thread_id=lost, reason="fence")
        if stage.stopping and not journal.head.cancel_requested:
            journal.head = journal.head.changed(cancel_requested=True)
        action = decide(stage.setup, journal.situation, journal.clock.now())
        if isinstance(action, Idle):
            return "idle"
        if stage.leaving() and not isinstance(action, Pause | Finish):
            await journal.commit(status="pending")
            return "left"
        if isinstance(action, Pause):
            if await _pause(stage, action):
                return "paused"
        elif isinstance(action, Finish):
            if await _finish(stage, action):
                return "finished"
        else:
            await _act(stage, action)


async def _act(stage: Stage, action: Action) -> None:
    journal = stage.journal
    if isinstance(action, CallModel) and journal.letters:
        await _take_letters(stage)
    stage.doing = {"act": _ACTS[type(action)], "step": journal.open.steps, "since": format_time(journal.clock.now())}
    full = stage.setup.definition.log == "full"
    before = (len(journal.messages), journal.tokens - _answered_tokens(stage)) if full else (0, 0)
    try:
        await _perform(stage, action)
    except Stopped:
        return
    if full and len(journal.messages) != before[0]:
        _note_transformation(stage, action, *before)


def _note_transformation(stage: Stage, action: Action, messages: int, tokens: int) -> None:
    journal = stage.journal
    data: Json = {
        "transformation_type": _TRANSFORMATIONS.get(type(action), "message_added"),
        "messages_before_count": messages,
        "messages_after_count": len(journal.messages),
        "tokens_before": tokens,
        "tokens_after": journal.tokens,
    }
    counts = {"messages_count": len(journal.messages), "estimated_tokens": journal.tokens}
    journal.note(journal.entry("context_transformation", data=data, **counts), first=False)


async def _perform(stage: Stage, action: Action) -> None:
    match action:
        case Record():
            stage.journal.note(*action.entries, first=action.first)
            _remark(stage, action)
        case CallModel():
            await call_model(stage, action)
        case RunTools():
            await run_tools(stage, action.calls)
        case Compact():
            await compact(stage, action.tokens)
        case Retrieve():
            await retrieve(stage)
        case FetchFiles():
            await fetch_files(stage, action.file_ids)
        case CheckAnswer():
            await check_answer(stage, action.text)
        case MakeTitle():
            await make_title(stage)
        case Remember():
            await remember(stage)
        case Pause() | Finish() | Idle():
            raise AssertionError("the loop itself rests")


def _answered_tokens(stage: Stage) -> int:
    """The size of results that wait for others of their response, and enter the context with them."""
    since = stage.journal.situation.since
    return sum(estimate(stitch.message) for stitch in since if stitch.type == "tool_call" and stitch.message)


def _remark(stage: Stage, action: Record) -> None:
    """What a run must remember of entries that were only recorded."""
    journal = stage.journal
    for entry in action.entries:
        if entry.type == "run_resumed":
            journal.change_run(status="running", stop_reason=None)
        elif entry.type == "tool_call" and entry.status == "in_doubt":
            doubts = [*journal.open.state.get("in_doubt", []), {"call_id": entry.call_id, "name": entry.name}]
            journal.change_run(state={**journal.open.state, "in_doubt": doubts})


async def _pause(stage: Stage, action: Pause) -> bool:
    """Commit the pause, then tell of it, so that an immediate reply finds it."""
    journal = stage.journal
    kind = str(action.waiting_for[0]["kind"])
    run = {"status": "waiting", "stop_reason": f"awaiting_{kind}"}
    waits = list(action.waiting_for)
    notices = notices_of_wait(stage, waits) if action.entries else ()
    wake_at = _wake_at(waits, journal.clock.now())
    if not await journal.rest(
        action.entries, run, notices=notices, status="waiting", waiting_for=waits, wake_at=wake_at
    ):
        await _take_letters(stage)
        return False
    stage.tell("paused", {"waiting_for": waits, "pending": _pending(stage)}, now=True)
    return True


def _wake_at(waits: Sequence[Json], now: datetime) -> datetime | None:
    """When to look again, whatever happens: at the first time limit, or soon where code is missing."""
    limits = [parse_time(one["until"]) for one in waits if one.get("until")]
    if any(one["kind"] == "retry" for one in waits):
        limits.append(now + _LOOK_AGAIN)
    return min(limits, default=None)


async def _finish(stage: Stage, action: Finish) -> bool:
    """Commit the end of the run."""
    journal = stage.journal
    run = journal.open
    if action.status == "cancelled" and journal.head.pending_children:
        # Before its own end, so that whoever comes after a crash does it again.
        await cancel_children(journal.store, journal.head)
    response = journal.situation.response
    answered = response is not None and response.message is not None and action.status == "completed"
    state = {**journal.head.state}
    if run.total_cost is not None:
        state["total_cost"] = float(state.get("total_cost") or 0.0) + run.total_cost
    if "container_id" in run.state:
        state["container_id"] = run.state["container_id"]
    changes: dict[str, Any] = {
        "status": action.status,
        "stop_reason": action.stop_reason,
        "completed_at": journal.clock.now(),
        "error": action.error,
        "output_position": response.position if answered and response is not None else None,
    }
    fields = _resting(stage, action)
    if state != journal.head.state:
        fields["state"] = state
    if journal.head.cancel_requested:
        fields["cancel_requested"] = False
    letters = report(journal.head, fields["result"], journal.clock) if fields.get("result") else ()
    notices = notices_of_end(stage, action)
    if not await journal.rest(action.entries, changes, letters=letters, notices=notices, **fields):
        await _take_letters(stage, ending=True)
        return False
    if action.status == "failed":
        stage.tell("failed", {"error": action.error, "type": action.entries[-1].data.get("type")}, now=True)
    return True


def _resting(stage: Stage, action: Finish) -> dict[str, Any]:
    """What becomes of the thread: a chat waits for the next message, or goes on with one that waits in line; a goal
    ends with its run."""
    journal = stage.journal
    if journal.head.kind == "chat":
        now = journal.clock.now()
        if journal.queued or journal.unanswered:
            return {"status": "pending", "waiting_for": [], "wake_at": now}
        return {"status": "waiting", "waiting_for": [waiting("input", now)], "wake_at": None}
    response = journal.situation.response
    said = answer_of(response.message) if response is not None and action.status == "completed" else None
    summary = said if action.summary is None else action.summary
    ended = result(action.status, summary, action.error, output=journal.open.output, data=action.data)
    return {"status": action.status, "waiting_for": [], "wake_at": None, "result": ended}


async def _take_letters(stage: Stage, *, ending: bool = False) -> None:
    """Take what others sent into the log: answers at once, results of children where no call is open, or where the
    end of the run is going to answer it.

    Messages for the next run stay where they are until this one has ended.
    """
    journal = stage.journal
    letters = await journal.letters_waiting()
    entries = {letter.id: letter.opened() for letter in letters}
    journal.queued = [letter for letter in letters if entries[letter.id].type == "input"]
    open_calls = not ending and any(call.state != "answered" for call in journal.situation.calls)
    taken = [
        letter
        for letter in letters
        if entries[letter.id].type in ("tool_call", "permission")
        or (entries[letter.id].type != "input" and not open_calls)
    ]
    if taken:
        await journal.commit(taken=[_placed(stage, letter) for letter in taken])


def _placed(stage: Stage, letter: Letter) -> Letter:
    """A letter as part of the open run, where its sender did not know which that was; an answer that came too late,
    when its call was answered or its run over, as no more than a note."""
    entry = letter.opened()
    run: Run = stage.journal.open
    if entry.type in ("tool_call", "permission") and not _is_open(stage, entry):
        said = f"An answer to call {entry.call_id} came when it was answered already."
        data: Json = {"type": "LateAnswer", "message": said, "fatal": False}
        return letter.changed(entry=Entry(id=entry.id, type="error", run_id=run.id, data=data).as_json())
    return letter if entry.run_id is not None else letter.changed(entry=entry.changed(run_id=run.id).as_json())


def _is_open(stage: Stage, answer: Entry) -> bool:
    calls = stage.journal.situation.calls
    return any(call.id == answer.call_id and call.state != "answered" for call in calls)


def _pending(stage: Stage) -> list[Json]:
    return [
        {"tool_use_id": call.id, "name": call.name, "input": call.input}
        for call in stage.journal.situation.calls
        if call.state != "answered"
    ]
