"""`TraceWriter`: merge a batch of spans with the stored traces and write the result in one commit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import Conflict
from lockstitch.integrations.spans.batch import Batch, BatchOutcome, StoredRow, TraceBatch
from lockstitch.integrations.spans.dedup import ModelCallDedup
from lockstitch.integrations.spans.lookup import StoreLookup, further
from lockstitch.integrations.spans.removal import add_to_mirror
from lockstitch.integrations.spans.rows import MirrorIds, order_of, part, start_time, stored_span_data
from lockstitch.integrations.spans.span import NewSpan, TraceSource, merge
from lockstitch.integrations.spans.trace import StoredTrace, TraceBuilder, needs_all_calls, price
from lockstitch.integrations.spans.trace_assignment import TraceAssigner, TraceAssignment
from lockstitch.model import Blob, BlobUse, Feedback, File, Record, Run, ShareLink, Stitch, Thread
from lockstitch.store.writes.mirrors import MirrorStore, MirrorUpdate


class TraceWriter:
    """Writes the spans of one source into the mirrors of one project."""

    def __init__(self, mirrors: MirrorStore, project: str, trace_source: TraceSource, names: MirrorIds) -> None:
        self._mirrors = mirrors
        self._project = project
        self._source = trace_source
        self._names = names
        self._looking = StoreLookup(mirrors, trace_source, names)
        self.assigner = TraceAssigner(mirrors, trace_source, names)

    async def write(self, batch: Batch, outcome: BatchOutcome, now: datetime) -> TraceAssignment:
        """Write a batch in one commit. Raises `Conflict` if another writer changed one of its traces."""
        joined = await self.assigner.join(batch)
        await self.write_assigned(joined, batch, outcome, now)
        return joined

    async def write_assigned(self, joined: TraceAssignment, batch: Batch, outcome: BatchOutcome, now: datetime) -> None:
        """Write a batch whose spans are sorted into traces."""
        batch.seen = joined.fences(), frozenset(batch.again)
        batches, homes, threads = joined.batches, joined.homes, joined.threads
        written = BatchOutcome(traces={batch.trace_id for batch in batches}, dissolved=set(joined.dissolved))
        written.removed_spans = {name for name, _ in joined.merged.values()} - written.traces
        new = [batch for batch in batches if homes[batch.trace_id] not in threads]
        keys = await self._mirrors.keys(self._project, sorted({self._key(batch) for batch in new}))
        arrived = {batch.trace_id: self._arrived(batch, joined.stored, now, written) for batch in batches}
        spans_by_thread = ((homes[trace], spans) for trace, spans in arrived.items())
        dedup = ModelCallDedup(self._project, self._source, self._names, spans_by_thread, now)
        spans_of_responses = await self._mirrors.spans_of_responses(self._project, dedup.response_ids())
        spans_of_responses = [
            (response_id, row) for response_id, row in spans_of_responses if row.thread_id not in joined.dissolved
        ]
        claims, others = dedup.mark_duplicates(spans_of_responses)
        if others:
            batch.again |= {str(row.data["id"]) for row in others}
            raise Conflict("Stored spans duplicate other model calls now.")
        mirrored: dict[UUID, MirrorUpdate] = {}
        for parcel in batches:
            changed = arrived[parcel.trace_id]
            if not changed:
                continue
            home = homes[parcel.trace_id]
            if home not in mirrored:
                head = threads.get(home) or self._new_thread(parcel, home, keys, now, joined.dissolved.get(home))
                mirrored[home] = MirrorUpdate(head, is_new=home not in threads)
            await self._assemble(parcel, changed, joined.runs, joined.stored, mirrored[home], now, written)
        if joined.dissolved:
            records = await self._moved(joined)
            await self._mirrors.write(list(mirrored.values()), now, joined.dissolved.values(), [*records, *claims])
        else:
            if mirrored:
                await self._mirrors.write(list(mirrored.values()), now)
            # After the commit, because they refer to its threads.
            await self._mirrors.put_side_records(claims)
        written.rows += [StoredRow.of(row.__dict__) for row in (await self._mirrors.stitches(written.further)).values()]
        outcome.add(written)

    async def _moved(self, joined: TraceAssignment) -> list[Record]:
        """Return the side records of dissolved threads, moved to the threads of the commit."""
        traces = {self._names.span(span_id): batch.trace_id for batch in joined.batches for span_id in batch.spans}
        return moved(await self._mirrors.owned_records(joined.dissolved), joined, traces, self._names)

    def _key(self, batch: TraceBatch) -> str:
        return part(f"{self._source.source}:{batch.name}") or self._source.source

    def _new_thread(
        self, batch: TraceBatch, thread_id: UUID, keys: dict[str, UUID], now: datetime, before: Thread | None
    ) -> Thread:
        """Return a thread for a trace. `before` is one with the same id that the commit deletes."""
        key = self._key(batch)
        values: dict[str, Any] = {"created_at": now}
        if before is not None:
            # The fence rises, so that a writer that has seen the earlier thread cannot write to this one.
            names = ("title", "extras", "priority", "expires_at", "created_at")
            values = {"fence": before.fence + 1, **{name: getattr(before, name) for name in names}}
        # The texts are storable. Validating each thread takes longer than computing it.
        return _TRACE.changed(
            id=thread_id,
            # A native thread may have the key. The imported trace is then found only by its id.
            key=key if keys.get(key, thread_id) == thread_id else None,
            project=self._project,
            state={"source": self._source.source, "foreign_id": batch.name},
            updated_at=now,
            **values,
        )

    def _arrived(
        self, batch: TraceBatch, stored: dict[UUID, Stitch], now: datetime, outcome: BatchOutcome
    ) -> list[NewSpan]:
        """Return the spans with new data, merged with the stored data."""
        changed: list[NewSpan] = []
        run_id, row_id_of = self._names.run(batch.trace_id), self._names.span
        for span_id, span in batch.spans.items():
            row_id = row_id_of(span_id)
            old = stored.get(row_id) if stored else None
            if old is None and span_id in batch.recompute:
                continue
            if old is not None and old.type != "removed":
                was = stored_span_data(old.data)
                merged = merge(was, span)
                if merged == was and span_id not in batch.recompute:
                    outcome.rows.append(StoredRow.of(old.__dict__))
                    facts = self._source.facts(was)
                    outcome.missing[span_id] = facts.missing
                    outcome.further += further(self._names, span_id, facts)
                    continue
                span = merged
            facts = self._source.facts(span)
            outcome.missing[span_id] = facts.missing
            parent = span.get("parent_id")
            parent_id = row_id_of(parent) if parent else run_id
            at = start_time(span, now)
            changed.append(NewSpan(span, facts, row_id, parent_id, at, order_of(span, at)))
        return changed

    async def _assemble(
        self,
        batch: TraceBatch,
        changed: Sequence[NewSpan],
        runs: dict[UUID, Run],
        stored: dict[UUID, Stitch],
        into: MirrorUpdate,
        now: datetime,
        outcome: BatchOutcome,
    ) -> None:
        run_id = self._names.run(batch.trace_id)
        run = runs.get(run_id)
        stored_trace = StoredTrace(run or self._new_run(batch, run_id, into, changed), run is None, stored)
        if run is not None:
            await self._looking.load(stored_trace, changed, now)
        trace = TraceBuilder(self._source, self._names, stored_trace, price, now)
        after, rows = trace.assemble(changed)
        if needs_all_calls(stored_trace, rows):
            stored_trace.calls = await self._mirrors.model_calls(run_id)
            trace = TraceBuilder(self._source, self._names, stored_trace, price, now)
            after, rows = trace.assemble(changed)
        add_to_mirror(into, stored_trace, after, rows, trace.root_id)
        # A new span without tokens does not matter to the report. Another one may have been a call before.
        outcome.rows += [
            StoredRow.of(row.values)
            for row in rows
            if row.values["type"] != "span" or row.old is not None or row.values["input_tokens"] is not None
        ]

    def _new_run(self, batch: TraceBatch, run_id: UUID, into: MirrorUpdate, spans: Sequence[NewSpan]) -> Run:
        number = len(into.new_runs) + 1
        started = min(new_span.at for new_span in spans)
        return _RUN.changed(
            id=run_id,
            thread_id=into.head.id,
            sequence=into.head.last_sequence + number,
            turn=into.head.last_turn + number,
            source=self._source.source,
            foreign_id=batch.trace_id,
            started_at=started,
        )


_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_TRACE: Final = Thread(kind="trace", status="running", created_at=_EPOCH, updated_at=_EPOCH)
_RUN: Final = Run(
    thread_id=UUID(int=0), sequence=1, turn=1, role="trace", status="running", first_position=0, started_at=_EPOCH
)


def moved(
    records: Iterable[Record], joined: TraceAssignment, traces: Mapping[UUID, str], names: MirrorIds
) -> list[Record]:
    """Return the side records of dissolved threads, moved to the threads that now contain their spans.

    `traces` are the traces of the rows of spans. A record that names no such row moves with the run that it names.
    """
    matches: list[Record] = []
    threads: dict[UUID, set[UUID]] = {}

    def trace_of(row_id: UUID | None, run_id: UUID | None) -> str | None:
        trace = traces.get(row_id) if row_id else None
        return trace or (joined.merged[run_id][1] if run_id and run_id in joined.merged else None)

    def home_of(trace: str | None, thread_id: UUID) -> UUID:
        # Without a trace: the thread with the same id, else any thread that has spans of the dissolved one.
        home = joined.homes.get(trace) if trace else None
        return home or next(iter(sorted(threads.get(thread_id, ()))), thread_id)

    for run_id, (_, trace) in joined.merged.items():
        if trace in joined.homes:
            threads.setdefault(joined.origin[run_id], set()).add(joined.homes[trace])
    for record in records:
        if isinstance(record, Blob):
            matches.append(record)
        elif isinstance(record, Feedback):
            trace = trace_of(record.stitch_id, record.run_id)
            run_id = names.run(trace) if trace and record.run_id else record.run_id
            thread_id = record.thread_id and home_of(trace, record.thread_id)
            matches.append(record.changed(thread_id=thread_id, run_id=run_id))
        elif isinstance(record, ShareLink):
            trace = trace_of(None, record.run_id)
            run_id = names.run(trace) if trace else record.run_id
            matches.append(record.changed(thread_id=home_of(trace, record.thread_id), run_id=run_id))
        elif isinstance(record, File):
            row_id = next((row for row in _rows_named(record.file_id, names) if row in traces), None)
            trace = trace_of(row_id, record.created_in_run)
            run_id = names.run(trace) if trace else record.created_in_run
            home = home_of(trace, record.thread_id)
            matches.append(record.changed(thread_id=home, created_in_run=run_id, last_updated_run=run_id))
            if (record.storage_path or "").startswith("blob:"):
                matches.append(BlobUse(thread_id=home, sha256=(record.storage_path or "").removeprefix("blob:")))
    return matches


def _rows_named(file_id: str, names: MirrorIds) -> Iterator[UUID]:
    """Yield the rows of the spans that a file may belong to. Its id is the span id, a slash and its name."""
    for place, character in enumerate(file_id):
        if character == "/":
            yield names.span(file_id[:place])
