"""`copy`: copy all records of one store, or one tree of threads, into another store with any backend.

The function compares each record with the target and writes only missing or different ones. An interrupted copy can be
repeated, and a second copy writes nothing. The log of a thread is copied before its final head, so that no worker
claims an incomplete thread. Then both logs are read and compared by count and by the sha256 of their canonical
stitches.
"""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Conflict, StoreDamaged
from lockstitch.extension import Extension
from lockstitch.lake.archives import unpack
from lockstitch.lenses import catalog
from lockstitch.model import (
    OWNED_BY_THREAD,
    SIDE_RECORDS,
    Archive,
    Blob,
    Delivery,
    LiveDelta,
    Record,
    Run,
    ShareLink,
    Stitch,
    Thread,
    codec,
)
from lockstitch.model.archives import archived_text, pack
from lockstitch.store.core import StoreCore
from lockstitch.store.tables import installed_extensions

R = TypeVar("R", bound=Record)

_PAGE = 500
_AFTER = "copied"
"""Query of an extension that runs after its tables were copied, for example to set a sequence to the last id."""

_ELSEWHERE: Final[tuple[type[Record], ...]] = tuple(
    kind
    for kind in (Run, Delivery, *OWNED_BY_THREAD)
    if kind not in (LiveDelta, ShareLink) and "thread_id" not in kind.primary_key
)
"""Kinds of records of a thread without the thread in their key. Another thread can have a record with the same key."""

Progress = Callable[["CopyReport"], None]
"""Called with the report after each copied part."""


@dataclass(slots=True)
class CopyReport:
    """Counts of a copy so far."""

    threads: int = 0
    """Threads that were compared and copied completely."""
    stitches: int = 0
    """Stitches that were written to the target."""
    records: int = 0
    """Other records that were written to the target."""
    verified: int = 0
    """Threads with equal logs in both stores after copying."""
    skipped_extensions: list[str] = field(default_factory=list[str])
    """Names of the applications with tables that the target does not support."""

    @property
    def total(self) -> int:
        """Number of records that were written; 0 if the target had all of them."""
        return self.stitches + self.records


async def copy(
    source: StoreCore,
    target: StoreCore,
    tree: Thread | None = None,
    progress: Progress | None = None,
    *,
    held: bool = False,
) -> CopyReport:
    """Copy all records of a store, or one tree of threads with the records that it uses. See `Store.copy_to`.

    Leases are not copied, so that workers of the target can claim the threads. `held` is for a new target that is only
    read and then deleted: threads are copied with their holders, and the logs are not compared.
    """
    work = _Copy(source._backend, target._backend, progress or (lambda copied: None), held=held, links=tree is None)
    if tree is None:
        await work.side_records()
        # Parents first. Each depth is read in the order of the primary key, which needs no sorting.
        deepest = await source._backend.find(Find(Thread, order=("-depth",), limit=1))
        for depth in range(deepest[0].depth + 1 if deepest else 0):
            async for head in _pages(source._backend, Find(Thread, (Where("depth", "=", depth),), order=("id",))):
                await work.thread(head)
        for extension in await installed_extensions(source._backend):
            await work.extension(extension)
    else:
        heads = await source.tree(tree)
        for head in heads:
            # Compare before writing: a conflict in the last thread must leave the target unchanged.
            await work.compare(head)
            await work.compare_owned(head)
        for head in heads:
            await work.thread(head)
    return work.copied


async def put_copies(store: StoreCore, records: Sequence[Record]) -> None:
    """Write records of one kind unchanged, also threads, runs and stitches of another store."""
    await store._backend.put(records)


class _Copy:
    """One copy from a source to a target."""

    def __init__(
        self, source: FullBackend, target: FullBackend, progress: Progress, *, held: bool, links: bool
    ) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._held = held
        # A share link gives access to a trace of this store. It is copied with the whole store only.
        self._temporary = (LiveDelta,) if links else (LiveDelta, ShareLink)
        self.copied = CopyReport()

    async def side_records(self) -> None:
        """Copy the side records that belong to no thread. Live text is temporary and is not copied."""
        for kind in SIDE_RECORDS:
            if kind is LiveDelta:
                continue
            without_thread = (Where(OWNED_BY_THREAD[kind], "is null"),) if kind in OWNED_BY_THREAD else ()
            async for record in _pages(self._source, Find(kind, without_thread, order=kind.primary_key)):
                await self._put([record])

    async def compare(self, head: Thread) -> Thread | None:
        """Return the target's thread with this id. Raises `Conflict` if it is another thread, or if it is ahead."""
        thread = await self._target.get(Thread, (head.id,))
        if thread is None:
            return None
        if (thread.project, thread.kind) != (head.project, head.kind):
            raise Conflict(
                f"The target has another thread {head.id}: a {thread.kind} of project {thread.project}, not a "
                f"{head.kind} of project {head.project}. It is not overwritten.",
                thread_id=head.id,
            )
        if await self._is_ahead(thread, head):
            raise Conflict(
                f"Thread {head.id} has changed in the target (position {thread.position}, here {head.position}). "
                "It is not overwritten.",
                thread_id=head.id,
            )
        return thread

    async def compare_owned(self, head: Thread) -> None:
        """Raise `Conflict` if the target has a record of this thread in another thread."""
        for kind in _ELSEWHERE:
            for record in await self._source.find(_of(kind, head)):
                await self._is_there(record)

    async def thread(self, head: Thread) -> None:
        """Copy one thread with its runs, records and log."""
        there = await self.compare(head)
        if there is None:
            # No worker may claim the thread before it is complete.
            resting: dict[str, Any] = {"status": "waiting", "waiting_for": [], "wake_at": None, "result": None}
            await self._target.put([head.changed(**resting, worker_id=None, position=0, tip_id=None)])
        await self._put(await self._source.find(_of(Run, head)))
        await self._blobs(head)
        for kind in (*OWNED_BY_THREAD, Delivery):
            if kind not in self._temporary:
                await self._put([await self._encoded(record) for record in await self._source.find(_of(kind, head))])
        await self._log(head)
        await self._put([head if self._held else _released(head)])
        self.copied.threads += 1
        self._progress(self.copied)

    async def extension(self, extension: Extension) -> None:
        """Copy the tables of an application."""
        target = self._target
        if extension.needs_sql and target.lens(catalog.NAMES[0]) is None:
            self.copied.skipped_extensions.append(extension.name)
            return
        await target.extend(extension)
        for kind in extension.kinds:
            async for record in _pages(self._source, Find(kind, order=kind.primary_key)):
                await self._put([record])
        if {_AFTER} <= extension.queries("sqlite").keys() & extension.queries("postgres").keys():
            await target.run_query(extension, _AFTER, {}, None, writes=True)

    async def _is_ahead(self, thread: Thread, head: Thread) -> bool:
        """True if the thread has changes in the target that the source does not have."""
        if thread.position > head.position or thread.fence > head.fence or thread.delivered > head.delivered:
            return True
        if head.kind == "trace" or thread.position < head.first_position:
            return False
        # Native logs only grow. If the last common position has the same stitch, one log continues the other.
        last = [(thread.position, thread.position)]
        stitches, target_stitches = await self._source.read(head.id, last), await self._target.read(head.id, last)
        return [stitch.id for stitch in stitches] != [stitch.id for stitch in target_stitches]

    async def _log(self, head: Thread) -> None:
        """Copy the stitches that the target lacks. If the logs differ then, copy all stitches again."""
        if await self._stitches(head, fresh=False) or await self._stitches(head, fresh=True):
            self.copied.verified += 1
            return
        raise StoreDamaged(f"Thread {head.id} differs in the target after it was copied. Try again.")

    async def _stitches(self, head: Thread, *, fresh: bool) -> bool:
        """Copy missing stitches, or all if `fresh`. Return False if the logs are compared and differ then."""
        start = head.first_position
        if fresh:
            span = (
                Where("thread_id", "=", head.id),
                Where("position", ">=", 1),
                Where("position", "<=", head.position),
            )
            await self._target.delete(Find(Stitch, span))
        newest = await self._target.find(Find(Stitch, (Where("thread_id", "=", head.id),), ("-position",), limit=1))
        last = newest[0].position if newest else start - 1
        here = _LogDigest()
        for first in range(start, head.position + 1, _PAGE):
            page = await self._source.read(head.id, [(first, min(first + _PAGE - 1, head.position))])
            if not self._held:
                here.add(page)
            missing = [stitch for stitch in page if stitch.position > last]
            if missing:
                await self._target.put(missing)
                self.copied.stitches += len(missing)
                self._progress(self.copied)
        if self._held:
            return True
        digest = _LogDigest()
        for first in range(start, head.position + 1, _PAGE):
            digest.add(await self._target.read(head.id, [(first, min(first + _PAGE - 1, head.position))]))
        return here == digest

    async def _blobs(self, head: Thread) -> None:
        from lockstitch.model import BlobUse

        for use in await self._source.find(_of(BlobUse, head)):
            if not await self._target.count(Find(Blob, (Where("sha256", "=", use.sha256),))):
                blob = await self._source.get(Blob, (use.sha256,))
                await self._put([blob] if blob else [])

    async def _encoded(self, record: Record) -> Record:
        """Return a record with archives in the compression of the target, also those in a lake."""
        encoding = self._target.archive_encoding
        if not isinstance(record, Archive) or (record.encoding == encoding and record.lake is None):
            return record
        text = archived_text(await asyncio.to_thread(unpack, [record]))
        digest = sha256(text).hexdigest()
        return record.changed(encoding=encoding, content=pack(text, encoding), sha256=digest, lake=None)

    async def _put(self, records: Sequence[Record]) -> None:
        """Write the records that the target lacks or has with other values."""
        new = [record for record in records if not await self._is_there(record)]
        if new:
            await self._target.put(new)
            self.copied.records += len(new)

    async def _is_there(self, record: Record) -> bool:
        kind = type(record)
        if isinstance(record, Blob):
            return bool(await self._target.count(Find(Blob, (Where("sha256", "=", record.sha256),))))
        result = await self._target.get(kind, [getattr(record, field) for field in kind.primary_key])
        if result is not None and _owner(result) != _owner(record):
            raise Conflict(f"The target has this {kind.__name__} in another thread. It is not overwritten.")
        return result is not None and result.as_json() == record.as_json()


class _LogDigest:
    """Count and sha256 of canonical stitches, without log_id, which each store sets itself."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = sha256()

    def add(self, stitches: Sequence[Stitch]) -> None:
        self.count += len(stitches)
        for stitch in stitches:
            self._hash.update(canonical(stitch))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LogDigest):
            return NotImplemented
        return self.count == other.count and self._hash.digest() == other._hash.digest()

    __hash__ = None  # type: ignore[assignment]


def canonical(stitch: Stitch) -> bytes:
    """Return a stitch as bytes that are equal in every store."""
    values = stitch.as_json()
    del values["log_id"]
    return codec.dumps(dict(sorted(values.items())))


def _released(head: Thread) -> Thread:
    """Return the head without a holder. Leases are not copied."""
    if not head.held:
        return head
    status = "pending" if head.status == "running" else head.status
    return head.changed(worker_id=None, status=status, wake_at=head.wake_at or head.updated_at)


def _owner(record: Record) -> tuple[Any, Any]:
    """Return the project and the thread that a record belongs to, as far as it names them."""
    return getattr(record, "project", None), getattr(record, "thread_id", None)


def _of(kind: type[R], head: Thread) -> Find[R]:
    return Find(kind, (Where("thread_id", "=", head.id),), order=kind.primary_key)


async def _pages(backend: FullBackend, find: Find[R]) -> AsyncIterator[R]:
    last: Any = None
    while True:
        page = await backend.find(Find(find.kind, find.where, find.order, after=last, limit=_PAGE))
        for record in page:
            yield record
        if len(page) < _PAGE:
            return
        last = tuple(getattr(page[-1], field) for field in find.order)
