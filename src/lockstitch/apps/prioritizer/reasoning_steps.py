"""`parsed()`: the reasoning steps of a run from its log, and their metrics.

The lens `reasoning` computes the same in SQL. A test compares the two.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from lockstitch import Stitch
from lockstitch.apps.prioritizer.models import (
    MAX_STEPS,
    TOOLS,
    ExecutionMetadata,
    ReasoningStep,
    StepStatus,
    ToolName,
    tools_used,
)
from lockstitch.ext import Json, blocks, format_time, tool_uses

_STATUSES: Final[Mapping[str, StepStatus]] = {
    "ok": "success",
    "settled": "success",
    # Not executed.
    "denied": "skipped",
    "cancelled": "skipped",
    "failed": "skipped",
}


class RunStep(NamedTuple):
    """A step in the log, before the limit of ten steps applies."""

    timestamp: str
    thought: str | None
    tool_name: str | None
    call_id: str | None
    tool_input: Json | None
    tool_output: Json | None
    duration_ms: int
    status: StepStatus


class ParsedRun(NamedTuple):
    """The steps of a run, and the number of calls beyond the limit."""

    steps: list[ReasoningStep]
    skipped_calls: int
    thinking_time_ms: int
    sequential: bool


def run_steps_of(stitches: Sequence[Stitch], answer: int | None) -> Iterator[RunStep]:
    """Yield a step for each tool call with a result, and for each response without calls that is not the answer.

    `answer` is the position of the answer. The first call of a response has its thought.
    """
    results = {(stitch.reply_to, stitch.call_index): stitch for stitch in stitches if stitch.type == "tool_call"}
    responses = [
        stitch
        for stitch in stitches
        if stitch.type == "llm_call" and stitch.message is not None and stitch.lane is None
    ]
    for response in responses:
        at = format_time(response.at) if response.at is not None else ""
        thought = thought_of(response)
        calls = tool_uses(response.message)
        if not calls and response.position != answer:
            yield RunStep(at, thought, None, None, None, None, response.duration_ms or 0, "success")
        for index, call in enumerate(calls):
            result = results.get((response.position, index))
            if result is None:
                continue
            text = thought if index == 0 else None
            if result.name not in TOOLS:
                # Unknown tools do not count as called.
                value = text or f"Called the unknown tool {result.name}."
                yield RunStep(at, value, None, result.call_id, None, None, result.duration_ms or 0, "skipped")
                continue
            yield RunStep(
                at,
                text,
                result.name,
                result.call_id,
                _as_object(call.get("input")),
                _output(result),
                result.duration_ms or 0,
                _STATUSES.get(result.status or "", "failed"),
            )


def parsed(stitches: Sequence[Stitch], answer: int | None) -> ParsedRun:
    """Return the steps of a run, at most ten."""
    run_steps = list(run_steps_of(stitches, answer))
    steps = [
        ReasoningStep(
            step_number=number,
            timestamp=run_step.timestamp,
            thought=run_step.thought,
            tool_name=cast("ToolName | None", run_step.tool_name),
            tool_input=run_step.tool_input,
            tool_output=run_step.tool_output,
            duration_ms=run_step.duration_ms,
            status=run_step.status,
        )
        for number, run_step in enumerate(run_steps[:MAX_STEPS], start=1)
    ]
    responses = [stitch for stitch in stitches if stitch.type == "llm_call"]
    return ParsedRun(
        steps=steps,
        skipped_calls=sum(run_step.call_id is not None for run_step in run_steps[MAX_STEPS:]),
        # The time of a tool includes its own model calls.
        thinking_time_ms=sum(response.duration_ms or 0 for response in responses if "call" not in response.data),
        sequential=all((response.calls or 0) <= 1 for response in responses),
    )


def metadata(parsed: ParsedRun, began: datetime, ended: datetime, **fields: Any) -> ExecutionMetadata:
    """Return the metrics of the steps of a run."""
    steps = parsed.steps
    tools_ms = sum(step.duration_ms for step in steps if step.tool_name is not None)
    total = max(0, round((ended - began).total_seconds() * 1000))
    if parsed.sequential:
        # Sequential calls take at least the sum of their times. A smaller total comes from rounding.
        total = max(total, parsed.thinking_time_ms + tools_ms)
    successes = sum(step.status == "success" for step in steps)
    failed = [step.tool_name for step in steps if step.tool_name is not None and step.status == "failed"]
    worked = {step.tool_name for step in steps if step.status == "success"}
    values: dict[str, Any] = {
        "steps_taken": len(steps),
        "tool_call_count": tools_used(steps),
        "thinking_time_ms": parsed.thinking_time_ms,
        "tool_execution_time_ms": tools_ms,
        "total_time_ms": total,
        "error_count": sum(step.status == "failed" for step in steps),
        "success_rate": round(successes / len(steps), 4) if steps else 0.0,
        "skipped_calls": parsed.skipped_calls,
        # A tool that succeeded later is not missing.
        "failed_tools": [name for name in dict.fromkeys(failed) if name not in worked],
        **fields,
    }
    return ExecutionMetadata(**values)


def thought_of(response: Stitch) -> str | None:
    """Return the thinking and the text of a response."""
    content = (response.message or {}).get("content")
    if isinstance(content, str):
        return content
    lines = [
        str(block.get("thinking") if block.get("type") == "thinking" else block.get("text"))
        for block in blocks(response.message or {})
        if block.get("type") in ("thinking", "text")
    ]
    return "\n\n".join(lines) if lines else None


def _output(result: Stitch) -> Json:
    """Return the output of a tool as an object. JSON text is parsed, other values are wrapped."""
    content: Any = (result.message or {}).get("content")
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            value = json.loads(content)
        except ValueError:
            return {"value": content}
        return cast("Json", value) if isinstance(value, dict) else {"value": content}
    return _as_object(content)


def _as_object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {"value": value}
