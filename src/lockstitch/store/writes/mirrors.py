"""`MirrorStore`: reads and writes the rows of imported traces (mirrors).

No worker holds a mirror. A writer reads the rows, computes the new ones, and commits them if no other writer has
changed the thread. Each commit raises the fence, so one of two concurrent writers gets `Conflict` and starts again. If
more of a row becomes known, the row is replaced. Its position in the log stays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from lockstitch.backend import Commit, Encoder, Fields, Find, FullBackend, ThreadChange, Where
from lockstitch.model import Blob, BlobUse, Feedback, File, MirroredModelCall, Record, Run, ShareLink, Stitch, Thread
from lockstitch.model.record import new_dict, new_list, new_set
from lockstitch.model.statistics import StitchOutline

R = TypeVar("R", bound=Record)


@dataclass(slots=True)
class MirrorUpdate:
    """The changes of one mirror."""

    head: Thread
    """The thread as the writer read it, or the new thread."""
    is_new: bool
    """True if the commit creates the thread."""
    fields: Fields = field(default_factory=new_dict)
    """Changed fields of the head."""
    new_runs: list[Run] = field(default_factory=new_list)
    """Runs to create."""
    runs: list[Run] = field(default_factory=new_list)
    """Runs with changed fields."""
    stitches: list[Stitch] = field(default_factory=new_list)
    """Stitches to append."""
    replaced_stitches: list[Stitch] = field(default_factory=new_list)
    """Stitches that replace those at the same positions."""


@dataclass(slots=True)
class Absent:
    """Ids of records that the store must not have, because rows were computed without them."""

    threads: set[UUID] = field(default_factory=new_set)
    runs: set[UUID] = field(default_factory=new_set)
    stitches: set[UUID] = field(default_factory=new_set)
    keys: set[str] = field(default_factory=new_set)
    response_ids: set[str] = field(default_factory=new_set)


class MirrorStore:
    """The rows of imported traces. For importers. Safe to use from many tasks."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend

    async def threads(self, ids: Iterable[UUID]) -> dict[UUID, Thread]:
        """Return the threads with these ids, by id."""
        return {thread.id: thread for thread in await self._among(Thread, "id", ids)}

    async def keys(self, project: str, keys: Sequence[str]) -> dict[str, UUID]:
        """Return the ids of the threads of a project that have these keys, by key."""
        where = (Where("project", "=", project), Where("key", "in", keys))
        threads = await self._backend.find(Find(Thread, where)) if keys else []
        return {thread.key: thread.id for thread in threads if thread.key is not None}

    async def runs(self, ids: Iterable[UUID]) -> dict[UUID, Run]:
        """Return the runs with these ids, by id."""
        return {run.id: run for run in await self._among(Run, "id", ids)}

    async def stitches(self, ids: Iterable[UUID]) -> dict[UUID, Stitch]:
        """Return the stitches with these ids, by id."""
        return {stitch.id: stitch for stitch in await self._among(Stitch, "id", ids)}

    async def tool_calls(self, run_id: UUID, call_ids: Iterable[str], names: Iterable[str]) -> list[Stitch]:
        """Return the tool calls of a run with one of these ids or names, in the order of their positions."""
        stitches: dict[UUID, Stitch] = {}
        for column, values in (("call_id", sorted(set(call_ids))), ("name", sorted(set(names)))):
            if values:
                where = (Where("run_id", "=", run_id), Where("type", "=", "tool_call"), Where(column, "in", values))
                stitches |= {stitch.id: stitch for stitch in await self._backend.find(Find(Stitch, where))}
        return sorted(stitches.values(), key=lambda stitch: stitch.position)

    async def tools_since(self, run_id: UUID, since: datetime, names: Iterable[str] | None = None) -> list[Stitch]:
        """Return the tool calls of a run that started at this time or later, with one of these names."""
        where = [Where("run_id", "=", run_id), Where("type", "=", "tool_call"), Where("at", ">=", since)]
        if names is not None:
            where.append(Where("name", "in", sorted(names)))
        return await self._backend.find(Find(Stitch, where))

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        """Return the stitches of a run without their content, in the order of their positions."""
        return await self._backend.outline(run_id)

    async def model_calls(self, run_id: UUID) -> list[Stitch]:
        """Return the model calls of a run, by start time, and then its other spans with token counts."""
        of_run = Where("run_id", "=", run_id)
        calls = (of_run, Where("type", "=", "llm_call"))
        counted = (of_run, Where("type", "=", "span"), Where("input_tokens", "is not null"))
        stitches = await self._backend.find(Find(Stitch, calls, order=("at", "position")))
        return stitches + await self._backend.find(Find(Stitch, counted, order=("at", "position")))

    async def rows_since(self, run_id: UUID, since: datetime) -> list[Stitch]:
        """Return the model calls and other spans of a run that started at this time or later, by start time."""
        where = (Where("run_id", "=", run_id), Where("type", "in", ["llm_call", "span"]), Where("at", ">=", since))
        return await self._backend.find(Find(Stitch, where, order=("at", "position")))

    async def rows(self, run_id: UUID) -> list[Stitch]:
        """Return all stitches of a run in the order of their positions."""
        return await self._backend.find(Find(Stitch, (Where("run_id", "=", run_id),), order=("position",)))

    async def rows_of(self, run_ids: Iterable[UUID]) -> dict[UUID, list[Stitch]]:
        """Return all stitches of these runs by run, in the order of their positions. Archived turns are left out."""
        rows: dict[UUID, list[Stitch]] = {}
        for stitch in sorted(await self._among(Stitch, "run_id", run_ids), key=lambda stitch: stitch.position):
            if stitch.run_id is not None:
                rows.setdefault(stitch.run_id, []).append(stitch)
        return rows

    async def spans_of_responses(self, project: str, response_ids: Sequence[str]) -> list[tuple[str, Stitch]]:
        """Return the stitches of model calls with these response ids of providers, each with its response id."""
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

    async def owned_records(self, thread_ids: Iterable[UUID]) -> list[Record]:
        """Return the feedback, the files, the blobs and the share links of these threads."""
        ids = list(thread_ids)
        uses = await self._among(BlobUse, "thread_id", ids)
        # Read one at a time, because a blob may be large.
        blobs = [await self._backend.get(Blob, (digest,)) for digest in sorted({use.sha256 for use in uses})]
        records: list[Record] = [blob for blob in blobs if blob is not None]
        records += uses
        records += await self._among(File, "thread_id", ids)
        records += await self._among(Feedback, "thread_id", ids)
        records += await self._among(ShareLink, "thread_id", ids)
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
        heads = sorted(dissolved, key=lambda head: head.id)
        superseded = [ThreadChange(head.id, head.fence, head.position) for head in heads]
        commit = commit_of(mirrored, now)._replace(records=_in_order(records), superseded=superseded)
        await self._backend.append(commit)

    @property
    def encode(self) -> Encoder:
        """The function that encodes new traces for `write_encoded`, also in another process."""
        return self._backend.encode

    async def write_encoded(self, rows: Any, *, new_ids: bool) -> None:
        """Write encoded new traces. Raises `Conflict` if one of their threads, runs or spans exists.

        With `new_ids`, no other trace can have a span with one of their ids.
        """
        await self._backend.append_encoded(rows, new_ids=new_ids)

    async def has_any(self, project: str, absent: Absent) -> bool:
        """True if the store has a record with one of these ids."""
        by_id = ((Thread, absent.threads), (Run, absent.runs), (Stitch, absent.stitches))
        for kind, ids in by_id:
            if ids and await self._backend.find(Find(kind, (Where("id", "in", sorted(ids)),), limit=1)):
                return True
        keys = (Where("project", "=", project), Where("key", "in", sorted(absent.keys)))
        if absent.keys and await self._backend.find(Find(Thread, keys, limit=1)):
            return True
        responses = (Where("project", "=", project), Where("response_id", "in", sorted(absent.response_ids)))
        return bool(absent.response_ids and await self._backend.find(Find(MirroredModelCall, responses, limit=1)))

    async def put_side_records(self, records: Sequence[Record]) -> None:
        """Write side records of mirrors: blobs, files, feedback, and the claims of model calls."""
        for kind in _SIDE_RECORDS:
            if wanted := [record for record in records if isinstance(record, kind)]:
                await self._backend.put(wanted)

    async def feedback(self, ids: Iterable[UUID]) -> dict[UUID, Feedback]:
        """Return the feedback with these ids, by id."""
        return {feedback.id: feedback for feedback in await self._among(Feedback, "id", ids)}

    async def early_feedback(self, project: str, stitch_ids: Iterable[UUID]) -> list[Feedback]:
        """Return the feedback on these stitches that has no thread, because it was received before its span."""
        early = (Where("project", "=", project), Where("thread_id", "is null"))
        # Usually there is none, and looking for one takes less time than looking for many ids.
        if not await self._backend.find(Find(Feedback, early, limit=1)):
            return []
        ids = sorted(set(stitch_ids))
        return await self._backend.find(Find(Feedback, (*early, Where("stitch_id", "in", ids)))) if ids else []

    async def _among(self, kind: type[R], column: str, values: Iterable[UUID]) -> list[R]:
        wanted = sorted(set(values))
        return await self._backend.find(Find(kind, (Where(column, "in", wanted),))) if wanted else []


_SIDE_RECORDS: Final = (Blob, BlobUse, File, Feedback, ShareLink, MirroredModelCall)
"""Kinds of side records in the order in which they are written. Some refer to earlier ones."""


def _in_order(records: Sequence[Record]) -> list[Record]:
    """Return the records in the order of `_SIDE_RECORDS`."""
    return [record for kind in _SIDE_RECORDS for record in records if isinstance(record, kind)]


def commit_of(mirrored: Sequence[MirrorUpdate], now: datetime) -> Commit:
    """Return the commit that writes these changes."""
    mirror_updates = sorted(mirrored, key=lambda mirror_update: mirror_update.head.id)
    threads = [mirror_update.head for mirror_update in mirror_updates if mirror_update.is_new]
    return Commit([_change(mirror_update, now) for mirror_update in mirror_updates], threads)


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
        replaced_stitches=mirror_update.replaced_stitches,
    )


def _fields(run: Run) -> Fields:
    return {name: value for name, value in run.__dict__.items() if name not in ("id", "thread_id", "sequence", "turn")}
