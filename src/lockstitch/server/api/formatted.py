"""Streams of one run in the format of a frontend, from any process that executes the run."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from lockstitch.agents import Event, Result
from lockstitch.agents.formatters import formats
from lockstitch.agents.formatters.formatter import Formatter
from lockstitch.engine.replay import EventReplay
from lockstitch.engine.result import run_for
from lockstitch.model import Thread
from lockstitch.server.auth import Caller
from lockstitch.server.streams.thread import LIVELY, ThreadStream, is_idle


async def frames(caller: Caller, formatter: Formatter, head: Thread, after: int | Result) -> AsyncGenerator[str]:
    """Yield the server-sent events of a run until it has ended or waits for a person.

    Args:
        caller: The caller of the route.
        formatter: Formatter of this stream.
        head: The thread.
        after: The position before the first event, or the result of a message: the position before its run.
    """
    position = after if isinstance(after, int) else await _before(caller, after)
    follower = ThreadStream(caller.store, caller.state.changes, head.id, position)
    async with aclosing(follower.events("idle")) as stream_items:
        events = _of_one_run(EventReplay(caller.store, head).events(stream_items))
        async for frame in formats.stream(events, formatter):
            yield frame


async def _before(caller: Caller, result: Result) -> int:
    """Return the position before the run of a message, once the run starts.

    If the message is queued behind a run that waits for a person, return the position before that run.
    """
    store, news = caller.store, caller.state.changes
    with news.subscribe(result.thread_id) as reader:
        while True:
            head = await store.thread(result.thread_id)
            run = await run_for(store, result.run_id)
            if run.status == "pending" and is_idle(head):
                run = await store.execution.open_run(head) or run
            if run.status != "pending" or is_idle(head) or news.leaving:
                return run.first_position - 1
            await reader.wait(LIVELY)


async def _of_one_run(events: AsyncGenerator[Event | None]) -> AsyncGenerator[Event]:
    """Yield the events until a top-level run has ended. Another run of the thread may follow."""
    async with aclosing(events):
        async for event in events:
            if event is not None:
                yield event
                if event.type == "finished" and not event.member:
                    return
