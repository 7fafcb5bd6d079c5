"""Holding threads: while a process drives any, its pulse beats, and it listens for wishes to cancel.

What it no longer drives it gives back; where the store does not answer at that moment, as soon as it does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from lockstitch.errors import Conflict, LockstitchError, NotFound, StoreError, ThreadBusy
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
        self._left: dict[UUID, tuple[Thread, dict[str, Any]]] = {}
        """What is driven no more and could not be given back."""
        self._task: asyncio.Task[None] | None = None
        self._beats = True
        """Whether the beat is left to this object, since the store is this process's alone."""

    @property
    def idle(self) -> bool:
        return not self._driven and not self._left

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

    async def give_back(self, head: Thread, fields: dict[str, Any]) -> None:
        """Let go of a thread, leaving these fields; if not now, then later. What is another's by now stays so."""
        self._left.pop(head.id, None)
        try:
            await self._let_go(head, fields)
        except StoreError as exc:
            _log.warning("Thread %s is given back as soon as the store answers: %s", head.id, exc)
            self._left[head.id] = (head, fields)
            self._keep_watching()

    async def give_back_left(self, thread_id: UUID) -> None:
        """Let go of a thread that could not be given back before, if it is one."""
        if thread_id in self._left:
            await self.give_back(*self._left[thread_id])

    async def _let_go(self, head: Thread, fields: dict[str, Any]) -> None:
        # Letters that came meanwhile are a reason to go on, whatever it waited for.
        for attempt in (fields, {"status": "pending"}, {"status": "pending"}):
            try:
                now = await self._store.thread(head)
                if _tenure(now) != _tenure(head):
                    return
                if attempt.get("status") == "waiting" and not attempt.get("wake_at"):
                    # A letter that nobody has looked at would be one that nobody ever looks at.
                    now, letters = await self._store.in_project(now.project).inbox(now)
                    attempt = {"status": "pending"} if letters else attempt
                await self._store.append(now, fields=attempt)
            except NotFound:
                return
            except Conflict:
                continue
            return

    def _keep_watching(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="lockstitch-holding")

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        beaten = looked = clock()
        while not self.idle:
            await asyncio.sleep(LOOK)
            for thread_id in list(self._left):
                await self.give_back_left(thread_id)
            try:
                if self._beats and clock() - beaten >= BEAT:
                    await self._store.register(doing=self._doing())
                    beaten = clock()
                if clock() - looked >= BEAT / 5:
                    looked = clock()
                    await self.hear()
                # A wish that is seen before a run begins was meant for the one before it.
                begun = [stage for stage in self._driven if stage.journal.run is not None]
                wished = set(await self._store.desk.wishes_to_cancel())
                for stage in self._driven.intersection(begun):
                    if stage.journal.head.id in wished and not stage.stopping:
                        stage.interrupt()
            except LockstitchError as exc:
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


async def give_back(store: Store, head: Thread, fields: dict[str, Any]) -> None:
    """Let go of a thread that was not driven to a rest. Raises nothing: it is done now, or when the store answers."""
    holder = _holder(store)
    await holder.give_back(head, fields)
    if holder.idle:
        _holders.pop(store.desk, None)


async def give_back_left(store: Store, thread_id: UUID) -> None:
    """Let go of a thread that this process still holds only because the store did not answer."""
    holder = _holders.get(store.desk)
    if holder is not None:
        await holder.give_back_left(thread_id)


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


def _tenure(head: Thread) -> tuple[Any, ...]:
    """Who holds a thread since when. One that is held from its making on is told from its namesake that another task of
    this process made by the time it was made: both have the first fence."""
    return head.worker_id, head.fence, head.created_at


def _holder(store: Store) -> _Holder:
    return _holders.setdefault(store.desk, _Holder(store))
