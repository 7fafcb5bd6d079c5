"""`SpanIngest`: merge a batch of spans with the store in one commit.

All sources use it. New span data is merged with the stored data, span by span and field by field. If anything changed,
the facts of the span are computed again. Everything is written in one commit. If another writer changes the same traces
concurrently, the commit fails and is computed again. Writing the same data twice has no effect.

The caller sets the project, never the content. Ids are derived from the project, so a client that knows the ids of
another project cannot reach its records.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import Conflict, OutcomeUnknown, Refused
from lockstitch.integrations.spans.batch import Batch, BatchOutcome, TraceBatch, remove_unstorable, sort
from lockstitch.integrations.spans.dedup import ModelCallDedup
from lockstitch.integrations.spans.lookup import StoreLookup, further
from lockstitch.integrations.spans.removal import SpanRemoval, add_to_mirror
from lockstitch.integrations.spans.rows import MirrorIds, part, start_time, stored_span_data
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback, TraceSource, merge
from lockstitch.integrations.spans.trace import NewSpan, StoredTrace, TraceBuilder, needs_all_calls, price
from lockstitch.integrations.spans.trace_assignment import TraceAssigner, TraceAssignment
from lockstitch.model import Blob, BlobUse, Feedback, File, Record, Run, Stitch, Thread, parse_time
from lockstitch.store import Store
from lockstitch.store.writes.mirrors import MirrorUpdate


def file_of_attachment(attachment: Attachment, row: Stitch, now: datetime) -> list[Record]:
    """Return the records of an attachment: a file of the span's thread, and a blob with its bytes."""
    digest = sha256(attachment.content).hexdigest()
    size = len(attachment.content)
    name, media_type = _storable_name(attachment.name), _storable_name(attachment.media_type)
    return [
        Blob(sha256=digest, size=size, media_type=media_type, content=attachment.content, created_at=now),
        BlobUse(thread_id=row.thread_id, sha256=digest),
        File(
            thread_id=row.thread_id,
            file_id=part(f"{attachment.span_id}/{name}") or digest,
            filename=name or "",
            storage_path=f"blob:{digest}",
            size=size,
            mime_type=media_type,
            created_in_run=row.run_id,
            last_updated_run=row.run_id,
            created_at=now,
            last_updated_at=now,
        ),
    ]


def feedback(
    span_feedback: SpanFeedback, names: MirrorIds, project: str, source: str, row: Stitch | None, now: datetime
) -> Feedback:
    """Return the feedback on a span. If the span is not known yet, the feedback has no thread until it arrives."""
    at = parse_time(span_feedback.at) if span_feedback.at else now
    return Feedback(
        id=names.feedback(span_feedback.id),
        project=project,
        thread_id=row.thread_id if row else None,
        run_id=row.run_id if row else None,
        stitch_id=names.span(span_feedback.span_id) if span_feedback.span_id else None,
        name=part(span_feedback.key) or "feedback",
        score=span_feedback.score,
        value=span_feedback.value,
        comment=span_feedback.comment,
        source=source,
        created_at=at,
        updated_at=at,
    )


def amended(span_feedback: SpanFeedback, feedback: Feedback, now: datetime) -> Feedback:
    """Return feedback with changed fields. Fields without a new value stay."""
    changes = {"score": span_feedback.score, "value": span_feedback.value, "comment": span_feedback.comment}
    return feedback.changed(updated_at=now, **{name: value for name, value in changes.items() if value is not None})


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


def _storable_name(name: str | None) -> str | None:
    """Return a name from a header with characters replaced that no column accepts."""
    return None if name is None else name.encode(errors="replace").decode().replace("\0", "\ufffd")


_ATTEMPTS: Final = 20
_UNCHANGED: Final = 3
"""Conflicts in a row without a change of the stored data, after which a conflict counts as permanent."""
_PASSES: Final = 20
"""Maximum number of passes over a batch to join traces."""


class SpanIngest:
    """Writes the spans of one integration into one project of a store."""

    def __init__(
        self, store: Store, trace_source: TraceSource, *, keep_secrets: bool = False, hide: Collection[str] = ()
    ) -> None:
        self._store = store
        self._source = trace_source
        self._names = MirrorIds(store.project, trace_source.source)
        self._keep_secrets = keep_secrets
        self._hide = frozenset(name.lower() for name in hide)
        self._joining = TraceAssigner(store.mirrors, trace_source, self._names)
        self._looking = StoreLookup(store.mirrors, trace_source, self._names)
        self._removing = SpanRemoval(store, trace_source, self._names)

    async def write(self, items: Iterable[Item], *, large: bool = False) -> BatchOutcome:
        """Write a batch and return its outcome. The batch is durable when this returns.

        A `large` batch is searched for secrets in a thread, because that takes about a microsecond per character.
        """
        outcome = BatchOutcome()
        sorting = partial(sort, items, outcome, keep_secrets=self._keep_secrets, hide=self._hide)
        batch, others = await asyncio.to_thread(sorting) if large else sorting()
        for _ in range(_PASSES):
            joined = await self._write_with_retries(batch, outcome)
            batch = await self._joining.loose(joined)
            if not batch.again:
                break
        await self._keep(others, outcome)
        await self._link_feedback(outcome.rows)
        return outcome

    async def _write_with_retries(self, batch: Batch, outcome: BatchOutcome) -> TraceAssignment:
        """Write a batch. Start again whenever another writer was faster.

        If nothing has changed since the last attempt, there is no other writer. After a few such attempts the conflict
        is permanent and is raised.
        """
        same = 0
        for attempt in range(_ATTEMPTS):
            before = batch.seen
            try:
                return await self._write(batch, outcome)
            except (Conflict, OutcomeUnknown) as exc:
                # Another writer changed one of these traces. The next attempt reads the new state and gives the same
                # result.
                same = same + 1 if before == batch.seen and not isinstance(exc, OutcomeUnknown) else 0
                if attempt == _ATTEMPTS - 1 or same == _UNCHANGED:
                    raise
                await asyncio.sleep(random.uniform(0.001, 0.01) * 2 ** min(attempt, 7))
            except (Refused, RecursionError):
                # Checked only now, because nearly all data can be stored.
                if not remove_unstorable(batch, outcome):
                    raise
        raise Conflict("Other writers keep changing these traces. Nothing was written. Try again later.")

    async def drop_others(self, trace_id: str, keep: Callable[[str], bool]) -> int:
        """Remove the spans of a complete trace for which `keep` is False. Return the number of removed rows."""
        return await self._removing.drop_others(trace_id, keep)

    async def _write(self, batch: Batch, outcome: BatchOutcome) -> TraceAssignment:
        now = self._store.clock.now()
        joined = await self._joining.join(batch)
        batch.seen = joined.fences(), frozenset(batch.again)
        batches, homes, threads = joined.batches, joined.homes, joined.threads
        written = BatchOutcome(traces={batch.trace_id for batch in batches}, dissolved=set(joined.dissolved))
        written.removed_spans = {name for name, _ in joined.merged.values()} - written.traces
        new = [batch for batch in batches if homes[batch.trace_id] not in threads]
        keys = await self._store.mirrors.keys(self._store.project, sorted({self._key(batch) for batch in new}))
        arrived = {batch.trace_id: self._arrived(batch, joined.stored, written) for batch in batches}
        at_home = {span_id: homes[batch.trace_id] for batch in batches for span_id in batch.spans}
        dedup = ModelCallDedup(self._store.project, self._source, self._names, at_home, now)
        spans_of_responses = await self._store.mirrors.spans_of_responses(
            self._store.project, dedup.response_ids(arrived.values())
        )
        spans_of_responses = [
            (response_id, row) for response_id, row in spans_of_responses if row.thread_id not in joined.dissolved
        ]
        claims, others = dedup.mark_duplicates(arrived.values(), spans_of_responses)
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
            await self._store.mirrors.write(
                list(mirrored.values()), now, joined.dissolved.values(), [*records, *claims]
            )
        else:
            if mirrored:
                await self._store.mirrors.write(list(mirrored.values()), now)
            # After the commit, because they refer to its threads.
            await self._store.mirrors.put_side_records(claims)
        written.rows += (await self._store.mirrors.stitches(written.further)).values()
        outcome.add(written)
        return joined

    async def _moved(self, joined: TraceAssignment) -> list[Record]:
        """Return the side records of dissolved threads, moved to the threads of the commit."""
        traces = {self._names.span(span_id): batch.trace_id for batch in joined.batches for span_id in batch.spans}
        return moved(await self._store.mirrors.owned_records(joined.dissolved), joined, traces, self._names)

    def _key(self, batch: TraceBatch) -> str:
        return part(f"{self._source.source}:{batch.name}") or self._source.source

    def _new_thread(
        self, batch: TraceBatch, thread_id: UUID, keys: dict[str, UUID], now: datetime, before: Thread | None
    ) -> Thread:
        """Return a thread for a trace. `before` is one with the same id that the commit deletes."""
        key = self._key(batch)
        foreign = batch.name
        stored: dict[str, Any] = {}
        if before is not None:
            # The fence rises, so that a writer that has seen the earlier thread cannot write to this one.
            names = ("title", "extras", "priority", "expires_at", "created_at")
            stored = {"fence": before.fence + 1, **{name: getattr(before, name) for name in names}}
        thread = Thread(
            id=thread_id,
            # A native thread may have the key. The imported trace is then found only by its id.
            key=key if keys.get(key, thread_id) == thread_id else None,
            project=self._store.project,
            kind="trace",
            status="running",
            state={"source": self._source.source, "foreign_id": foreign},
            created_at=now,
            updated_at=now,
        )
        return thread.changed(**stored) if stored else thread

    def _arrived(self, batch: TraceBatch, stored: dict[UUID, Stitch], outcome: BatchOutcome) -> list[NewSpan]:
        """Return the spans with new data, merged with the stored data."""
        changed: list[NewSpan] = []
        for span_id, span in batch.spans.items():
            old = stored.get(self._names.span(span_id))
            if old is None and span_id in batch.recompute:
                continue
            if old is not None and old.type != "removed":
                was = stored_span_data(old.data)
                merged = merge(was, span)
                if merged == was and span_id not in batch.recompute:
                    outcome.rows.append(old)
                    facts = self._source.facts(was)
                    outcome.missing[span_id] = facts.missing
                    outcome.further += further(self._names, span_id, facts)
                    continue
                span = merged
            facts = self._source.facts(span)
            outcome.missing[span_id] = facts.missing
            changed.append(NewSpan(span, facts))
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
        stored_trace = StoredTrace(run or self._new_run(batch, run_id, into, now), run is None, stored)
        if run is not None:
            await self._looking.load(stored_trace, changed, now)
        trace = TraceBuilder(self._source, self._names, stored_trace, price, now)
        after, rows = trace.assemble(changed)
        if needs_all_calls(stored_trace, rows):
            stored_trace.calls = await self._store.mirrors.model_calls(run_id)
            trace = TraceBuilder(self._source, self._names, stored_trace, price, now)
            after, rows = trace.assemble(changed)
        add_to_mirror(into, stored_trace, after, rows, trace.root_id)
        outcome.rows += [row.stitch() for row in rows]

    def _new_run(self, batch: TraceBatch, run_id: UUID, into: MirrorUpdate, now: datetime) -> Run:
        number = len(into.new_runs) + 1
        started = min(start_time(span, now) for span in batch.spans.values())
        return Run(
            id=run_id,
            thread_id=into.head.id,
            sequence=into.head.last_sequence + number,
            turn=into.head.last_turn + number,
            role="trace",
            status="running",
            first_position=0,
            source=self._source.source,
            foreign_id=batch.trace_id,
            started_at=started,
        )

    # Attachments and feedback

    async def _keep(self, others: Sequence[Attachment | SpanFeedback], outcome: BatchOutcome) -> None:
        if not others:
            return
        wanted = {span_id for item in others if (span_id := item.span_id)}
        rows = await self._store.mirrors.stitches(self._names.span(span_id) for span_id in wanted)
        now = self._store.clock.now()
        earlier = await self._earlier(others)
        records: list[Record] = []
        for item in others:
            row = rows.get(self._names.span(item.span_id)) if item.span_id else None
            if isinstance(item, SpanFeedback) and item.amends:
                known = earlier.get(self._names.feedback(item.id))
                if known is None:
                    outcome.refused.append(("", f"feedback {item.id} cannot be changed, because it is not known"))
                else:
                    records.append(amended(item, known, now))
            elif isinstance(item, SpanFeedback):
                records.append(feedback(item, self._names, self._store.project, self._source.source, row, now))
            elif row is None:
                why = f"attachment {item.name}: its span {item.span_id} is not known"
                outcome.refused.append((item.span_id, why))
            else:
                records += file_of_attachment(item, row, now)
        await self._store.mirrors.put_side_records(records)
        early = [record.stitch_id for record in records if isinstance(record, Feedback) and record.thread_id is None]
        # Another writer may have stored the span since it was looked up.
        await self._link_feedback((await self._store.mirrors.stitches(filter(None, early))).values())

    async def _link_feedback(self, rows: Iterable[Stitch]) -> None:
        """Set thread and run of feedback that arrived before its span."""
        spans = {row.id: row for row in rows}
        linked: list[Record] = [
            record.changed(thread_id=spans[record.stitch_id].thread_id, run_id=spans[record.stitch_id].run_id)
            for record in await self._store.mirrors.early_feedback(self._store.project, spans)
            if record.stitch_id is not None
        ]
        # Refused: the thread was deleted since. The feedback still names its span.
        with suppress(Refused):
            await self._store.mirrors.put_side_records(linked)

    async def _earlier(self, others: Sequence[Attachment | SpanFeedback]) -> dict[UUID, Feedback]:
        """Return the stored feedback that is to be changed."""
        ids = [self._names.feedback(item.id) for item in others if isinstance(item, SpanFeedback) and item.amends]
        return await self._store.mirrors.feedback(ids) if ids else {}
