"""How tools are run: within the steps and the time that a session has, again when a failure may pass, and not slowly.

A session has ten steps whatever the model does. A call's place among them follows from the log, so it is the same for
whoever goes on after a crash.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from lockstitch.apps.prioritizer.models import MAX_STEPS, Model
from lockstitch.errors import StoreUnreachable
from lockstitch.records import Json, Stitch, tool_uses
from lockstitch.runtime import Tool, ToolContext, ToolFailed
from lockstitch.runtime.provider import ProviderError

_log: Final = logging.getLogger("lockstitch.prioritizer")

OUT_OF_STEPS: Final = (
    f"The {MAX_STEPS} steps of this session are used up, so this was not done. Answer with the plan now, as JSON."
)


class Output(Model):
    """What a tool gives."""

    performance_warning: str | None = None
    """That it took long, if it did."""


@dataclass(frozen=True)
class Pace:
    """How often a call is tried, and how long it and its session may take, in seconds."""

    retries: int = 2
    delay: float = 2.0
    slow: float = 5.0
    hard_timeout: float = 300.0
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep


def paced(tool: Tool, pace: Pace) -> Tool:
    """A tool that keeps to the pace."""
    inner = tool.call
    assert inner is not None

    async def call(context: ToolContext, given: Json) -> Any:
        log = await context.store.log(context.run_id)
        if place(log, context.response_id, context.call_index) >= MAX_STEPS:
            raise ToolFailed(OUT_OF_STEPS)
        clock = context.store.clock
        began = clock.now()
        if log and log[0].at is not None and (began - log[0].at).total_seconds() > pace.hard_timeout:
            context.complete(timed_out(pace.hard_timeout), status="failed")
            return Output(performance_warning=timed_out(pace.hard_timeout))
        output = await _tried(lambda: inner(context, given), tool.name, pace)
        took = (clock.now() - began).total_seconds()
        if took <= pace.slow or not isinstance(output, Output):
            return output
        said = f"{tool.name} took {took:.1f} s"
        _log.warning("%s in session %s", said, context.thread.id)
        return output.model_copy(update={"performance_warning": said})

    return replace(tool, call=call)


async def _tried(call: Callable[[], Awaitable[Any]], name: str, pace: Pace) -> Any:
    """What a call gives, which is made again where its failure may pass."""
    for attempt in range(pace.retries):
        try:
            return await call()
        except Exception as exc:
            if not may_pass(exc):
                raise
            _log.info("%s failed and is tried again (%d): %s", name, attempt + 1, exc)
        await pace.sleep(pace.delay)
    return await call()


def timed_out(seconds: float) -> str:
    return f"The session did not end within {seconds:g} s."


def may_pass(exc: Exception) -> bool:
    """Whether trying again is worth it."""
    if isinstance(exc, ProviderError):
        return exc.retryable
    return isinstance(exc, StoreUnreachable | ConnectionError | TimeoutError)


def place(log: Sequence[Stitch], response_id: UUID | None, call_index: int) -> int:
    """Return the number of steps before a call: calls of earlier responses, thoughts without a call, calls beside it.

    The response and the index name the call, since a later response may use the same call id.
    """
    before = 0
    for stitch in log:
        if stitch.type != "llm_call" or stitch.message is None or stitch.lane is not None:
            continue
        if stitch.id == response_id:
            return before + call_index
        before += len(tool_uses(stitch.message)) or 1
    return before
