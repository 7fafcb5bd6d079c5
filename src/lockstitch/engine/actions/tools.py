"""Run tools: several at once, each marked before it starts, their results committed in batches."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from lockstitch.engine.actions.model import tool_model_call
from lockstitch.engine.actions.output import keep_file
from lockstitch.engine.actions.tool_requests import apply_requests, check_budget, check_keys, refusal, resolve_wait
from lockstitch.engine.decision.decide import IN_DOUBT
from lockstitch.engine.decision.in_doubt import doubt_of, with_doubts
from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.eager import start_task
from lockstitch.engine.ports.provider import INVALID_JSON
from lockstitch.engine.ports.tool import ToolContext, ToolFailed, ToolRequests
from lockstitch.engine.session.run_context import RunCancelled, RunContext
from lockstitch.errors import LockstitchError, Refused, wire_name_of
from lockstitch.model import Entry, Json, codec, tool_result
from lockstitch.model.codec import error_text

_BATCH_SECONDS: Final = 0.05
"""Seconds that a result waits for other results, so that tools that finish together need one commit."""

_CANCEL_SECONDS: Final = 1.0
"""Seconds that a cancelled tool has to finish. After that it is abandoned."""

_SHOWN: Final = 2_000
"""Characters shown of a result that is too long."""


class ToolOutcome(NamedTuple):
    """The outcome of a tool call: its content or its error, and its requests to the engine."""

    call: Call
    content: Any
    problem: Exception | None
    files: Sequence[Entry]
    requests: ToolRequests
    duration_ms: int


@dataclass(slots=True)
class _Progress:
    """The indexes of calls that have started, and the outcomes of tools that finished although they were cancelled."""

    started: set[int] = field(default_factory=set[int])
    finished: list[ToolOutcome] = field(default_factory=list[ToolOutcome])


_Running = dict["asyncio.Task[ToolOutcome]", Call]


async def run_tools(context: RunContext, calls: Sequence[Call]) -> None:
    """Run the calls. The last batch of results is buffered; the next action commits it.

    If the run is cancelled or interrupted, the results of finished tools are recorded nevertheless, because a call with
    a known result is not in doubt. A call with a `tool_started` entry that never started is answered as not started.
    """
    session = context.session
    waiting = deque(calls)
    running: _Running = {}
    starting: list[Call] = []
    progress = _Progress()
    try:
        while True:
            starting = _next(waiting, context.config.definition.parallel_tools - len(running))
            session.record(*started_entries(context, starting))
            if running or starting:
                await _commit_started(context, starting)
            if len(starting) == 1 and not running and not waiting:
                # A single call needs no separate task.
                _record_outcome(context, await context.cancellable(_run(context, starting[0], progress)))
                return
            running |= {asyncio.create_task(_run(context, call, progress)): call for call in starting}
            if not running:
                return
            await context.cancellable(_some_end(running))
            _record_ended(context, running)
    except RunCancelled:
        await _cancel_all(running)
        if context.lost is None:
            _record_interrupted(context, running, progress, starting)
        raise
    except asyncio.CancelledError:
        await _cancel_all(running)
        if context.lost is None:
            _record_interrupted(context, running, progress)
            # The run stays open, and the next executor must know the calls that have finished.
            await asyncio.shield(_commit_results(context))
        raise
    finally:
        await _cancel_all(running)


async def _commit_results(context: RunContext) -> None:
    """Commit the recorded results. If the commit fails, the calls are in doubt."""
    with suppress(LockstitchError):
        await context.session.commit()


def _record_interrupted(
    context: RunContext, running: _Running, progress: _Progress, starting: Sequence[Call] = ()
) -> None:
    """Record the known outcomes of interrupted calls: results that arrived nevertheless, and calls that never
    started."""
    finished = {outcome.call.index: outcome for outcome in progress.finished}
    for task in [task for task in running if task.done() and not task.cancelled()]:
        del running[task]
        if task.exception() is None:
            finished[task.result().call.index] = task.result()
    for _, outcome in sorted(finished.items()):
        _record_outcome(context, outcome)
    for call in starting:
        if call.index not in progress.started:
            _record_unstarted(context, call)


def _record_unstarted(context: RunContext, call: Call) -> None:
    """Answer a call that has a `tool_started` entry and did not start. It is not in doubt."""
    session = context.session
    block = tool_result(call.id, "The run ended before this call was started.", is_error=True)
    session.record(
        session.entry(
            "tool_call",
            name=call.name,
            call_id=call.id,
            call_index=call.index,
            reply_to=session.response_position(call),
            status="cancelled",
            message=block,
        )
    )


async def _some_end(running: _Running) -> None:
    """Wait until a call has ended, and a moment longer for calls that end at the same time."""
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    if not all(task.done() for task in running):
        await asyncio.wait(running, timeout=_BATCH_SECONDS)


def _record_ended(context: RunContext, running: _Running) -> None:
    """Record the results of calls that have ended, in the order of the calls."""
    done = [task for task in running if task.done()]
    for task in done:
        del running[task]
    for outcome in sorted((task.result() for task in done), key=lambda outcome: outcome.call.index):
        _record_outcome(context, outcome)


async def _cancel_all(tasks: _Running) -> None:
    """Cancel the running tasks and wait until they end."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)


def _next(waiting: deque[Call], count: int) -> list[Call]:
    return [waiting.popleft() for _ in range(min(count, len(waiting)))]


def started_entries(context: RunContext, calls: Sequence[Call]) -> list[Entry]:
    """Return the `tool_started` entries of calls that are about to start.

    Safe calls need none, because they may run again. Keyed calls that were interrupted have theirs already.
    """
    return [
        context.session.entry("tool_started", name=call.name, call_id=call.id, call_index=call.index)
        for call in calls
        if (tool_definition := context.config.definition.tool(call.name)) is not None
        and tool_definition.effect != "safe"
        and not (tool_definition.effect == "keyed" and call.state == "cut")
    ]


async def _commit_started(context: RunContext, starting: Sequence[Call]) -> None:
    for call in starting:
        context.emit("tool_call", {"id": call.id, "name": call.name, "input": call.input})
    await context.session.commit()


async def _run(run_context: RunContext, call: Call, progress: _Progress) -> ToolOutcome:
    """Run one call and return its outcome. If it is cancelled after its tool has finished, `progress` gets the
    outcome."""
    session = run_context.session
    tool = run_context.config.tools[call.name]
    response = session.response
    context = ToolContext(
        thread=session.head,
        run_id=session.open_run.id,
        call_id=call.id,
        step=call.step,
        store=session.store,
        deps=run_context.config.deps,
        response_id=response.id if response is not None else None,
        agents=run_context.config.agents,
        lane=session.lane,
        call_index=call.index,
    )
    context.model_call = partial(_model_call, run_context, context)
    began = session.clock.now()
    content: Any = None
    problem: Exception | None = None
    files: list[Entry] = []
    finished = False

    def outcome() -> ToolOutcome:
        duration = max(0, round((session.clock.now() - began).total_seconds() * 1000))
        return ToolOutcome(
            call, content, problem, files, context.requests if problem is None else ToolRequests(), duration
        )

    try:
        assert tool.call is not None
        work = tool.call(context, _arguments(call))
        limit = tool.timeout or run_context.config.definition.tool_timeout or run_context.default_tool_timeout
        progress.started.add(call.index)
        try:
            content = as_content(await _within(limit, work))
        except _FinishedLate as late:
            problem = late.problem
            content, finished = None if problem is not None else as_content(late.result), True
            raise asyncio.CancelledError from None
        finished = True
        if context.requests.children or context.requests.wait is not None:
            await check_budget(run_context, context.requests)
            await check_keys(run_context, context.requests)
            await resolve_wait(run_context, context.requests)
        for file in context.files:
            files += await keep_file(run_context, file, step=call.step)
    except asyncio.CancelledError:
        # Requests need a check of the limits, which has not happened. Then the call stays in doubt.
        if finished and not context.requests.data:
            progress.finished.append(outcome())
        raise
    except Exception as exc:  # the error of a tool is its result
        problem = exc
    return outcome()


async def _model_call(run_context: RunContext, context: ToolContext, purpose: str, prompt: str, max_tokens: int) -> str:
    return await tool_model_call(run_context, context.key, purpose, prompt, max_tokens)


class _FinishedLate(BaseException):
    """The call was cancelled, but its tool finished with this result, or had failed with this error before."""

    def __init__(self, result: Any = None, problem: Exception | None = None) -> None:
        self.result = result
        self.problem = problem


class ToolTimeout(ToolFailed):
    """The tool exceeded its time limit and was cancelled. Whether it took effect is unknown."""

    def __init__(self, limit: float | None) -> None:
        super().__init__(f"The tool did not end within {limit} seconds.", unknown=True)


async def _within(limit: float | None, work: Awaitable[Any]) -> Any:
    """Return the result of a tool. It runs in a separate task, so that a tool that does not end blocks nothing else,
    and a tool that cancels itself is distinguished from a cancelled run. Many tools end with their first step, which
    needs no iteration of the event loop.

    Raises `ToolTimeout` if the tool exceeds its time limit, and `_FinishedLate` if the caller is cancelled and the tool
    finishes nevertheless.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = start_task(_tool_work(work, ended))
    try:
        if not task.done():
            await _ended(task, limit, ended)
    except asyncio.CancelledError:
        done = task.done()
        await _cancel_tool(task)
        if task.done() and not task.cancelled():
            problem = task.exception()
            if problem is None:
                raise _FinishedLate(task.result()) from None
            if done and isinstance(problem, Exception):
                raise _FinishedLate(problem=problem) from None
        raise
    await _cancel_tool(task)
    if not task.done() or (task.cancelled() and isinstance(task, asyncio.Task) and task.cancelling()):
        raise ToolTimeout(limit)
    if task.cancelled():
        raise ToolFailed("The tool was cancelled.")
    return task.result()


async def _ended(task: "asyncio.Future[Any]", limit: float | None, waiter: "asyncio.Future[None]") -> None:
    """Wait until a task has ended, at most for a time. `asyncio.wait` does the same in three times the time.

    The task may set the result of `waiter` in its last step. The caller then continues one iteration of the event loop
    earlier.
    """

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if limit is None else asyncio.get_running_loop().call_later(limit, wake)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        task.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def _cancel_tool(task: "asyncio.Future[Any]") -> None:
    """Cancel a tool that still runs, and wait a moment for it to end."""
    if task.done():
        return
    task.cancel()
    try:
        await _ended(task, _CANCEL_SECONDS, asyncio.get_running_loop().create_future())
    finally:
        if not task.done():
            # A tool in a thread ignores the first cancellation, because its result may still arrive.
            task.cancel()
        task.add_done_callback(_discard_outcome)


async def _tool_work(work: Awaitable[Any], ended: "asyncio.Future[None]") -> Any:
    """Await a tool, then set the result of `ended`. A `SystemExit` that the tool raises becomes `ToolFailed`."""
    try:
        return await work
    except SystemExit as exc:
        raise ToolFailed(f"SystemExit: {error_text(exc)}") from exc
    finally:
        if not ended.done():
            ended.set_result(None)


def _discard_outcome(task: "asyncio.Future[Any]") -> None:
    """Read the exception of an abandoned tool, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _arguments(call: Call) -> Json:
    value: Any = call.input
    if not isinstance(value, dict):
        raise Refused("Invalid arguments: they must be a JSON object.")
    value = cast("Json", value)
    if INVALID_JSON in value:
        raise Refused(f"Invalid arguments: this is not JSON: {str(value[INVALID_JSON])[:200]}")
    return value


def _record_outcome(context: RunContext, outcome: ToolOutcome) -> None:
    session, call, requests = context.session, outcome.call, outcome.requests
    problem = outcome.problem or refusal(context, requests)
    content, failed = outcome.content, problem is not None
    entries: list[Entry] = [*outcome.files]
    if problem is not None:
        requests = ToolRequests()
        text, kind = error_text(problem), wire_name_of(problem)
        content = text if isinstance(problem, Refused | ToolFailed) else f"{kind}: {text}"
        data: Json = {"type": kind, "message": text}
        entries.append(session.entry("tool_error", name=call.name, call_id=call.id, call_index=call.index, data=data))
    tool_definition = context.config.definition.tool(call.name)
    unknown = isinstance(problem, ToolFailed) and problem.unknown
    doubtful = unknown and tool_definition is not None and tool_definition.effect != "safe"
    if (
        doubtful
        and tool_definition is not None
        and tool_definition.effect == "once"
        and tool_definition.on_doubt == "ask"
    ):
        # The call stays open. `decide` pauses the run until a person settles it.
        session.record(*entries)
        return
    if doubtful:
        content = f"{content} {IN_DOUBT}"
    block, block_text = _block(call.id, content, failed)
    size, limit = _size(block["content"]), context.config.definition.tool_result_limit
    if size > limit:
        text = (
            f"The tool ran, but its result has {size:,} characters and the limit is {limit:,}. Request less. "
            f"The result starts with: {str(content)[:_SHOWN]}"
        )
        block, block_text = _block(call.id, text, failed=True)
    failed = bool(block.get("is_error"))
    apply_requests(context, call, requests)
    names = ("file_id", "filename")
    files = [{name: file.data[name] for name in names} for file in outcome.files if file.type == "file_generated"]
    answer = session.entry(
        "tool_call",
        name=call.name,
        call_id=call.id,
        call_index=call.index,
        reply_to=session.response_position(call),
        status="in_doubt" if doubtful else "error" if failed else "ok",
        message=block,
        data={**requests.data, "files": files} if files else requests.data,
        duration_ms=outcome.duration_ms,
    )
    answer.json_texts(block_text)
    session.record(*entries, answer)
    if doubtful:
        session.change_run(state=with_doubts(session.open_run, [doubt_of(answer)]))
    context.emit("tool_result", {"id": call.id, "name": call.name, "content": block["content"], "is_error": failed})


def _block(call_id: str, content: Any, failed: bool) -> tuple[Json, bytes]:
    """Return the result block and its JSON text. If the content cannot be stored, the block is an error that says
    so."""
    block = tool_result(call_id, content, is_error=failed)
    try:
        return block, codec.dumps(block)
    except Refused as exc:
        block = tool_result(call_id, f"The result of the tool cannot be stored: {exc}", is_error=True)
        return block, codec.dumps(block)


def as_content(value: Any) -> Any:
    """Return the content of a tool result: a text, content blocks, or other values as JSON text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_block(item) for item in cast("list[Any]", value)):
        return cast("list[Json]", value)
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return codec.dumps(to_jsonable_python(value, fallback=str)).decode()


def _is_block(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    return cast("Json", item).get("type") in ("text", "image", "document", "search_result")


def _size(content: Any) -> int:
    return len(content) if isinstance(content, str) else len(codec.dumps(content))
