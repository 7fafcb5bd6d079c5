"""`ProjectStream`: status changes of the threads of a project, for live lists. `follow_stitches`: its stitches."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from typing import Final
from uuid import UUID

from lockstitch.model import Json, Stitch, Thread, format_time
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.server.streams.thread import HEARTBEAT, HEARTBEAT_ITEM, StreamItem
from lockstitch.store import Store, Where

PACE: Final = 0.1
"""Seconds to collect changes, so that many stitches cause one read."""

LOOK: Final = 1.0
"""Maximum seconds between two reads. Claiming and releasing a thread send no notification."""

ALL: Final = 5.0
"""Seconds between two checks of all reported threads. Deleting a waiting thread sends no notification."""

_RECENT: Final = 50
_ACTIVE: Final = 200
_CACHE_SIZE: Final = 1000
"""Number of threads whose last reported status is remembered."""


class ProjectStream:
    """The status of threads for one reader: first recent threads, then changes."""

    def __init__(self, store: Store, feed: ChangeFeed) -> None:
        self._store = store
        self._feed = feed
        self._reported: dict[UUID, Json] = {}

    async def follow(self, *, once: bool = False) -> AsyncGenerator[StreamItem]:
        with self._feed.subscribe() as reader:
            heads = [*await self._store.threads(limit=_RECENT), *await self._active()]
            active: set[UUID] = set()
            beaten = looked = time.monotonic()
            while True:
                for change in self._changes(heads):
                    beaten = time.monotonic()
                    yield change
                if once or self._feed.leaving:
                    return
                active = {head.id for head in heads if head.status in ("pending", "running")}
                wanted = {*await reader.wait(LOOK), *active}
                await asyncio.sleep(PACE)
                wanted |= await reader.wait(0)
                if time.monotonic() - looked >= ALL:
                    looked = time.monotonic()
                    wanted |= self._reported.keys()
                now_active = await self._active()
                wanted -= {head.id for head in now_active}
                heads = [*await self._among(sorted(wanted)), *now_active]
                for change in self._deleted(wanted, {head.id for head in heads}):
                    yield change
                if time.monotonic() - beaten >= HEARTBEAT:
                    beaten = time.monotonic()
                    yield HEARTBEAT_ITEM

    async def _active(self) -> list[Thread]:
        return await self._store.threads(status=["pending", "running"], limit=_ACTIVE)

    async def _among(self, ids: Sequence[UUID]) -> list[Thread]:
        """Return the threads with these ids in the project."""
        if not ids:
            return []
        return await self._store.find_threads(Where("id", "in", list(ids)), order=("id",))

    def _changes(self, heads: Sequence[Thread]) -> Iterator[StreamItem]:
        for head in heads:
            row = summary(head)
            if self._reported.get(head.id) != row:
                self._reported.pop(head.id, None)
                self._reported[head.id] = row
                yield StreamItem("status", row)
        while len(self._reported) > _CACHE_SIZE:
            self._reported.pop(next(iter(self._reported)))

    def _deleted(self, wanted: Collection[UUID], matches: Collection[UUID]) -> Iterator[StreamItem]:
        for thread_id in wanted:
            if thread_id not in matches and self._reported.pop(thread_id, None) is not None:
                yield StreamItem("status", {"thread_id": str(thread_id), "status": "deleted"})


async def follow_stitches(watched: AsyncGenerator[Stitch], leaving: Callable[[], bool]) -> AsyncGenerator[StreamItem]:
    """Yield the stitches of a watch until the server stops, with heartbeats in between."""
    last_sent = time.monotonic()
    async with aclosing(watched) as stitches:
        following: asyncio.Task[Stitch | None] | None = None
        try:
            while not leaving():
                following = following or asyncio.ensure_future(anext(stitches, None))
                await asyncio.wait({following}, timeout=LOOK)
                if following.done():
                    stitch, following = following.result(), None
                    if stitch is None:
                        return
                    last_sent = time.monotonic()
                    yield StreamItem("stitch", stitch.as_json(), stitch)
                elif time.monotonic() - last_sent >= HEARTBEAT:
                    last_sent = time.monotonic()
                    yield HEARTBEAT_ITEM
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait({following})


def summary(head: Thread) -> Json:
    """Return a thread as a list row, without totals of its runs."""
    return {
        "thread_id": str(head.id),
        "key": head.key,
        "parent_id": str(head.parent_id) if head.parent_id else None,
        "kind": head.kind,
        "agent": head.agent,
        "title": head.title,
        "status": head.status,
        "waiting_for": head.waiting_for,
        "needs_person": head.status == "waiting" and any(wait.needs_person for wait in head.waits),
        "position": head.position,
        "updated_at": format_time(head.updated_at),
    }
