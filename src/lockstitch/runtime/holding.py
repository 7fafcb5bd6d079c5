"""Holding threads: while a process executes any, it renews its lease and looks for requests to cancel.

The store releases what the process no longer executes: see `store/releasing.py`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from lockstitch.errors import ThreadBusy
from lockstitch.records import Json, Thread
from lockstitch.runtime.stage import Stage
from lockstitch.store import Store
from lockstitch.store.desk import Desk
from lockstitch.store.pulse import BEAT
from lockstitch.store.unsafe import unsafe

LOOK: Final = 0.25
"""Seconds between two looks for wishes to cancel."""

_log = logging.getLogger("lockstitch")


class _Holder:
    """One per store: the beat of this process, and the threads it drives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._driven: set[Stage] = set()
        self._task: asyncio.Task[None] | None = None
        self._beats = True
        """Whether the beat is left to this object, since the store is this process's alone."""

    @property
    def idle(self) -> bool:
        return not self._driven

    @property
    def executing(self) -> int:
        return len(self._driven)

    async def add(self, stage: Stage) -> None:
        self._driven.add(stage)
        self._beats = not await self._store.desk.pulse(self._doing, self._lose)
        self._keep_watching()

    def _doing(self) -> Json:
        return {str(stage.journal.head.id): stage.doing for stage in self._driven}

    async def hear(self) -> None:
        """Hear whether this process was declared dead; then it goes on as somebody new."""
        if await self._store.desk.declared_dead():
            self._lose("it was declared dead")

    def _lose(self, why: str) -> None:
        """This process's lease is lost: everything it drives is another's by now, or soon."""
        if unsafe("fence"):
            return
        _log.error("This process lost its lease (%s); what it was doing goes on elsewhere.", why)
        for stage in self._driven:
            stage.lose(why)

    async def remove(self, stage: Stage) -> None:
        self._driven.discard(stage)
        if self.idle and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _keep_watching(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="lockstitch-holding")

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        beaten = looked = clock()
        while not self.idle:
            await asyncio.sleep(LOOK)
            try:
                if self._beats and clock() - beaten >= BEAT:
                    await self._store.register(doing=self._doing())
                    beaten = clock()
                if clock() - looked >= BEAT / 5:
                    looked = clock()
                    await self.hear()
                    await self._store.desk.reconcile()
                # A wish that is seen before a run begins was meant for the one before it.
                begun = [stage for stage in self._driven if stage.journal.run is not None]
                wished = set(await self._store.desk.wishes_to_cancel())
                for stage in self._driven.intersection(begun):
                    if stage.journal.head.id in wished and not stage.stopping:
                        stage.interrupt()
            except Exception as exc:  # without this task requests to cancel are not seen
                # What is unknown is no reason to stop: a lease that was lost shows at the next append.
                _log.warning("The beat of this process failed: %s", exc)


_holders: WeakKeyDictionary[Desk, _Holder] = WeakKeyDictionary()
"""By what all views of a store have in common."""


@asynccontextmanager
async def holding(store: Store, stage: Stage) -> AsyncGenerator[None, None]:
    """Keep this process's lease alive while a thread is driven; it is interrupted when somebody wants it to end."""
    holder = _holder(store)
    try:
        await holder.add(stage)
        yield
    finally:
        await holder.remove(stage)
        if holder.idle:
            _holders.pop(store.desk, None)


def executing() -> int:
    """Return the number of threads that this process executes now, over all of its stores."""
    return sum(holder.executing for holder in _holders.values())


async def claimed(store: Store, head: Thread, **options: Any) -> Thread:
    """A thread that this process takes, as somebody new if it was declared dead and has not heard of it: what it drove
    as who it was is others', but not what it is going to do."""
    try:
        return await store.claim(head, **options)
    except ThreadBusy as exc:
        if exc.reason != "dead":
            raise
    holder = _holder(store)
    await holder.hear()
    if holder.idle:
        _holders.pop(store.desk, None)
    return await store.claim(head, **options)


def _holder(store: Store) -> _Holder:
    return _holders.setdefault(store.desk, _Holder(store))
