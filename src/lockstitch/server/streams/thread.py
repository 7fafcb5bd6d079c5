"""`ThreadStream`: the stitches of a thread, each once and in order, streamed text, and status changes.

A stream has no queue. It reads the thread, yields the new items, and waits for a notification or a short time. So a
slow reader does not block other readers, and a reader that reconnects with its last position gets all stitches.
"""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from lockstitch.engine.events import first_delta_number
from lockstitch.errors import NotFound
from lockstitch.model import Json, LiveDelta, Stitch, Thread, format_time
from lockstitch.model.thread import TERMINAL_STATUSES
from lockstitch.model.wait import ChildrenWait, without_next_message
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.store import Store, Where

Until = Literal["end", "idle", "now"]
"""When a stream ends: with the thread (end), when its run ends or waits (idle), or after the current items (now)."""

LIVELY: Final = 0.15
"""Seconds between two reads of a running thread without a notification."""

QUIET: Final = 1.0
"""Seconds between two reads of other threads. Changes without a stitch send no notification."""

HEARTBEAT: Final = 15.0
"""Seconds without an item after which a heartbeat is sent."""

_PAGE: Final = 50
"""Number of stitches per read."""

_PATIENCE: Final = 20
"""Number of reads to wait for a missing stitch before the stream skips it."""

_DELTAS: Final = 1000
_ALL: Final = 2**62


@dataclass(frozen=True, slots=True)
class StreamItem:
    """An event of a thread. `beat` keeps an idle connection open."""

    kind: Literal["stitch", "delta", "status", "end", "beat"]
    """The kind of the event."""
    data: Json
    """The event as JSON; see "Follow a thread" in the reference of the HTTP API."""
    stitch: Stitch | None = None
    """The stitch of a `stitch` event; else None."""


HEARTBEAT_ITEM: Final = StreamItem("beat", {})
"""Sent after `HEARTBEAT` seconds without another item."""


def is_idle(head: Thread) -> bool:
    """True if the thread has ended, is idle or waits for a person. A thread that waits for children is not idle."""
    if head.ended:
        return True
    if head.status != "waiting":
        return False
    waits = without_next_message(head.waits)
    return not waits or not all(isinstance(wait, ChildrenWait) for wait in waits)


def status_of(head: Thread) -> Json:
    """Return the status of a thread for clients."""
    return {
        "thread_id": str(head.id),
        "status": head.status,
        "waiting_for": head.waiting_for,
        "position": head.position,
        "title": head.title,
        "tasks": head.tasks,
        "cancel_requested": head.cancel_requested,
        "updated_at": format_time(head.updated_at),
    }


class ThreadStream:
    """Streams one thread for one reader."""

    def __init__(self, store: Store, feed: ChangeFeed, thread_id: UUID, after: int = 0) -> None:
        self._store = store
        self._feed = feed
        self._thread_id = thread_id
        self._after = after
        self._number = 0
        self._steps: dict[UUID, int] = {}
        """The last step with a sent response, by run. Deltas of it are skipped."""
        self._last_status: Json | None = None
        self._patience = _PATIENCE

    async def events(self, until: Until = "end") -> AsyncGenerator[StreamItem]:
        """Yield the current items, then new items."""
        with self._feed.subscribe(self._thread_id) as reader:
            beaten = time.monotonic()
            while True:
                head = await self._head()
                if head is None:
                    yield StreamItem(
                        "end", {"thread_id": str(self._thread_id), "status": "deleted", "position": self._after}
                    )
                    return
                try:
                    async for stream_item in self._look(head):
                        beaten = time.monotonic()
                        yield stream_item
                except NotFound:
                    # The thread was deleted between two reads.
                    continue
                caught_up = self._after >= head.position
                if caught_up and (head.ended or until == "now" or (until == "idle" and is_idle(head))):
                    yield StreamItem("end", _end(head))
                    return
                if self._feed.leaving:
                    return
                await reader.wait(LIVELY if head.status in ("running", "pending") else QUIET)
                if time.monotonic() - beaten >= HEARTBEAT:
                    beaten = time.monotonic()
                    yield HEARTBEAT_ITEM

    async def _head(self) -> Thread | None:
        try:
            return await self._store.thread(self._thread_id)
        except NotFound:
            return None

    async def _look(self, head: Thread) -> AsyncGenerator[StreamItem]:
        """Yield the new items. The status comes last, after all stitches."""
        while self._after < head.position and not self._feed.leaving:
            last = min(self._after + _PAGE, head.position)
            stitches = await self._store.stitches(head, self._after + 1, last)
            for stitch in stitches:
                if stitch.position != self._after + 1 and self._patience:
                    break
                self._after = stitch.position
                self._count_step(stitch)
                yield StreamItem("stitch", stitch.as_json(), stitch)
            if self._after < last and self._patience:
                # A copy of a thread is written in parts. The missing stitch may arrive later.
                self._patience -= 1
                return
            self._after = max(self._after, last)
            self._patience = _PATIENCE
        if head.status == "running":
            for stream_item in await self._new_deltas(head):
                yield stream_item
        status = status_of(head)
        shown = {name: value for name, value in status.items() if name not in ("position", "updated_at")}
        if head.kind == "trace":
            # Imported spans are replaced in place, which does not change the position.
            shown["fence"] = status["fence"] = head.fence
        if shown != self._last_status and self._after >= head.position:
            self._last_status = shown
            yield StreamItem("status", status)

    async def _new_deltas(self, head: Thread) -> list[StreamItem]:
        """Return the new deltas of responses that are not sent as stitches."""
        after = max(self._number, first_delta_number(head))
        where = (Where("thread_id", "=", head.id), Where("number", ">", after))
        rows = await self._store.table(LiveDelta).find(*where, order=("number",), limit=_DELTAS)
        stream_items: list[StreamItem] = []
        for delta in rows:
            self._number = delta.number
            if delta.run_id not in self._steps:
                self._steps[delta.run_id] = await self._step(delta.run_id)
            if delta.step_number > self._steps[delta.run_id]:
                stream_items.append(StreamItem("delta", _delta(delta)))
        return stream_items

    async def _step(self, run_id: UUID) -> int:
        runs = await self._store.find_runs(self._thread_id, Where("id", "=", run_id), limit=1)
        return _ALL if not runs or runs[0].status in TERMINAL_STATUSES else runs[0].steps

    def _count_step(self, stitch: Stitch) -> None:
        if stitch.type != "llm_call" or stitch.run_id is None or stitch.step_number is None:
            return
        # The summary after the last allowed step has the number of that step.
        step = stitch.step_number + ("purpose" in stitch.data)
        self._steps[stitch.run_id] = max(step, self._steps.get(stitch.run_id, 0))


def _delta(delta: LiveDelta) -> Json:
    return {
        "run_id": str(delta.run_id),
        "step_number": delta.step_number,
        "number": delta.number,
        **delta.text,
    }


def _end(head: Thread) -> Json:
    return {
        "thread_id": str(head.id),
        "status": head.status,
        "waiting_for": head.waiting_for,
        "position": head.position,
        "result": head.result,
    }
