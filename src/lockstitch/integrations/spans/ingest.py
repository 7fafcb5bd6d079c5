"""`SpanIngest`: merge a batch of spans with the store in one commit.

All sources use it. New span data is merged with the stored data, span by span and field by field. If anything changed,
the facts of the span are computed again. Everything is written in one commit. If another writer changes the same traces
concurrently, the commit fails and is computed again. Writing the same data twice has no effect.

The caller sets the project, never the content. Ids are derived from the project, so a client that knows the ids of
another project cannot reach its records.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

from lockstitch.errors import Conflict, OutcomeUnknown, Refused
from lockstitch.integrations.spans.batch import Batch, BatchOutcome, remove_unstorable, sort
from lockstitch.integrations.spans.new_traces import NewTraces, prepare
from lockstitch.integrations.spans.reader_process import Items, Part, ReadTask
from lockstitch.integrations.spans.removal import SpanRemoval
from lockstitch.integrations.spans.rows import MirrorIds, part
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback, TraceSource
from lockstitch.integrations.spans.trace_assignment import TraceAssignment
from lockstitch.integrations.spans.trace_writer import TraceWriter
from lockstitch.model import Blob, BlobUse, Feedback, File, Record, Run, Stitch, as_id, parse_time
from lockstitch.store import Store


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
    span_feedback: SpanFeedback, names: MirrorIds, project: str, source: str, row: Stitch | Run | None, now: datetime
) -> Feedback:
    """Return the feedback on a span, or on a trace if it names no span. `row` is the stored span or the stored run.

    If that is not known yet, the feedback has no thread until it arrives. Feedback on a trace then has the id of its
    run in the place of a stitch, so that the same query finds it.
    """
    at = parse_time(span_feedback.at) if span_feedback.at else now
    stitch_id = row.id if isinstance(row, Stitch) else None
    if row is None and span_feedback.span_id:
        stitch_id = names.span(span_feedback.span_id)
    elif row is None and span_feedback.trace_id:
        stitch_id = names.run(span_feedback.trace_id)
    return Feedback(
        id=names.feedback(span_feedback.id),
        project=project,
        thread_id=row.thread_id if row else None,
        run_id=row.id if isinstance(row, Run) else row.run_id if row else None,
        stitch_id=stitch_id,
        name=part(span_feedback.key) or "feedback",
        score=span_feedback.score,
        value=span_feedback.value,
        comment=span_feedback.comment,
        source=source,
        created_at=at,
        updated_at=at,
        experiment_id=as_id(span_feedback.group_id) if span_feedback.group_id else None,
        metadata=span_feedback.about or {},
    )


def amended(span_feedback: SpanFeedback, feedback: Feedback, now: datetime) -> Feedback:
    """Return feedback with changed fields. Fields without a new value stay."""
    changes = {"score": span_feedback.score, "value": span_feedback.value, "comment": span_feedback.comment}
    if correction := (span_feedback.about or {}).get("correction"):
        changes["metadata"] = {**feedback.metadata, "correction": correction}
    return feedback.changed(updated_at=now, **{name: value for name, value in changes.items() if value is not None})


def _storable_name(name: str | None) -> str | None:
    """Return a name from a header with characters replaced that no column accepts."""
    return None if name is None else name.encode(errors="replace").decode().replace("\0", "\ufffd")


_ATTEMPTS: Final = 20
_UNCHANGED: Final = 3
"""Conflicts in a row without a change of the stored data, after which a conflict counts as permanent."""
_PASSES: Final = 20
"""Maximum number of passes over a batch to join traces."""
_AT_ONCE: Final = 64
"""Spans of a large batch that are merged with the store in one commit. That takes about 20 ms of the event loop."""


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
        self._writer = TraceWriter(store.mirrors, store.project, trace_source, self._names)
        self._removing = SpanRemoval(store, trace_source, self._names)

    async def write(self, items: Iterable[Item], *, large: bool = False) -> BatchOutcome:
        """Write a batch and return its outcome. The batch is durable when this returns.

        The rows of new traces of a `large` batch are computed in a thread, and its other spans are written in several
        commits, because both would stop the event loop for long.
        """
        outcome = BatchOutcome()
        sorting = partial(sort, items, outcome, keep_secrets=self._keep_secrets, hide=self._hide)
        batch, others = await asyncio.to_thread(sorting) if large else sorting()
        new, batch = await self._split(batch)
        if new.spans and not await self._write_new(new, outcome, large=large):
            batch.spans = new.spans | batch.spans
        for some in batch.slices(_AT_ONCE if large else len(batch.spans)):
            await self._merge(some, outcome)
        await self._keep(others, outcome)
        await self._link_feedback(self._ids_of(outcome))
        return outcome

    async def _merge(self, batch: Batch, outcome: BatchOutcome) -> None:
        """Merge spans with those of the store."""
        for _ in range(_PASSES):
            joined = await self._write_with_retries(batch, outcome)
            batch = await self._writer.assigner.loose(joined)
            if not batch.again:
                break

    def _ids_of(self, outcome: BatchOutcome) -> Iterator[UUID]:
        """Yield the ids of the rows and of the runs of a batch."""
        yield from map(self._names.span, outcome.spans)
        yield from map(self._names.run, outcome.traces)

    async def _split(self, batch: Batch) -> tuple[Batch, Batch]:
        """Split a batch into the spans of traces that are not stored and all other spans."""
        runs = {trace: self._names.run(trace) for trace in {span["trace_id"] for span in batch.spans.values()}}
        stored = await self._store.mirrors.runs(runs.values())
        new, others = Batch(), Batch()
        for span_id, span in batch.spans.items():
            (others if runs[span["trace_id"]] in stored else new).spans[span_id] = span
        return new, others

    async def write_part(self, part: Part) -> tuple[BatchOutcome | None, list[Item]]:
        """Write the new traces of a part. Return their outcome, and the items to write in the general way."""
        items: list[Item] = [*part.later, *part.others]
        if part.new is None or not await self.write_new(part.new, part.outcome):
            return None, [*part.spans(), *items]
        await self._link_feedback(self._ids_of(part.outcome))
        return part.outcome, items

    def read_task(self, items: Items) -> ReadTask:
        """Return the task of a process that reads items for this ingest."""
        mirrors, project = self._store.mirrors, self._store.project
        return ReadTask(items, self._source, project, mirrors.encode, self._keep_secrets, self._hide)

    async def _write_new(self, batch: Batch, outcome: BatchOutcome, *, large: bool) -> bool:
        """Write a batch of new traces. Return False if they are not new, or if a span cannot be stored."""
        try:
            prepared = await asyncio.to_thread(self.prepare, batch) if large else self.prepare(batch)
        except (Conflict, Refused, RecursionError):
            return False
        return prepared is not None and await self.write_new(prepared, outcome)

    def prepare(self, batch: Batch) -> NewTraces | None:
        """Return the rows of a batch for a store without its traces."""
        mirrors = self._store.mirrors
        now = self._store.clock.now()
        return prepare(batch, self._store.project, self._source, self._names, mirrors.encode, now)

    async def write_new(self, new: NewTraces, outcome: BatchOutcome) -> bool:
        """Write prepared traces. Return False if the store has one of them. The batch must then be written again."""
        if await self._store.mirrors.has_any(self._store.project, new.before):
            return False
        if new.rows is not None:
            try:
                # Otherwise the ids of spans contain the trace.
                await self._store.mirrors.write_encoded(new.rows, new_ids=not self._source.root_names_trace)
            except (Conflict, OutcomeUnknown, Refused, RecursionError):
                return False
        if await self._store.mirrors.has_any(self._store.project, new.after):
            return False
        outcome.add(new.outcome)
        return True

    async def _write_with_retries(self, batch: Batch, outcome: BatchOutcome) -> TraceAssignment:
        """Write a batch. Start again whenever another writer was faster.

        If nothing has changed since the last attempt, there is no other writer. After a few such attempts the conflict
        is permanent and is raised.
        """
        same = 0
        for attempt in range(_ATTEMPTS):
            before = batch.seen
            try:
                return await self._writer.write(batch, outcome, self._store.clock.now())
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

    # Attachments and feedback

    async def _keep(self, others: Sequence[Attachment | SpanFeedback], outcome: BatchOutcome) -> None:
        if not others:
            return
        wanted = {span_id for item in others if (span_id := item.span_id)}
        rows = await self._store.mirrors.stitches(self._names.span(span_id) for span_id in wanted)
        traces = {item.trace_id for item in others if isinstance(item, SpanFeedback) and not item.span_id}
        runs = await self._store.mirrors.runs(self._names.run(trace_id) for trace_id in traces if trace_id)
        rated = {item.span_id for item in others if isinstance(item, SpanFeedback) and item.span_id}
        native = await self._native(span_id for span_id in rated if self._names.span(span_id) not in rows)
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
                run = runs.get(self._names.run(item.trace_id)) if item.trace_id and not item.span_id else None
                subject = row or run or native.get(item.span_id or "")
                records.append(feedback(item, self._names, self._store.project, self._source.source, subject, now))
            elif row is None:
                why = f"attachment {item.name}: its span {item.span_id} is not known"
                outcome.refused.append((item.span_id, why))
            else:
                records += file_of_attachment(item, row, now)
        await self._store.mirrors.put_side_records(records)
        early = [record.stitch_id for record in records if isinstance(record, Feedback) and record.thread_id is None]
        # Another writer may have stored the span or the trace since it was looked up.
        await self._link_feedback(filter(None, early))

    async def _native(self, span_ids: Iterable[str]) -> dict[str, Run | Stitch]:
        """Return runs and stitches of Lockstitch by the ids under which clients see them: their own ids."""
        own = {span_id: item_id for span_id in span_ids if (item_id := as_id(span_id)) is not None}
        if not own:
            return {}
        runs, stitches = await self._store.mirrors.runs(own.values()), await self._store.mirrors.stitches(own.values())
        found: dict[UUID, Run | Stitch] = {**stitches, **runs}
        threads = await self._store.threads_by_id({row.thread_id for row in found.values()})
        return {
            span_id: found[item_id]
            for span_id, item_id in own.items()
            if item_id in found and found[item_id].thread_id in threads
        }

    async def _link_feedback(self, ids: Iterable[UUID]) -> None:
        """Set thread and run of feedback that arrived before its span or its trace, by ids of rows and runs."""
        early = await self._store.mirrors.early_feedback(self._store.project, ids)
        if not early:
            return
        named = [record.stitch_id for record in early if record.stitch_id]
        spans, runs = await self._store.mirrors.stitches(named), await self._store.mirrors.runs(named)
        linked: list[Record] = []
        for record in early:
            assert record.stitch_id is not None
            if span := spans.get(record.stitch_id):
                linked.append(record.changed(thread_id=span.thread_id, run_id=span.run_id))
            elif run := runs.get(record.stitch_id):
                linked.append(record.changed(thread_id=run.thread_id, run_id=run.id, stitch_id=None))
        # Refused: the thread was deleted since. The feedback still names its span.
        with suppress(Refused):
            await self._store.mirrors.put_side_records(linked)

    async def _earlier(self, others: Sequence[Attachment | SpanFeedback]) -> dict[UUID, Feedback]:
        """Return the stored feedback that is to be changed."""
        ids = [self._names.feedback(item.id) for item in others if isinstance(item, SpanFeedback) and item.amends]
        return await self._store.mirrors.feedback(ids) if ids else {}
