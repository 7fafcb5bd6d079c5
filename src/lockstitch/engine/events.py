"""`Event` and its listeners; `LiveTextWriter`: text of running model calls for readers in other processes.

Live text is not part of the record. It is written a few times per second, and deleted after the commit of the stitch
that contains the whole text. Errors here do not affect the run.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeVar
from uuid import UUID

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, LiveDelta, Thread
from lockstitch.model.codec import storable_text
from lockstitch.store import Store, Where

ItemT = TypeVar("ItemT")

EventType = Literal[
    "started",
    "text",
    "thinking",
    "citation",
    "tool_call",
    "tool_result",
    "server_tool_call",
    "server_tool_result",
    "raw",
    "retry",
    "compacted",
    "files",
    "member_started",
    "member_finished",
    "paused",
    "finished",
    "failed",
]
"""The kinds of events; `Event` describes the data of each."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a run. It is sent after the commit that it reports, except for text and other parts of a model's
    response.

        started             {agent, model, user_message, messages: the context so far, if the agent streams it}
        text, thinking      {text}                     a delta; the next llm_call has the whole text
        citation            {…}                        as the provider sends it
        tool_call           {id, name, input}
        tool_result         {id, name, content, is_error}
        server_tool_call    the block                  executed by the provider
        server_tool_result  the block
        raw                 {…}                        the provider's own event
        retry               {attempt, error, message, delay}
        compacted           {tokens_before, tokens_after}
        files               {files: [{file_id, filename, storage_path, size, mime_type, step}]}
        member_started      {agent, model, task}       a team member starts; the events of its run follow
        member_finished     {agent, status, output_text, error}
        paused              {waiting_for, pending: [{tool_use_id, name, input}]}
        finished            the result as JSON, and title; the last event, also of a run that waits or has failed
        failed              {error, type}              the run failed; a finished event follows

    Text without `member` is the answer. If a team passes the answer of a member through, it is sent again as one text
    of the leader when the run ends.
    """

    type: EventType
    """The kind of the event."""
    thread_id: UUID
    """The thread in which it happened."""
    run_id: UUID
    """The run in which it happened."""
    agent: str
    """The name of the agent that acts: of a team the leader, or the member of a nested run."""
    step: int = 0
    """Number of finished model calls of the run."""
    data: Json = field(default_factory=dict[str, Any])
    """The data of the event, see above."""
    member: bool = False
    """True if a team member acts."""


Listener = Callable[[Event], None]
"""Called with each event, in the task of the run. It must not block."""


WRITE_INTERVAL_SECONDS: Final = 0.1
"""Seconds between two writes of one thread. The text of a faster answer is never written here."""

_COMMIT_SECONDS: Final = 1.0
"""Seconds after a complete response until its text is written here, if it is not committed by then."""

_COMMITTED: Final = frozenset({"tool_call", "tool_result", "member_finished", "paused", "finished", "failed"})
"""Events that follow the commit of the text before them."""

_FENCE_SHIFT: Final = 32
"""Bits of a delta number below the fence, so that the numbers of a later holder are always higher."""

_STALE_LIMIT: Final = 1000
"""Maximum number of deltas that one call of `delete_stale_deltas` reads."""

_log = logging.getLogger("lockstitch.live")


def first_delta_number(head: Thread) -> int:
    """Return the first delta number of a thread's current holder. Lower numbers belong to earlier holders."""
    return head.fence << _FENCE_SHIFT


@dataclass(slots=True)
class _Part:
    """A part of the text that is not written yet."""

    run_id: UUID
    step: int
    kind: str
    attempt: int
    text: list[str] = field(default_factory=list[str])


class LiveTextWriter:
    """Writes the text of one execution of one thread. Delta numbers rise over the whole life of a thread."""

    def __init__(self, store: Store, head: Thread) -> None:
        self._table = store.table(LiveDelta)
        self._thread_id = head.id
        self._first = self._number = first_delta_number(head)
        self._attempts: defaultdict[UUID, int] = defaultdict(int)
        self._steps: dict[UUID, int] = {}
        self._parts: list[_Part] = []
        self._written: set[UUID] = set()
        self._obsolete: dict[UUID, int] = {}
        """Runs, and the number up to which their deltas are to be deleted."""
        # The first holder of a thread cannot find text of an earlier one.
        self._cleaned = head.fence <= 1
        self._timer: asyncio.TimerHandle | None = None
        """Starts the next write. A timer costs less than a task, and the text of most answers is never written."""
        self._task: asyncio.Task[None] | None = None

    def on_event(self, event: Event) -> None:
        """Receive the events of a run; see `Listener`."""
        if event.type in ("text", "thinking"):
            self._add_text(event)
        elif event.type == "retry":
            self._attempts[event.run_id] += 1
            self._drop_parts(event.run_id)
        elif event.type in _COMMITTED:
            self._end(event.run_id)

    def on_response(self, run_id: UUID) -> None:
        """Postpone the text of a run whose response is complete: the commit that follows contains it."""
        if self._timer is not None and not self._obsolete and all(part.run_id == run_id for part in self._parts):
            self._cancel_timer()
            self._schedule(_COMMIT_SECONDS)

    async def close(self) -> None:
        """Delete the deltas of this execution, which has ended."""
        if self._task is not None:
            await self._task
        for run_id in {*self._written, *(part.run_id for part in self._parts)}:
            self._end(run_id)
        self._cancel_timer()
        if self._obsolete:
            await self._write()

    def _add_text(self, event: Event) -> None:
        # `Event.step` counts finished steps, and this text belongs to the next one.
        run_id, step = event.run_id, event.step + 1
        if self._steps.get(run_id, step) != step:
            self._end(run_id)
        self._steps[run_id] = step
        attempt = self._attempts[run_id]
        last = self._parts[-1] if self._parts else None
        if last is None or (last.run_id, last.step, last.kind, last.attempt) != (run_id, step, event.type, attempt):
            last = _Part(run_id, step, event.type, attempt)
            self._parts.append(last)
        last.text.append(str(event.data.get("text", "")))
        self._schedule()

    def _end(self, run_id: UUID) -> None:
        """Mark the text of a run as obsolete, because it is committed."""
        self._drop_parts(run_id)
        if run_id in self._written:
            self._written.discard(run_id)
            self._obsolete[run_id] = self._number
            self._schedule()
        elif not self._parts and not self._obsolete:
            self._cancel_timer()

    def _drop_parts(self, run_id: UUID) -> None:
        self._parts = [part for part in self._parts if part.run_id != run_id]

    def _schedule(self, seconds: float | None = None) -> None:
        """Start the next write after this time, unless one is in progress or planned for an earlier time."""
        if self._task is not None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + (WRITE_INTERVAL_SECONDS if seconds is None else seconds)
        if self._timer is not None and self._timer.when() > at:
            self._cancel_timer()
        if self._timer is None:
            self._timer = loop.call_at(at, self._start)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._timer = None
        if self._parts or self._obsolete:
            self._task = asyncio.create_task(self._write(), name=f"lockstitch-live-{self._thread_id}")
            self._task.add_done_callback(self._on_written)

    def _on_written(self, _: "asyncio.Task[None]") -> None:
        self._task = None
        if self._parts or self._obsolete:
            self._schedule()

    async def _write(self) -> None:
        parts, self._parts = self._parts, []
        obsolete, self._obsolete = self._obsolete, {}
        of_thread = Where("thread_id", "=", self._thread_id)
        wheres: list[tuple[Where, ...]] = [
            (of_thread, Where("run_id", "=", run_id), Where("number", "<=", number))
            for run_id, number in obsolete.items()
        ]
        if parts and not self._cleaned:
            self._cleaned = True
            wheres.append((of_thread, Where("number", "<", self._first)))
        self._written.update(part.run_id for part in parts)
        await self._attempt(wheres, [self._delta(part) for part in parts])

    async def _attempt(self, wheres: Sequence[Sequence[Where]], new: Sequence[LiveDelta]) -> None:
        try:
            for where in wheres:
                await self._table.delete(*where)
            if new:
                await self._table.put(*new)
        except Exception as exc:  # live text must not disturb the run
            _log.debug("Cannot write live text: %s", exc)

    def _delta(self, part: _Part) -> LiveDelta:
        self._number += 1
        return LiveDelta(
            thread_id=self._thread_id,
            run_id=part.run_id,
            step_number=part.step,
            number=self._number,
            text={
                "kind": part.kind,
                "text": storable_text("".join(part.text)),
                "attempt": f"{self._first >> _FENCE_SHIFT}.{part.attempt}",
            },
        )


async def delete_stale_deltas(store: Store, threads: Sequence[UUID] | None = None) -> None:
    """Delete the live text of killed workers: of these threads, or of all threads that no worker holds."""
    table = store.table(LiveDelta)
    try:
        if threads is None:
            ids = {delta.thread_id for delta in await table.find(limit=_STALE_LIMIT)}
            heads = await store.threads_by_id(ids, all_projects=True)
            threads = sorted(ids - {head.id for head in heads.values() if head.held})
        if threads:
            await table.delete(Where("thread_id", "in", list(threads)))
    except LockstitchError as exc:
        _log.debug("Cannot delete stale live text: %s", exc)


class _EventQueue:
    """Executes the work of an `EventStream` and queues its events for a slow reader.

    The running task refers to this queue and not to the stream. So Python closes a generator that the reader has left.
    """

    def __init__(self, work: Callable[[Listener], Awaitable[Any]]) -> None:
        self._work = work
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Future[Any] | None = None
        self.has_begun = asyncio.Event()
        """Set when the first event is sent, or when the work ends without one."""
        self.has_events = False

    def begin(self) -> asyncio.Future[Any]:
        if self._task is None:
            self._task = asyncio.ensure_future(self._work(self._send))
            self._task.add_done_callback(lambda _: self._send(None))
        return self._task

    def _send(self, event: Event | None) -> None:
        self._queue.put_nowait(event)
        self.has_events = self.has_events or event is not None
        self.has_begun.set()

    async def events(self) -> AsyncGenerator[Event]:
        task = self.begin()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            await task
        finally:
            await self.stop()

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class EventStream(AsyncIterator[ItemT]):
    """The events of a run, or the frames of its events, in order.

    The run starts with the first iteration. To start it before, await the stream: that raises the errors that prevent
    the run, such as `ThreadBusy`, before anything is sent to a reader. Later errors are raised after the last item.

    ```python
    events = await agent.stream("Hello", store=store, thread="t")
    async for event in events: ...
    ```

    If the reader leaves the loop or closes the stream, the run stops at its last commit.
    """

    def __init__(
        self,
        work: Callable[[Listener], Awaitable[Any]],
        transform: Callable[[AsyncGenerator[Event]], AsyncGenerator[ItemT]],
    ) -> None:
        self._queue = _EventQueue(work)
        self._items = transform(self._queue.events())

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def _start(self) -> Self:
        task = self._queue.begin()
        try:
            await self._queue.has_begun.wait()
            if not self._queue.has_events:
                # The work has ended. If it was refused, this raises the error.
                await task
        except BaseException:
            await self.aclose()
            raise
        return self

    def __aiter__(self) -> AsyncGenerator[ItemT]:
        # The generator, not the stream: Python closes it if the reader leaves the loop.
        return self._items

    async def __anext__(self) -> ItemT:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Stop the run at its last commit, unless it has ended."""
        await self._items.aclose()
        await self._queue.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def event_stream(work: Callable[[Listener], Awaitable[Any]]) -> EventStream[Event]:
    """Return the stream of the events of `work`."""
    return EventStream(work, lambda events: events)
