"""Answer calls, steps and memories of a replay from the record. No tool with an effect runs."""

from collections.abc import Sequence
from typing import Any, Final

from lockstitch.engine.actions.tools import run_tools
from lockstitch.engine.decision.action import CallModel
from lockstitch.engine.decision.recorded_turn import RECORDED, RecordedTurn, repeated
from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.session.run_context import RunContext
from lockstitch.model import Entry, Json, Stitch, codec
from lockstitch.store.replays import DIVERGED

_SHOWN: Final = 300
"""Characters of the arguments in the message about a call without a recorded result."""


async def answer_calls(context: RunContext, recorded: RecordedTurn, calls: Sequence[Call]) -> None:
    """Answer the calls that the record has. Run those of `safe` tools that it lacks, if the replay may.

    If any other call is left, record the error that ends the replay.
    """
    session = context.session
    missing: list[Call] = []
    for call in calls:
        stitch = recorded.take(call.name, call.input)
        if stitch is None:
            missing.append(call)
            continue
        entry = _answer(context, call, stitch)
        session.record(entry)
        content, failed = (entry.message or {}).get("content"), entry.status != "ok"
        context.emit("tool_call", {"id": call.id, "name": call.name, "input": call.input})
        context.emit("tool_result", {"id": call.id, "name": call.name, "content": content, "is_error": failed})
    live = [call for call in missing if call.name in context.config.tools]
    if len(live) < len(missing):
        session.record(_divergence(context, recorded, next(call for call in missing if call not in live)))
    elif live:
        await run_tools(context, live)


def _answer(context: RunContext, call: Call, stitch: Stitch) -> Entry:
    message: Json = {"type": "tool_result", **(stitch.message or {}), "tool_use_id": call.id}
    return context.session.entry(
        "tool_call",
        name=call.name,
        call_id=call.id,
        call_index=call.index,
        reply_to=context.session.response_position(call),
        status=stitch.status or "ok",
        message=message,
        data=repeated(stitch),
        duration_ms=stitch.duration_ms,
    )


def _divergence(context: RunContext, recorded: RecordedTurn, call: Call) -> Entry:
    """Return the error that ends a replay at a call."""
    arguments = codec.dumps(call.input).decode()
    shown = arguments if len(arguments) <= _SHOWN else arguments[:_SHOWN] + "…"
    unused = recorded.calls_of(call.name)
    if recorded.run is None:
        reason = "The recorded thread was deleted."
    elif unused:
        reason = f"The record has {unused} other unused call{'s' if unused > 1 else ''} of {call.name} here."
    else:
        reason = f"The record has no further call of {call.name} here."
    text = f"The replay stopped at the call {call.name}({shown}), which has no recorded result. {reason}"
    about: Json = {"name": call.name, "input": call.input, "id": call.id, "index": call.index}
    return context.session.entry("error", data={"type": DIVERGED, "message": text, "fatal": True, "call": about})


def record_arrivals(context: RunContext, recorded: RecordedTurn, step: int) -> None:
    """Record the messages that entered the recorded run before a step."""
    for stitch in recorded.take_arrivals(step):
        context.session.record(
            context.session.entry(
                stitch.type,
                name=stitch.name,
                child_id=stitch.child_id,
                status=stitch.status,
                message=stitch.message,
                data={**stitch.data, RECORDED: stitch.position},
            )
        )


def take_response(context: RunContext, recorded: RecordedTurn, action: CallModel) -> bool:
    """Record the recorded response of a step. Return False if the model must be called.

    It has no tokens and no cost, because no model was called.
    """
    session = context.session
    stitch = None if action.final or session.nested else recorded.response(action.step)
    if stitch is None:
        return False
    session.change_run(steps=action.step)
    kept: Json = {name: stitch.data[name] for name in ("stop_reason", "model") if name in stitch.data}
    session.record(
        session.entry(
            "llm_call",
            name=stitch.name,
            status=stitch.status,
            step_number=action.step,
            message=stitch.message,
            data={**kept, RECORDED: stitch.position},
        )
    )
    return True


def take_memories(context: RunContext, recorded: RecordedTurn) -> None:
    """Record the memories that the recorded run got."""
    stitch: Any = recorded.memory(context.config.definition.name)
    data: Json = {"memories_found": 0, "memories_injected": 0, "memory_store_type": context.config.memory.name}
    message = None
    if stitch is not None:
        message, data = stitch.message, {**stitch.data, RECORDED: stitch.position}
    context.session.record(context.session.entry("memory_retrieval", message=message, data=data), must_commit=False)
