"""`Archives`: old turns, compressed or in a lake. Readers get them through the same methods as other turns."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import groupby, zip_longest
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Commit, Find, FullBackend, RecordChange, Where
from lockstitch.errors import Conflict, ThreadHeld
from lockstitch.lake.archives import Span, SyncedLake, digest, span_of, stitches, unpack
from lockstitch.model import TERMINAL_STATUSES, Archive, Clock, Run, Stitch, Thread
from lockstitch.model.archives import archived_text, pack

_STITCHES_AT_ONCE: Final = 5_000
"""Stitches that are read from a lake, and that one commit removes or restores. A longer turn is a part alone."""


@dataclass(slots=True)
class LakeArchiveReport:
    """The turns that `archive_to_lake` has seen."""

    turns: int = 0
    """Number of turns that only the lake has now."""
    remaining: int = 0
    """Number of turns that stay in the store, because the lake does not have exactly their stitches."""

    def add(self, turns: int, remaining: int) -> None:
        """Add numbers of turns.

        Args:
            turns: Number of turns that only the lake has now.
            remaining: Number of turns that stay in the store.
        """
        self.turns += turns
        self.remaining += remaining


class OldTurn(NamedTuple):
    """A turn that can be archived, or that a store has in an archive."""

    head: Thread
    run_id: UUID
    span: Span
    archive: Archive | None = None
    """Its archive. None: the turn has rows."""


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
        lasts = [last for _, last in ranges if last is not None]
        end = max(lasts) if len(lasts) == len(ranges) else head.position
        old = await self._unpacked(await self._of(head, min(first for first, _ in ranges), end))
        archived = [
            stitch
            for stitch in old
            if any(first <= stitch.position and (last is None or stitch.position <= last) for first, last in ranges)
        ]
        result = {stitch.position: stitch for stitch in [*archived, *live]}
        return [result[position] for position in sorted(result)]

    async def archive(self, head: Thread, before: datetime) -> int:
        """Compress the complete turns of a thread that ended before then, oldest first. Return the number of turns.

        Only turns that no context needs: all turns of a thread that has ended, otherwise those before its last
        compaction. One commit writes the archive of a turn and deletes its rows. Imported traces are not archived: more
        of their spans may arrive at any time, and the stitches of their runs are interleaved.
        """
        number = 0
        for turn in await self._turns_with_rows(head, before):
            log = await self._backend.read(head.id, [(turn.span.first, turn.span.last)])
            try:
                head = await self._store(head, [self._packed(turn.span, turn.run_id, log)])
            except Conflict:
                # A writer is active. The next call continues.
                break
            number += 1
        return number

    async def archive_to_lake(
        self, heads: Sequence[Thread], before: datetime, lake: SyncedLake, report: LakeArchiveReport
    ) -> None:
        """Remove the old turns of threads that a lake has, oldest first: those of `archive`, and those in archives.

        A turn is removed if the lake has exactly its stitches, and no sync will write them again: their `log_id` is
        at most its watermark. One commit deletes the rows of a thread and stores that the lake has them.
        """
        turns = [turn for head in heads for turn in await self._turns_outside(head, before, lake.target)]
        stopped: set[UUID] = set()
        for part in _parts(turns):
            logs = await asyncio.to_thread(stitches, lake.target, [turn.span for turn in part])
            stored = zip(part, logs, strict=True)
            for thread_id, members in groupby(stored, key=lambda member: member[0].span.thread_id):
                group = list(members)
                moved = 0 if thread_id in stopped else await self._point(group, lake)
                if moved < len(group):
                    # Later turns of this thread stay, too: the rows of a thread have no gap.
                    stopped.add(thread_id)
                report.add(moved, len(group) - moved)

    async def restore(self, head: Thread) -> int:
        """Write the archived stitches of a thread as rows again, newest turns first. Return the number of turns.

        One commit writes the rows of some turns and deletes their archives. Raises `ThreadHeld` if a worker holds the
        thread, and `Conflict` if it changes.
        """
        if head.held:
            raise ThreadHeld(
                f"Thread {head.id} is held by worker {head.worker_id}. Nothing was restored. Try again.",
                thread_id=head.id,
            )
        archives = await self._of(head, 1, head.first_position - 1)
        if archives:
            # Older versions archived in steps. After an interruption, rows and archive have the same stitches.
            await self._remove(head.id, 1, head.first_position - 1)
        turns = [OldTurn(head, archive.run_id, span_of(archive), archive) for archive in archives]
        for part in reversed(list(_parts(turns))):
            log = await asyncio.to_thread(unpack, [turn.archive for turn in part if turn.archive])
            first = part[0].span.first
            gone = (Where("thread_id", "=", head.id), Where("first_position", ">=", first))
            commit = Commit(
                deleted_records=[Find(Archive, gone)],
                changed_records=[_changed(head, first)],
                restored_stitches=log,
            )
            await self._backend.append(commit)
            head = head.changed(first_position=first)
        return len(archives)

    async def replace(self, head: Thread, stitches: Sequence[Stitch]) -> None:
        """Replace the whole log of a thread with these stitches, in one archive.

        Raises `Conflict` if the thread has changed since `head` was read.
        """
        run_id = next((stitch.run_id for stitch in stitches if stitch.run_id is not None), None)
        if run_id is None:
            return
        await self._store(head, [self._packed(Span(head.id, 1, head.position), run_id, stitches)])

    async def _turns_with_rows(self, head: Thread, before: datetime) -> list[OldTurn]:
        """Return the turns that can be archived, oldest first."""
        limit = head.position if head.ended else head.context_from - 1
        if head.held or head.kind == "trace" or limit < head.first_position:
            return []
        runs = await self._backend.find(
            Find(
                Run,
                (Where("thread_id", "=", head.id), Where("first_position", ">=", head.first_position)),
                order=("sequence",),
            )
        )
        turns = [run for run in runs if run.parent_run_id is None]
        result: list[OldTurn] = []
        first = head.first_position
        for run, following in zip_longest(turns, turns[1:]):
            last = following.first_position - 1 if following else head.position
            members = [member for member in runs if member.turn == run.turn]
            ended = all(
                member.status in TERMINAL_STATUSES and (member.completed_at or before) < before for member in members
            )
            if not ended or last > limit or last < first:
                break
            result.append(OldTurn(head, run.id, Span(head.id, first, last)))
            first = last + 1
        return result

    async def _turns_outside(self, head: Thread, before: datetime, lake: str) -> list[OldTurn]:
        """Return the archives of a thread that are not in a lake, and the turns that can be archived, oldest first."""
        turns: list[OldTurn] = []
        if head.first_position > 1 and not head.held and head.kind != "trace":
            archives = await self._of(head, 1, head.first_position - 1)
            turns = [
                OldTurn(head, archive.run_id, span_of(archive), archive) for archive in archives if archive.lake != lake
            ]
        return turns + await self._turns_with_rows(head, before)

    async def _point(self, turns: Sequence[tuple[OldTurn, list[Stitch]]], lake: SyncedLake) -> int:
        """Store that a lake has these turns of a thread, up to the first one that it does not have exactly.

        Return their number.
        """
        head = turns[0][0].head
        archives: list[Archive] = []
        changes: list[RecordChange] = []
        for turn, log in turns:
            expected = await self._digest(turn)
            if digest(log) != expected or any((stitch.log_id or 0) > lake.watermark for stitch in log):
                break
            pointer = {"lake": lake.target, "content": b"", "sha256": expected}
            if turn.archive is None:
                archives.append(self._packed(turn.span, turn.run_id, []).changed(**pointer))
            else:
                key = (head.id, turn.span.first)
                changes.append(RecordChange(Archive, key, {"sha256": turn.archive.sha256}, pointer))
        try:
            if changes:
                await self._backend.append(Commit(changed_records=changes))
            if archives:
                # The head may have been read before other turns of the thread were removed.
                await self._store(head.changed(first_position=archives[0].first_position), archives)
        except Conflict:
            # A writer is active. The next call continues.
            return 0
        return len(changes) + len(archives)

    async def _digest(self, turn: OldTurn) -> str:
        """Return the digest of the stitches that a lake must have."""
        if turn.archive is None:
            return digest(await self._backend.read(turn.head.id, [(turn.span.first, turn.span.last)]))
        return turn.archive.sha256 if turn.archive.lake else digest(unpack([turn.archive]))

    def _packed(self, span: Span, run_id: UUID, log: Sequence[Stitch]) -> Archive:
        """Return the archive of a turn."""
        text = archived_text(log)
        encoding = self._backend.archive_encoding
        return Archive(
            thread_id=span.thread_id,
            first_position=span.first,
            last_position=span.last,
            run_id=run_id,
            encoding=encoding,
            sha256=sha256(text).hexdigest(),
            content=pack(text, encoding),
            created_at=self._clock.now(),
        )

    async def _store(self, head: Thread, archives: Sequence[Archive]) -> Thread:
        """Write archives of consecutive positions instead of their rows and of other archives there. Return the head.

        Raises `Conflict` if the thread has changed.
        """
        first, last = archives[0].first_position, archives[-1].last_position
        places = [Where("thread_id", "=", head.id), Where("first_position", ">=", first)]
        rows = [Where("thread_id", "=", head.id), Where("position", ">=", 1), Where("position", "<=", last)]
        await self._backend.append(
            Commit(
                deleted_records=[Find(Archive, places), Find(Stitch, rows)],
                changed_records=[_changed(head, last + 1)],
                records=archives,
            )
        )
        return head.changed(first_position=last + 1)

    async def _remove(self, thread_id: UUID, first: int, last: int) -> None:
        """Delete the stitches of these positions."""
        where = (
            Where("thread_id", "=", thread_id),
            Where("position", ">=", first),
            Where("position", "<=", last),
        )
        await self._backend.delete(Find(Stitch, where))

    async def _of(self, head: Thread, first: int, last: int) -> list[Archive]:
        """Return the archives of a thread with one of these positions, oldest first."""
        where = (
            Where("thread_id", "=", head.id),
            Where("last_position", ">=", first),
            Where("first_position", "<=", last),
        )
        return await self._backend.find(Find(Archive, where, order=("first_position",)))

    async def _unpacked(self, archives: Sequence[Archive]) -> list[Stitch]:
        if any(archive.lake for archive in archives):
            return await asyncio.to_thread(unpack, archives)
        return unpack(archives)


def _changed(head: Thread, first_position: int) -> RecordChange:
    """Return the change of the first position that is not archived.

    It is a conflict if the thread has changed since it was read.
    """
    seen = {name: getattr(head, name) for name in ("fence", "position", "worker_id", "first_position")}
    return RecordChange(Thread, (head.id,), seen, {"first_position": first_position})


def _parts(turns: Sequence[OldTurn]) -> Iterator[Sequence[OldTurn]]:
    """Yield turns of together at most `_STITCHES_AT_ONCE` stitches."""
    part: list[OldTurn] = []
    size = 0
    for turn in turns:
        length = turn.span.last - turn.span.first + 1
        if part and size + length > _STITCHES_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(turn)
        size += length
    if part:
        yield part
