"""Live text: what a model says while it says it, on its way to readers in other processes.

Nothing rests on it. It is written beside the run, a few times a second, and taken away once the stitch is committed
that has it all; whatever goes wrong here, the run does not notice.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import LockstitchError
from lockstitch.records import Delta, Thread
from lockstitch.runtime.event import Event
from lockstitch.runtime.wording import keepable

PAUSE: Final = 0.1
"""Seconds between two writes of one thread. An answer that is there sooner is never written here."""

_COMMITTED: Final = frozenset({"tool_call", "tool_result", "member_finished", "paused", "finished", "failed"})
"""Events that come after the commit of what was said before them."""

_FENCE: Final = 32
"""Bits of a number below the fence: so many deltas fit into one drive."""

_MANY: Final = 1000

_log = logging.getLogger("lockstitch.live")


def first_number(head: Thread) -> int:
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


class Live:
    """What is said in one drive of one thread. Numbers rise over the whole life of a thread."""

    def __init__(self, backend: FullBackend, head: Thread) -> None:
        self._backend = backend
        self._thread_id = head.id
        self._first = self._number = first_number(head)
        self._attempts: defaultdict[UUID, int] = defaultdict(int)
        self._steps: dict[UUID, int] = {}
        self._heard: list[_Part] = []
        self._written: set[UUID] = set()
        self._over: dict[UUID, int] = {}
        """Runs of which deltas up to a number are to be taken away."""
        self._cleaned = False
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def hear(self, event: Event) -> None:
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
            heard, self._heard = self._heard, []
            over, self._over = self._over, {}
            gone = [Find(Delta, (*self._of(run_id), Where("number", "<=", number))) for run_id, number in over.items()]
            if heard and not self._cleaned:
                self._cleaned = True
                gone.append(Find(Delta, (Where("thread_id", "=", self._thread_id), Where("number", "<", self._first))))
            self._written.update(part.run_id for part in heard)
            await _attempt(self._backend, gone, [self._delta(part) for part in heard])

    def _of(self, run_id: UUID) -> tuple[Where, Where]:
        return Where("thread_id", "=", self._thread_id), Where("run_id", "=", run_id)

    def _delta(self, part: _Part) -> Delta:
        self._number += 1
        return Delta(
            thread_id=self._thread_id,
            run_id=part.run_id,
            step_number=part.step,
            number=self._number,
            text={
                "kind": part.kind,
                "text": keepable("".join(part.text)),
                "attempt": f"{self._first >> _FENCE}.{part.attempt}",
            },
        )


async def sweep(backend: FullBackend, threads: Sequence[UUID] | None = None) -> None:
    """Take away what killed workers have left: of these threads, or of all that nobody holds any more."""
    try:
        if threads is None:
            found = await backend.find(Find(Delta, limit=_MANY))
            ids = {delta.thread_id for delta in found}
            held = {
                head.id for head in await backend.find(Find(Thread, (Where("id", "in", sorted(ids)),))) if head.held
            }
            threads = sorted(ids - held)
        if threads:
            await backend.delete(Find(Delta, (Where("thread_id", "in", list(threads)),)))
    except LockstitchError as exc:
        _log.debug("Leftovers of live text stay: %s", exc)


async def _attempt(backend: FullBackend, gone: Sequence[Find[Delta]], new: Sequence[Delta]) -> None:
    try:
        for find in gone:
            await backend.delete(find)
        if new:
            await backend.put(new)
    except Exception as exc:  # nobody may be harmed by what is only shown
        _log.debug("Live text was not written: %s", exc)
