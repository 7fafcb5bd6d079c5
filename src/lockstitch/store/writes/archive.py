"""Archives: old turns compressed, and still read through the same calls."""

import gzip
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from itertools import zip_longest
from typing import Literal
from uuid import UUID

import zstandard

from lockstitch.backend import Commit, Find, FullBackend, ThreadChange, Where
from lockstitch.errors import Conflict, StoreDamaged
from lockstitch.model import TERMINAL_STATUSES, Archive, Clock, Run, Stitch, Thread, codec


class Archives:
    """Moves old turns into archives and reads them back."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def read(self, head: Thread, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        """The stitches of these positions, wherever they stand."""
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
        """Archive the whole turns of a thread that ended before then, oldest first; how many.

        Only what no context needs any more: everything of a thread that has ended, otherwise what lies before its
        last compaction. First the archive is durable, then the head says that these positions stand there, then the
        rows go; whatever is cut short in between, both hold the same, and the next call goes on.

        A mirror is left as it is: more of its spans may come at any time and would not be found, and its runs lie
        mixed in its log.
        """
        if head.held or head.kind == "trace":
            return 0
        if head.first_position > 1:
            await self._remove(head.id, 1, head.first_position - 1)
        runs = await self._backend.find(
            Find(
                Run,
                (Where("thread_id", "=", head.id), Where("first_position", ">=", head.first_position)),
                order=("sequence",),
            )
        )
        turns = [run for run in runs if run.parent_run_id is None]
        limit = head.position if head.ended else head.context_from - 1
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
                # It goes on at this very moment. Both hold the same, and the next call will find it at rest.
                break
            await self._remove(head.id, first, last)
            first = last + 1
            number += 1
        return number

    async def replace(self, head: Thread, stitches: Sequence[Stitch]) -> None:
        """Put these stitches in the place of a thread's whole log, in one archive.

        First the archive is durable, then the head says that all positions are in it, then the rows are deleted. After
        an interruption the next call does it again.
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
        fields = {"first_position": first_position}
        await self._backend.append(Commit([ThreadChange(head.id, head.fence, head.position, head=fields)]))

    async def _remove(self, thread_id: UUID, first: int, last: int) -> None:
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


def pack(text: bytes, encoding: Literal["zstd", "gzip"]) -> bytes:
    return zstandard.compress(text, 9) if encoding == "zstd" else gzip.compress(text, mtime=0)


def unpack(archive: Archive) -> list[Stitch]:
    """The stitches of an archive, checked against its hash."""
    try:
        content = archive.content
        text = zstandard.decompress(content) if archive.encoding == "zstd" else gzip.decompress(content)
    except (zstandard.ZstdError, OSError, EOFError) as exc:
        raise _damaged(archive) from exc
    if sha256(text).hexdigest() != archive.sha256:
        raise _damaged(archive)
    return [Stitch.from_json(codec.loads(line)) for line in text.splitlines()]


def _damaged(archive: Archive) -> StoreDamaged:
    return StoreDamaged(
        f"The archive of thread {archive.thread_id}, positions {archive.first_position} to {archive.last_position}, "
        "is damaged. Restore it from a backup."
    )
