"""Running tools: several at once, each marked before it starts, their results committed in batches as they come."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from lockstitch.engine.actions.output import keep_file
from lockstitch.engine.actions.tool_requests import apply_requests, check_budget, refusal, resolve_wait
from lockstitch.engine.decision.decide import IN_DOUBT
from lockstitch.engine.decision.in_doubt import doubt_of, with_doubts
from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.ports.provider import INVALID_JSON
from lockstitch.engine.ports.tool import ToolContext, ToolFailed, ToolRequests
from lockstitch.engine.session.run_context import RunCancelled, RunContext
from lockstitch.errors import LockstitchError, Refused, wire_name_of
from lockstitch.model import Entry, Json, codec, tool_result
from lockstitch.model.codec import error_text

_GRACE: Final = 0.05
"""Seconds that a finished result waits for others, so that tools which end together are one commit."""

_PATIENCE: Final = 1.0
"""Seconds that a tool has to end once it is cancelled; then it is left to itself."""

_SHOWN: Final = 2_000
"""Characters shown of a result that is too long."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave."""

    call: Call
    content: Any
    problem: Exception | None
    files: Sequence[Entry]
    orders: ToolRequests
    duration_ms: int


@dataclass(slots=True)
class _Begun:
    """The calls whose tools have started, and the outcomes of tools that finished although they were cancelled."""

    started: set[int] = field(default_factory=set[int])
    finished: list[ToolOutcome] = field(default_factory=list[ToolOutcome])


_Running = dict["asyncio.Task[ToolOutcome]", Call]


async def run_tools(context: RunContext, calls: Sequence[Call]) -> None:
    """Run the calls. The last batch of results is noted, and committed by the next act.

    If the run is to end, or this process gives it up, the results of tools that have finished are noted all the same:
    an effect whose result is known is not in doubt. A call that was marked and never started is answered as such.
    """
    session = context.journal
    waiting = deque(calls)
    running: _Running = {}
    starting: list[Call] = []
    started = _Begun()
    try:
        while True:
            starting = _next(waiting, context.setup.definition.parallel_tools - len(running))
            session.record(*started_entries(context, starting))
            if running or starting:
                await _commit_and_tell(context, starting)
            if len(starting) == 1 and not running and not waiting:
                # Nothing to run beside it, so no task of its own.
                _note(context, await context.cancellable(_run(context, starting[0], started)))
                return
            running |= {asyncio.create_task(_run(context, call, started)): call for call in starting}
            if not running:
                return
            await context.cancellable(_some_end(running))
            _note_ended(context, running)
    except RunCancelled:
        await _end(running)
        if context.lost is None:
            _note_interrupted(context, running, started, starting)
        raise
    except asyncio.CancelledError:
        await _end(running)
        if context.lost is None:
            _note_interrupted(context, running, started)
            # The run stays open, and the next executor must know what has finished.
            await asyncio.shield(_commit_results(context))
        raise
    finally:
        await _end(running)


async def _commit_results(context: RunContext) -> None:
    """Commit the noted results. If the store refuses or does not answer, the calls are in doubt."""
    with suppress(LockstitchError):
        await context.journal.commit()


def _note_interrupted(context: RunContext, running: _Running, started: _Begun, starting: Sequence[Call] = ()) -> None:
    """Note what is known when calls are given up: results that came all the same, and calls that never started."""
    finished = {outcome.call.index: outcome for outcome in started.finished}
    for task in [task for task in running if task.done() and not task.cancelled()]:
        del running[task]
        if task.exception() is None:
            finished[task.result().call.index] = task.result()
    for _, outcome in sorted(finished.items()):
        _note(context, outcome)
    for call in starting:
        if call.index not in started.started:
            _note_unstarted(context, call)


def _note_unstarted(context: RunContext, call: Call) -> None:
    """Answer a call whose mark is committed and whose tool did not start: it is not in doubt."""
    session = context.journal
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
    """Wait until some calls have ended, and a moment longer for those that end with them."""
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    if not all(task.done() for task in running):
        await asyncio.wait(running, timeout=_GRACE)


def _note_ended(context: RunContext, running: _Running) -> None:
    """Note the results of those that have ended, in the order of their calls."""
    done = [task for task in running if task.done()]
    for task in done:
        del running[task]
    for outcome in sorted((task.result() for task in done), key=lambda outcome: outcome.call.index):
        _note(context, outcome)


async def _end(tasks: _Running) -> None:
    """Cancel what still runs and see it end."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)


def _next(waiting: deque[Call], count: int) -> list[Call]:
    return [waiting.popleft() for _ in range(min(count, len(waiting)))]


def started_entries(context: RunContext, calls: Sequence[Call]) -> list[Entry]:
    """Return the entries that say which calls are about to start. Safe calls need none: they may run again in any case.
    Keyed calls that were interrupted have theirs."""
    return [
        context.journal.entry("tool_started", name=call.name, call_id=call.id, call_index=call.index)
        for call in calls
        if (tool_definition := context.setup.definition.tool(call.name)) is not None
        and tool_definition.effect != "safe"
        and not (tool_definition.effect == "keyed" and call.state == "cut")
    ]


async def _commit_and_tell(context: RunContext, starting: Sequence[Call]) -> None:
    for call in starting:
        context.emit("tool_call", {"id": call.id, "name": call.name, "input": call.input})
    await context.journal.commit()


async def _run(stage: RunContext, call: Call, started: _Begun) -> ToolOutcome:
    """Run one call, and return its outcome. If it is cancelled after its tool has finished, `begun` has the outcome."""
    session = stage.journal
    tool = stage.setup.tools[call.name]
    response = session.snapshot.response
    context = ToolContext(
        thread=session.head,
        run_id=session.open_run.id,
        call_id=call.id,
        step=call.step,
        store=session.store,
        deps=stage.setup.deps,
        response_id=response.id if response is not None else None,
        agents=stage.setup.agents,
        lane=session.lane,
        call_index=call.index,
    )
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
        limit = tool.timeout or stage.setup.definition.tool_timeout or stage.deadline
        started.started.add(call.index)
        try:
            content = as_content(await _within(limit, work))
        except _FinishedLate as late:
            problem = late.problem
            content, finished = None if problem is not None else as_content(late.result), True
            raise asyncio.CancelledError from None
        finished = True
        await check_budget(stage, context.requests)
        await resolve_wait(stage, context.requests)
        for file in context.files:
            files += await keep_file(stage, file, step=call.step)
    except asyncio.CancelledError:
        # What a tool ordered is made with its result, if the limits allow it, which were not checked yet.
        if finished and not context.requests.data:
            started.finished.append(outcome())
        raise
    except Exception as exc:  # whatever a tool raises is its result
        problem = exc
    return outcome()


class _FinishedLate(BaseException):
    """The call was cancelled, and its tool finished with this result, or had failed with this problem before."""

    def __init__(self, result: Any = None, problem: Exception | None = None) -> None:
        self.result = result
        self.problem = problem


class _OutOfTime(TimeoutError):
    """The tool exceeded its time limit and was cancelled."""


async def _within(limit: float | None, work: Awaitable[Any]) -> Any:
    """Return the result of a tool. It runs in a separate task, so that a tool that does not end blocks nothing else,
    and a tool that cancels itself is distinguished from a run that is given up.

    Raises `_OutOfTime` if the tool exceeds its time limit, and `_FinishedLate` if the caller is cancelled and the tool
    finishes nevertheless.
    """
    task = asyncio.create_task(_without_system_exit(work))
    try:
        await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        done = task.done()
        await _give_up(task)
        if task.done() and not task.cancelled():
            problem = task.exception()
            if problem is None:
                raise _FinishedLate(task.result()) from None
            if done and isinstance(problem, Exception):
                raise _FinishedLate(problem=problem) from None
        raise
    await _give_up(task)
    if not task.done() or (task.cancelled() and task.cancelling()):
        raise _OutOfTime(f"The tool did not end within {limit} seconds.")
    if task.cancelled():
        raise ToolFailed("The tool gave itself up.")
    return task.result()


async def _give_up(task: "asyncio.Task[Any]") -> None:
    """Cancel a tool that still runs, and wait a moment for it to end."""
    if task.done():
        return
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=_PATIENCE)
    finally:
        if not task.done():
            # A tool in a thread defers the first cancellation, since its result may still come.
            task.cancel()
        task.add_done_callback(_forget)


async def _without_system_exit(work: Awaitable[Any]) -> Any:
    """A tool that wants to end the process has failed, and no more."""
    try:
        return await work
    except SystemExit as exc:
        raise ToolFailed(f"SystemExit: {error_text(exc)}") from exc


def _forget(task: "asyncio.Future[Any]") -> None:
    """Nobody waits for this one any more, so nobody is told how it ended."""
    if not task.cancelled():
        task.exception()


def _arguments(call: Call) -> Json:
    value: Any = call.input
    if not isinstance(value, dict):
        raise Refused("Invalid arguments: they must be a JSON object.")
    value = cast("Json", value)
    if INVALID_JSON in value:
        raise Refused(f"Invalid arguments: this is no JSON: {str(value[INVALID_JSON])[:200]}")
    return value


def _note(context: RunContext, outcome: ToolOutcome) -> None:
    session, call, orders = context.journal, outcome.call, outcome.orders
    problem = outcome.problem or refusal(context, orders)
    content, failed = outcome.content, problem is not None
    entries: list[Entry] = [*outcome.files]
    if problem is not None:
        orders = ToolRequests()
        text, kind = error_text(problem), wire_name_of(problem)
        content = text if isinstance(problem, Refused | ToolFailed) else f"{kind}: {text}"
        data: Json = {"type": kind, "message": text}
        entries.append(session.entry("tool_error", name=call.name, call_id=call.id, call_index=call.index, data=data))
    tool_definition = context.setup.definition.tool(call.name)
    doubtful = isinstance(problem, _OutOfTime) and tool_definition is not None and tool_definition.effect != "safe"
    if (
        doubtful
        and tool_definition is not None
        and tool_definition.effect == "once"
        and tool_definition.on_doubt == "ask"
    ):
        # The call stays open: `decide` has the thread wait until a person settles it.
        session.record(*entries)
        return
    if doubtful:
        content = f"{content} {IN_DOUBT}"
    block = _block(call.id, content, failed)
    size, limit = _size(block["content"]), context.setup.definition.tool_result_limit
    if size > limit:
        text = (
            f"The tool ran, but its result has {size:,} characters, and {limit:,} are the limit. Ask for less. "
            f"It begins: {str(content)[:_SHOWN]}"
        )
        block = _block(call.id, text, failed=True)
    failed = bool(block.get("is_error"))
    apply_requests(context, call, orders)
    answer = session.entry(
        "tool_call",
        name=call.name,
        call_id=call.id,
        call_index=call.index,
        reply_to=session.response_position(call),
        status="in_doubt" if doubtful else "error" if failed else "ok",
        message=block,
        data=orders.data,
        duration_ms=outcome.duration_ms,
    )
    session.record(*entries, answer)
    if doubtful:
        session.change_run(state=with_doubts(session.open_run, [doubt_of(answer)]))
    context.emit("tool_result", {"id": call.id, "name": call.name, "content": block["content"], "is_error": failed})


def _block(call_id: str, content: Any, failed: bool) -> Json:
    """The result as it is kept; what cannot be kept becomes an error that says so."""
    block = tool_result(call_id, content, is_error=failed)
    try:
        codec.dumps(block)
    except Refused as exc:
        return tool_result(call_id, f"The tool's result cannot be kept: {exc}", is_error=True)
    return block


def as_content(value: Any) -> Any:
    """A tool's return value as the content of its result: text, or blocks, or JSON as text."""
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
