"""`prepare()`: compute the rows of traces that the store does not know yet, without reading the store.

Most traces arrive completely and are new. Their rows are computed as if the store had no traces, by the same code as
for any other batch, in this or in another process. The ids that the code looked for in the store are part of the
result. Before the rows are written, the writer checks that the store has none of these ids. Otherwise the batch is
written in the general way.
"""

from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from lockstitch.integrations.spans.batch import Batch, BatchOutcome
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.integrations.spans.span import TraceSource
from lockstitch.integrations.spans.trace_writer import TraceWriter
from lockstitch.model import Record, Run, Stitch, Thread
from lockstitch.store.writes.mirrors import Absent, Encoder, MirrorStore, MirrorUpdate, commit_of

T = TypeVar("T")


class NewTraces(NamedTuple):
    """The rows of new traces, and the conditions for writing them."""

    rows: Any
    """The rows in the form of the backend. None if there are none."""
    outcome: BatchOutcome
    before: Absent
    """Checked before the rows are written: records that the store must not have, besides those of the rows."""
    after: Absent
    """Checked after the rows are written: records that another writer can add for the new spans at any time."""


class _NoMirrors(MirrorStore):
    """The mirrors of a store without traces. Notes the ids that are looked for, and the changes that are written."""

    def __init__(self) -> None:
        self.absent = Absent()
        self.updates: list[MirrorUpdate] = []
        self.records: list[Record] = []

    async def threads(self, ids: Iterable[UUID]) -> dict[UUID, Thread]:
        self.absent.threads.update(ids)
        return {}

    async def keys(self, project: str, keys: Sequence[str]) -> dict[str, UUID]:
        self.absent.keys.update(keys)
        return {}

    async def runs(self, ids: Iterable[UUID]) -> dict[UUID, Run]:
        self.absent.runs.update(ids)
        return {}

    async def stitches(self, ids: Iterable[UUID]) -> dict[UUID, Stitch]:
        self.absent.stitches.update(ids)
        return {}

    async def spans_of_responses(self, project: str, response_ids: Sequence[str]) -> list[tuple[str, Stitch]]:
        self.absent.response_ids.update(response_ids)
        return []

    async def write(
        self,
        mirrored: Sequence[MirrorUpdate],
        now: datetime,
        dissolved: Iterable[Thread] = (),
        records: Sequence[Record] = (),
    ) -> None:
        self.updates += mirrored

    async def put_side_records(self, records: Sequence[Record]) -> None:
        self.records += records


def prepare(
    batch: Batch, project: str, trace_source: TraceSource, names: MirrorIds, encode: Encoder, now: datetime
) -> NewTraces | None:
    """Return the rows of a batch for a store that has none of its traces. None if they cannot be written at once."""
    mirrors = _NoMirrors()
    writer = TraceWriter(mirrors, project, trace_source, names)
    outcome = BatchOutcome()
    joined = writer.assigner.new(batch)
    if joined is None:
        joined = _finished(writer.assigner.join(batch))
    else:
        mirrors.absent.threads.update(joined.homes.values())
        mirrors.absent.runs.update(map(names.run, joined.homes))
        if trace_source.root_names_trace:
            # Otherwise the id of a span contains its trace, which is new.
            mirrors.absent.stitches.update(map(names.span, batch.spans), map(names.span, joined.homes))
    _finished(writer.write_assigned(joined, batch, outcome, now))
    before, mirrors.absent = mirrors.absent, Absent()
    if _finished(writer.assigner.loose(joined)).again:
        return None
    rows = None
    if mirrors.updates:
        rows = encode(commit_of(mirrors.updates, now), mirrors.records)
        if rows is None:
            return None
    after = mirrors.absent
    for update in mirrors.updates:
        # Writing these rows fails if the store has one of them.
        before.threads.discard(update.head.id)
        before.runs.difference_update([run.id for run in update.new_runs])
        stitches = [row.id for row in update.stitches]
        before.stitches.difference_update(stitches)
        after.stitches.difference_update(stitches)
    return NewTraces(rows, outcome, before, after)


def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("A computation without a store waited.")
