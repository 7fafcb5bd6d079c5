"""Mirrors: threads that show what happened in another system, and what whoever writes them asks of the store.

Nobody holds a mirror. Who writes one reads what is there, works out what it will be, and commits that if nothing has
changed meanwhile: every commit raises the fence, so of two who write at once one starts again. Rows are replaced in
place when more of them is known; their places in the log stay.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from lockstitch.backend import Commit, Fields, Find, FullBackend, ThreadChange, Where
from lockstitch.model import Blob, BlobUse, Feedback, File, MirroredModelCall, Record, Run, Stitch, Thread

R = TypeVar("R", bound=Record)


@dataclass(slots=True)
class MirrorUpdate:
    """What becomes of one mirror: its head as it was seen, and what is written over it."""

    head: Thread
    is_new: bool
    fields: Fields = field(default_factory=dict[str, Any])
    new_runs: list[Run] = field(default_factory=list[Run])
    runs: list[Run] = field(default_factory=list[Run])
    stitches: list[Stitch] = field(default_factory=list[Stitch])
    replaced: list[Stitch] = field(default_factory=list[Stitch])


class MirrorStore:
    """The rows of mirrors, for whoever keeps them."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend

    async def threads(self, ids: Iterable[UUID]) -> dict[UUID, Thread]:
        return {thread.id: thread for thread in await self._among(Thread, "id", ids)}

    async def keys(self, project: str, keys: Sequence[str]) -> dict[str, UUID]:
        """Which threads of a project have these keys."""
        where = (Where("project", "=", project), Where("key", "in", keys))
        threads = await self._backend.find(Find(Thread, where)) if keys else []
        return {thread.key: thread.id for thread in threads if thread.key is not None}

    async def runs(self, ids: Iterable[UUID]) -> dict[UUID, Run]:
        return {run.id: run for run in await self._among(Run, "id", ids)}

    async def stitches(self, ids: Iterable[UUID]) -> dict[UUID, Stitch]:
        return {stitch.id: stitch for stitch in await self._among(Stitch, "id", ids)}

    async def tool_calls(self, run_id: UUID, call_ids: Iterable[str], names: Iterable[str]) -> list[Stitch]:
        """The tool calls of a run that have one of these ids, or one of these names, in order."""
        stitches: dict[UUID, Stitch] = {}
        for column, values in (("call_id", sorted(set(call_ids))), ("name", sorted(set(names)))):
            if values:
                where = (Where("run_id", "=", run_id), Where("type", "=", "tool_call"), Where(column, "in", values))
                stitches |= {stitch.id: stitch for stitch in await self._backend.find(Find(Stitch, where))}
        return sorted(stitches.values(), key=lambda stitch: stitch.position)

    async def tools_since(self, run_id: UUID, names: Iterable[str], since: datetime) -> list[Stitch]:
        """The tool calls of a run with one of these names that were asked for, or began, at a time and later."""
        where = [Where("run_id", "=", run_id), Where("type", "=", "tool_call"), Where("name", "in", sorted(names))]
        return await self._backend.find(Find(Stitch, [*where, Where("at", ">=", since)]))

    async def model_calls(self, run_id: UUID) -> list[Stitch]:
        """The model calls of a run, in order of their beginning."""
        where = [Where("run_id", "=", run_id), Where("type", "=", "llm_call")]
        return await self._backend.find(Find(Stitch, where, order=("at", "position")))

    async def rows_since(self, run_id: UUID, since: datetime) -> list[Stitch]:
        """The model calls and mere spans of a run that began at a time and later, in order of their beginning."""
        where = (Where("run_id", "=", run_id), Where("type", "in", ["llm_call", "span"]), Where("at", ">=", since))
        return await self._backend.find(Find(Stitch, where, order=("at", "position")))

    async def rows(self, run_id: UUID) -> list[Stitch]:
        """All stitches of a run."""
        return await self._backend.find(Find(Stitch, (Where("run_id", "=", run_id),), order=("position",)))

    async def spans_of_responses(self, project: str, response_ids: Sequence[str]) -> list[tuple[str, Stitch]]:
        """The rows that tell of model calls with these ids of their providers, each with the id that it tells of."""
        if not response_ids:
            return []
        where = (Where("project", "=", project), Where("response_id", "in", response_ids))
        claims = await self._backend.find(Find(MirroredModelCall, where))
        stitches = await self.stitches(claim.stitch_id for claim in claims)
        return [(claim.response_id, stitches[claim.stitch_id]) for claim in claims if claim.stitch_id in stitches]

    async def thread_rows(self, thread_id: UUID) -> list[Stitch]:
        """Return all stitches of a thread, in order."""
        return await self._backend.read(thread_id, [(1, None)])

    async def thread_runs(self, thread_ids: Iterable[UUID]) -> list[Run]:
        """Return all runs of these threads."""
        return await self._among(Run, "thread_id", thread_ids)

    async def belongings(self, thread_ids: Iterable[UUID]) -> list[Record]:
        """Return the feedback, the files and the blobs of these threads."""
        ids = list(thread_ids)
        uses = await self._among(BlobUse, "thread_id", ids)
        # One by one: each blob may be large.
        blobs = [await self._backend.get(Blob, (digest,)) for digest in sorted({use.sha256 for use in uses})]
        records: list[Record] = [blob for blob in blobs if blob is not None]
        records += uses
        records += await self._among(File, "thread_id", ids)
        records += await self._among(Feedback, "thread_id", ids)
        return records

    async def write(
        self,
        mirrored: Sequence[MirrorUpdate],
        now: datetime,
        dissolved: Iterable[Thread] = (),
        records: Sequence[Record] = (),
    ) -> None:
        """Write all of it in one commit.

        `dissolved` are threads that are deleted first; `records` are side records, written last. Raises `Conflict` if
        another writer changed one of the threads since its head was read. Nothing was written then.
        """
        mirror_updates = sorted(mirrored, key=lambda mirror_update: mirror_update.head.id)
        threads = [mirror_update.head for mirror_update in mirror_updates if mirror_update.is_new]
        heads = sorted(dissolved, key=lambda head: head.id)
        superseded = [ThreadChange(head.id, head.fence, head.position) for head in heads]
        changes = [_change(mirror_update, now) for mirror_update in mirror_updates]
        await self._backend.append(Commit(changes, threads, records=_in_order(records), superseded=superseded))

    async def keep(self, records: Sequence[Record]) -> None:
        """Side records of mirrors: feedback, files with their blobs, who told of a model call."""
        for kind in _KEPT:
            if wanted := [record for record in records if isinstance(record, kind)]:
                await self._backend.put(wanted)

    async def feedback(self, ids: Iterable[UUID]) -> dict[UUID, Feedback]:
        return {feedback.id: feedback for feedback in await self._among(Feedback, "id", ids)}

    async def _among(self, kind: type[R], column: str, values: Iterable[UUID]) -> list[R]:
        wanted = sorted(set(values))
        return await self._backend.find(Find(kind, (Where(column, "in", wanted),))) if wanted else []


_KEPT: Final = (Blob, BlobUse, File, Feedback, MirroredModelCall)
"""The kinds of side records, in the order in which they are written: some refer to earlier ones."""


def _in_order(records: Sequence[Record]) -> list[Record]:
    return [record for kind in _KEPT for record in records if isinstance(record, kind)]


def _change(mirror_update: MirrorUpdate, now: datetime) -> ThreadChange:
    head = mirror_update.head
    changed = [(run.id, _fields(run)) for run in mirror_update.runs]
    return ThreadChange(
        thread_id=head.id,
        fence=head.fence,
        position=head.position,
        stitches=mirror_update.stitches,
        head={**mirror_update.fields, "fence": head.fence + 1, "updated_at": now},
        new_runs=mirror_update.new_runs,
        runs=changed,
        replaced_stitches=mirror_update.replaced,
    )


def _fields(run: Run) -> Fields:
    return {name: value for name, value in run.__dict__.items() if name not in ("id", "thread_id", "sequence", "turn")}
