"""`Event`, listeners, event iterator; live text for readers in other processes.

Nothing rests on it. It is written beside the run, a few times a second, and taken away once the stitch is committed
that has it all; whatever goes wrong here, the run does not notice.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, LiveDelta, Thread
from lockstitch.model.codec import storable_text
from lockstitch.store import Store, Where

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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run. Whatever an event tells of is committed, except deltas of text.

    `agent` is who acts: of a team the leader, or the member whose run it is; `member` says that it is one of these. The
    texts that no member says are the answer; one that is passed through is the leader's as a whole, once it is there.

    started             {agent, model, user_message, messages: the context so far}
    text, thinking      {text}                     a delta; the whole is in the next llm_call
    citation            {…}                        as the provider gives it
    tool_call           {id, name, input}
    tool_result         {id, name, content, is_error}
    server_tool_call    the block                  executed by the provider
    server_tool_result  the block
    raw                 {…}                        the provider's own event
    retry               {attempt, delay, error}
    compacted           {tokens_before, tokens_after}
    files               {files: [{file_id, filename, storage_path, size, mime_type, step}]}
    member_started      {agent, model, task}       a member of the team begins; the events of its run follow
    member_finished     {agent, status, output_text, error}
    paused              {waiting_for, pending: [{tool_use_id, name, input}]}
    finished            the result as JSON; it may be completed, cancelled or failed
    failed              {error, type}              the run failed; a finished follows
    """

    type: EventType
    thread_id: UUID
    run_id: UUID
    agent: str
    step: int = 0
    data: Json = field(default_factory=dict[str, Any])
    member: bool = False


Listener = Callable[[Event], None]
"""Called with each event, in the task of the run."""


PAUSE: Final = 0.1
"""Seconds between two writes of one thread. An answer that is there sooner is never written here."""

_COMMITTED: Final = frozenset({"tool_call", "tool_result", "member_finished", "paused", "finished", "failed"})
"""Events that come after the commit of what was said before them."""

_FENCE: Final = 32
"""Bits of a number below the fence: so many deltas fit into one drive."""

_MANY: Final = 1000

_log = logging.getLogger("lockstitch.live")


def first_delta_number(head: Thread) -> int:
    """The number that deltas of a thread's present holder begin with; those below are leftovers of an earlier one."""
    return head.fence << _FENCE


@dataclass(slots=True)
class _Part:
    """A stretch of what was said that is not written yet."""

    run_id: UUID
    step: int
    kind: str
    attempt: int
    text: list[str] = field(default_factory=list[str])


class LiveTextWriter:
    """What is said in one drive of one thread. Numbers rise over the whole life of a thread."""

    def __init__(self, store: Store, head: Thread) -> None:
        self._table = store.table(LiveDelta)
        self._thread_id = head.id
        self._first = self._number = first_delta_number(head)
        self._attempts: defaultdict[UUID, int] = defaultdict(int)
        self._steps: dict[UUID, int] = {}
        self._heard: list[_Part] = []
        self._written: set[UUID] = set()
        self._over: dict[UUID, int] = {}
        """Runs of which deltas up to a number are to be taken away."""
        self._cleaned = False
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def on_event(self, event: Event) -> None:
        """Listen to a run; see `stage.Listener`."""
        if event.type in ("text", "thinking"):
            self._say(event)
        elif event.type == "retry":
            self._attempts[event.run_id] += 1
            self._forget(event.run_id)
        elif event.type in _COMMITTED:
            self._end(event.run_id)

    async def close(self) -> None:
        """The drive is over: nothing of it stays."""
        self._closing.set()
        for run_id in {*self._written, *(part.run_id for part in self._heard)}:
            self._end(run_id)
        if self._task is not None:
            await self._task

    def _say(self, event: Event) -> None:
        # A step counts once its answer is there.
        run_id, step = event.run_id, event.step + 1
        if self._steps.get(run_id, step) != step:
            self._end(run_id)
        self._steps[run_id] = step
        attempt = self._attempts[run_id]
        last = self._heard[-1] if self._heard else None
        if last is None or (last.run_id, last.step, last.kind, last.attempt) != (run_id, step, event.type, attempt):
            last = _Part(run_id, step, event.type, attempt)
            self._heard.append(last)
        last.text.append(str(event.data.get("text", "")))
        self._start()

    def _end(self, run_id: UUID) -> None:
        """What was said is committed."""
        self._forget(run_id)
        if run_id in self._written:
            self._written.discard(run_id)
            self._over[run_id] = self._number
            self._start()

    def _forget(self, run_id: UUID) -> None:
        self._heard = [part for part in self._heard if part.run_id != run_id]

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name=f"lockstitch-live-{self._thread_id}")

    async def _write(self) -> None:
        while self._heard or self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._closing.wait()
            parts, self._heard = self._heard, []
            over, self._over = self._over, {}
            of_thread = Where("thread_id", "=", self._thread_id)
            wheres: list[tuple[Where, ...]] = [
                (of_thread, Where("run_id", "=", run_id), Where("number", "<=", number))
                for run_id, number in over.items()
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
        except Exception as exc:  # nobody may be harmed by what is only shown
            _log.debug("Live text was not written: %s", exc)

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
                "attempt": f"{self._first >> _FENCE}.{part.attempt}",
            },
        )


async def sweep(store: Store, threads: Sequence[UUID] | None = None) -> None:
    """Take away what killed workers have left: of these threads, or of all that nobody holds any more."""
    table = store.table(LiveDelta)
    try:
        if threads is None:
            ids = {delta.thread_id for delta in await table.find(limit=_MANY)}
            heads = await store.threads_by_id(ids, all_projects=True)
            threads = sorted(ids - {head.id for head in heads.values() if head.held})
        if threads:
            await table.delete(Where("thread_id", "in", list(threads)))
    except LockstitchError as exc:
        _log.debug("Leftovers of live text stay: %s", exc)


async def event_iterator(work: Callable[[Listener], Awaitable[Any]]) -> AsyncGenerator[Event, None]:
    """The events of `work` as they come. Its error, if it ends with one, is raised after the last of them.

    Events wait in line for a reader that is slow. When the reader leaves, the work is cancelled.
    """
    line: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.ensure_future(work(line.put_nowait))
    task.add_done_callback(lambda _: line.put_nowait(None))
    try:
        while (event := await line.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
