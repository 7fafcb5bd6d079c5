"""`Archives`: compressed old turns. Readers get them through the same methods as other turns."""

import gzip
import zlib
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from itertools import zip_longest
from typing import Literal
from uuid import UUID

from lockstitch.backend import Commit, Find, FullBackend, ThreadChange, Where
from lockstitch.errors import Conflict, StoreDamaged
from lockstitch.model import TERMINAL_STATUSES, Archive, Clock, Run, Stitch, Thread, codec


class Archives:
    """Moves old turns into archives and reads them."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def read(self, head: Thread, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        """Return the stitches in these ranges of positions, archived or not."""
        live = await self._backend.read(head.id, ranges)
        if all(first >= head.first_position for first, _ in ranges):
            return live
        old = await self._unpacked(head, min(first for first, _ in ranges))
        stitches = [
            stitch
            for stitch in old
            if any(first <= stitch.position and (last is None or stitch.position <= last) for first, last in ranges)
        ]
        result = {stitch.position: stitch for stitch in [*stitches, *live]}
        return [result[position] for position in sorted(result)]

    async def archive(self, head: Thread, before: datetime) -> int:
        """Archive the complete turns of a thread that ended before then, oldest first. Return the number of turns.

        Only turns that no context needs: all turns of a thread that has ended, otherwise those before its last
        compaction. The steps are:

        1. Write the archive.
        2. Set the first position of the head that is not archived.
        3. Delete the archived rows.

        If the process stops in between, rows and archive have the same stitches, and the next call continues. Imported
        traces are not archived: more of their spans may arrive at any time, and the stitches of their runs are
        interleaved.
        """
        limit = head.position if head.ended else head.context_from - 1
        if head.held or head.kind == "trace":
            return 0
        if head.first_position > 1:
            await self._remove(head.id, 1, head.first_position - 1)
        if limit < head.first_position:
            return 0
        runs = await self._backend.find(
            Find(
                Run,
                (Where("thread_id", "=", head.id), Where("first_position", ">=", head.first_position)),
                order=("sequence",),
            )
        )
        turns = [run for run in runs if run.parent_run_id is None]
        number = 0
        first = head.first_position
        for run, following in zip_longest(turns, turns[1:]):
            last = following.first_position - 1 if following else head.position
            members = [member for member in runs if member.turn == run.turn]
            ended = all(
                member.status in TERMINAL_STATUSES and (member.completed_at or before) < before for member in members
            )
            if not ended or last > limit or last < first:
                break
            await self._pack(head.id, run.id, first, last, await self._backend.read(head.id, [(first, last)]))
            try:
                await self._move(head, last + 1)
            except Conflict:
                # A writer is active. Rows and archive have the same stitches, and the next call continues.
                break
            await self._remove(head.id, first, last)
            first = last + 1
            number += 1
        return number

    async def replace(self, head: Thread, stitches: Sequence[Stitch]) -> None:
        """Replace the whole log of a thread with these stitches, in one archive.

        The archive is written before the head refers to it, and the rows are deleted last. After an interruption,
        repeat the call. Raises `Conflict` if the thread has changed since `head` was read.
        """
        run_id = next((stitch.run_id for stitch in stitches if stitch.run_id is not None), None)
        if run_id is None:
            return
        await self._pack(head.id, run_id, 1, head.position, stitches)
        where = (Where("thread_id", "=", head.id), Where("first_position", ">", 1))
        await self._backend.delete(Find(Archive, where))
        if head.first_position <= head.position:
            await self._move(head, head.position + 1)
        await self._remove(head.id, 1, head.position)

    async def _pack(self, thread_id: UUID, run_id: UUID, first: int, last: int, stitches: Sequence[Stitch]) -> None:
        """Write one archive."""
        text = b"".join(codec.dumps(stitch.as_json()) + b"\n" for stitch in stitches)
        encoding = self._backend.archive_encoding
        await self._backend.put(
            [
                Archive(
                    thread_id=thread_id,
                    first_position=first,
                    last_position=last,
                    run_id=run_id,
                    encoding=encoding,
                    sha256=sha256(text).hexdigest(),
                    content=pack(text, encoding),
                    created_at=self._clock.now(),
                )
            ]
        )

    async def _move(self, head: Thread, first_position: int) -> None:
        """Set the first position that is not archived. Raises `Conflict` if the thread has changed."""
        fields = {"first_position": first_position}
        await self._backend.append(Commit([ThreadChange(head.id, head.fence, head.position, head=fields)]))

    async def _remove(self, thread_id: UUID, first: int, last: int) -> None:
        """Delete the stitches of these positions."""
        where = (
            Where("thread_id", "=", thread_id),
            Where("position", ">=", first),
            Where("position", "<=", last),
        )
        await self._backend.delete(Find(Stitch, where))

    async def _unpacked(self, head: Thread, first: int) -> list[Stitch]:
        archives = await self._backend.find(
            Find(
                Archive,
                (Where("thread_id", "=", head.id), Where("last_position", ">=", first)),
                order=("first_position",),
            )
        )
        return [stitch for archive in archives for stitch in unpack(archive)]


def pack(text: bytes, encoding: Literal["gzip", "none"]) -> bytes:
    """Return the text in an encoding that SQL of the backend can read."""
    return text if encoding == "none" else gzip.compress(text, mtime=0)


def unpack(archive: Archive) -> list[Stitch]:
    """Return the stitches of an archive. Raises `StoreDamaged` if its hash does not match."""
    try:
        content = archive.content
        text = content if archive.encoding == "none" else gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as exc:
        raise _damaged(archive) from exc
    if sha256(text).hexdigest() != archive.sha256:
        raise _damaged(archive)
    return [Stitch.from_json(codec.loads(line)) for line in text.splitlines()]


def _damaged(archive: Archive) -> StoreDamaged:
    return StoreDamaged(
        f"The archive of thread {archive.thread_id}, positions {archive.first_position} to {archive.last_position}, "
        "is damaged. Restore it from a backup."
    )
