"""`TraceAssigner`: find the trace of each span of a batch, and the stored traces that the batch merges.

A source like LangSmith gives a trace the id of its root span. Each span therefore has at most one link upwards: to the
trace that it names, else to its parent. The trace of a span is the end of the chain of these links. A chain may end
at a span that has not arrived yet. Its id then names a provisional trace. When that span arrives and has a link itself,
the provisional trace is merged into the trace at the end of the longer chain.

The result depends only on the links, not on the order in which spans arrive. A circle of links is a trace that has the
smallest id in the circle.

A merge deletes the threads of the traces that lose spans and writes all their spans again, in one commit that compares
the fences of these threads.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast
from uuid import UUID

from lockstitch.errors import Conflict
from lockstitch.integrations.spans.batch import Batch, TraceBatch
from lockstitch.integrations.spans.rows import MirrorIds, stored_span_data
from lockstitch.integrations.spans.span import SpanData, TraceSource, above, merge
from lockstitch.integrations.spans.trace import trace_of
from lockstitch.model import Run, Stitch, Thread
from lockstitch.model.record import new_dict, new_set
from lockstitch.store.writes.mirrors import MirrorStore

LARGEST: Final = 5_000
"""Stitches of a thread that is still rewritten to merge traces. The traces of a larger thread are not merged."""

_ROUNDS: Final = 20


@dataclass(slots=True)
class TraceAssignment:
    """A batch sorted into traces, and the stored records that are needed to write it."""

    batches: list[TraceBatch]
    homes: dict[str, UUID]
    """The thread of each trace."""
    runs: dict[UUID, Run]
    """Stored runs of these traces, without those that the commit deletes."""
    threads: dict[UUID, Thread]
    """Stored threads of these traces, without those that the commit deletes."""
    stored: dict[UUID, Stitch]
    """Stored rows of the spans, without those that the commit deletes."""
    dissolved: dict[UUID, Thread] = field(default_factory=new_dict)
    """Threads that the commit deletes. Their spans are part of the trace batches."""
    merged: dict[UUID, tuple[str, str]] = field(default_factory=new_dict)
    """Runs of the dissolved threads: the trace that each of them was, and the trace that it is part of now."""
    origin: dict[UUID, UUID] = field(default_factory=new_dict)
    """The dissolved threads of these runs."""

    def fences(self) -> dict[UUID, int]:
        """Return the fences that the commit compares. Each write of another writer raises one, or adds a thread."""
        return {head.id: head.fence for head in (*self.threads.values(), *self.dissolved.values())}


@dataclass(slots=True)
class _Seen:
    """The records that one pass read from the store."""

    runs: dict[UUID, Run] = field(default_factory=new_dict)
    threads: dict[UUID, Thread] = field(default_factory=new_dict)
    stored: dict[UUID, Stitch] = field(default_factory=new_dict)
    rows: dict[UUID, list[Stitch]] = field(default_factory=new_dict)
    """All rows of the threads that may be dissolved."""

    def members(self) -> dict[str, Stitch]:
        """Return the rows of spans in the threads that may be dissolved, by the ids of the spans."""
        return {str(row.data["id"]): row for rows in self.rows.values() for row in rows if row.data.get("id")}


@dataclass(slots=True)
class _Plan:
    """Which span goes to which trace, and which threads are dissolved."""

    traces: dict[str, str]
    dissolved: set[UUID] = field(default_factory=new_set)
    opened: set[UUID] = field(default_factory=new_set)
    """Threads to read completely, because one of their spans may move to another trace."""
    links: dict[str, str] = field(default_factory=new_dict, compare=False)


class TraceAssigner:
    """Sorts the batches of one source and project into traces."""

    def __init__(self, mirrors: MirrorStore, trace_source: TraceSource, names: MirrorIds) -> None:
        self._mirrors = mirrors
        self._infers = trace_source.root_names_trace
        self._names = names

    async def join(self, batch: Batch) -> TraceAssignment:
        """Read the stored data of the traces of a batch, and sort the batch into them.

        Threads are read before their rows. Each later write to such a thread raises the fence that the commit compares.
        The rows can show that more threads are involved, so reading repeats until the set of threads no longer changes.
        """
        plan = _Plan({span_id: span["trace_id"] for span_id, span in batch.spans.items()})
        seen = _Seen()
        # If every span names its trace, no stored record can change the plan.
        final = not self._infers and not batch.again and not batch.absorbed
        for _ in range(_ROUNDS):
            run_ids = {self._names.run(trace) for trace in {*plan.traces.values(), *batch.absorbed}}
            batches = self._trace_batches(batch, plan, seen)
            homes = self._homes(batches, await self._mirrors.runs(run_ids), plan)
            threads = await self._mirrors.threads({*homes.values(), *plan.opened})
            seen = await self._look(batch, plan, run_ids, threads)
            new = plan if final else await self._plan(batch, plan, seen)
            batches = batches if final else self._trace_batches(batch, new, seen)
            if new == plan and homes == self._homes(batches, seen.runs, new):
                return await self._joined(batches, homes, new, seen)
            plan = new
        raise Conflict("The traces of these spans changed while they were read. Nothing was written.")

    def new(self, batch: Batch) -> TraceAssignment | None:
        """Return the assignment of spans whose traces are not stored. None if spans lead from one trace to another."""
        batches: dict[str, TraceBatch] = {}
        for span_id, span in batch.spans.items():
            trace = span["trace_id"]
            if self._infers and ("inferred" in span or batch.spans.get(trace, span)["trace_id"] != trace):
                return None
            trace_batch = batches.get(trace)
            if trace_batch is None:
                trace_batch = batches[trace] = TraceBatch(trace)
            trace_batch.spans[span_id] = span
        homes = {trace: self._names.thread(trace_batch.name) for trace, trace_batch in batches.items()}
        return TraceAssignment(list(batches.values()), homes, {}, {}, {})

    async def loose(self, joined: TraceAssignment) -> Batch:
        """Return the traces to join after a commit: provisional traces of spans that are in other traces.

        Such a trace is named after a span of the commit, or it is a trace of the commit and another process has written
        the span with its name to another trace at the same time.
        """
        batch = Batch()
        if not self._infers:
            return batch
        spans = [(batch.trace_id, span_id) for batch in joined.batches for span_id in batch.spans]
        named = {self._names.run(span_id): span_id for trace, span_id in spans if span_id != trace}
        waiting = {named[run_id]: run for run_id, run in (await self._mirrors.runs(named)).items()}
        rows = await self._mirrors.stitches(map(self._names.span, joined.homes))
        threads = {trace: {run.thread_id} for trace, run in waiting.items()}
        for trace, home in joined.homes.items():
            row = rows.get(self._names.span(trace))
            if row is not None and row.data.get("id") and row.run_id != self._names.run(trace):
                threads[trace] = {home, row.thread_id}
        heads = await self._mirrors.threads({thread_id for both in threads.values() for thread_id in both})
        fits = {head.id for head in heads.values() if _can_dissolve(head)}
        batch.absorbed = {trace for trace, both in threads.items() if both <= fits}
        batch.again = set(batch.absorbed)
        return batch

    async def _look(self, batch: Batch, plan: _Plan, run_ids: set[UUID], threads: dict[UUID, Thread]) -> _Seen:
        wanted = {*batch.spans, *batch.again}
        if self._infers:
            wanted |= {link for span in batch.spans.values() if (link := above(span))}
        opened = [threads[item_id] for item_id in plan.opened if item_id in threads]
        return _Seen(
            await self._mirrors.runs(run_ids),
            threads,
            await self._mirrors.stitches(map(self._names.span, wanted)),
            {head.id: await self._mirrors.thread_rows(head.id) for head in opened if _can_dissolve(head)},
        )

    async def _plan(self, batch: Batch, before: _Plan, seen: _Seen) -> _Plan:
        """Compute the trace of each span, and the threads to read or dissolve for it."""
        members = seen.members()
        rows = {row.data["id"]: row for row in seen.stored.values() if row.data.get("id")} | members
        links = await self._links(batch, seen, rows, members)
        # In the order of their arrival, which is the order of new runs of a conversation.
        wanted = dict.fromkeys([*batch.spans, *(span_id for span_id in sorted(batch.again) if span_id in rows)])
        traces, circular = ends(links, {*wanted, *members, *batch.absorbed})
        moved = {
            span_id
            for span_id in {*wanted, *members}
            if span_id in rows and rows[span_id].run_id != self._names.run(traces[span_id])
        }
        absorbed = {trace for trace in batch.absorbed if traces[trace] != trace}
        runs = [run for trace in absorbed if (run := seen.runs.get(self._names.run(trace))) is not None]
        opened = {rows[span_id].thread_id for span_id in moved | (circular & rows.keys())}
        opened |= {run.thread_id for run in runs} | before.opened
        dissolved = {rows[span_id].thread_id for span_id in moved} | {run.thread_id for run in runs}
        dissolved &= seen.rows.keys()
        wanted |= dict.fromkeys(span_id for span_id, row in members.items() if row.thread_id in dissolved)
        return _Plan({span_id: traces[span_id] for span_id in wanted}, dissolved, opened, links)

    async def _links(
        self, batch: Batch, seen: _Seen, rows: Mapping[str, Stitch], members: Mapping[str, Stitch]
    ) -> dict[str, str]:
        """Return the links of all spans that were read. A span whose link did not change is linked to its trace."""
        links: dict[str, str] = {}
        unchanged: dict[str, Stitch] = {}
        if not self._infers:
            links = {span_id: span["trace_id"] for span_id, span in batch.spans.items()}
            return links | {span_id: row.data["trace_id"] for span_id, row in rows.items()}
        for span_id in {*batch.spans, *rows}:
            row, piece = rows.get(span_id), batch.spans.get(span_id)
            known = stored_span_data(row.data) if row is not None else None
            merged = merge(known, piece) if known and piece else known or piece
            assert merged is not None
            link = above(merged)
            head = seen.threads.get(row.thread_id) if row is not None else None
            fixed = head is not None and not _can_dissolve(head)
            if row is not None and (fixed or (span_id not in members and known and above(known) == link)):
                unchanged[span_id] = row
            elif link is not None:
                links[span_id] = link
        for span_id, trace in (await self._stored_traces(unchanged)).items():
            if trace != span_id:
                links[span_id] = trace
        return links

    async def _stored_traces(self, rows: Mapping[str, Stitch]) -> dict[str, str]:
        """Return the trace of each of these rows. Nearly every row names it itself."""
        result = {span_id: str(row.data["trace_id"]) for span_id, row in rows.items()}
        others = {span_id for span_id, trace in result.items() if self._names.run(trace) != rows[span_id].run_id}
        runs = await self._mirrors.runs(run_id for span_id in others if (run_id := rows[span_id].run_id))
        for span_id in others:
            run = runs.get(rows[span_id].run_id or UUID(int=0))
            if run is not None:
                result[span_id] = trace_of(run)
        return result

    def _trace_batches(self, batch: Batch, plan: _Plan, seen: _Seen) -> list[TraceBatch]:
        batches: dict[str, TraceBatch] = {}
        members = {span_id: row for span_id, row in seen.members().items() if row.thread_id in plan.dissolved}
        for span_id, trace in plan.traces.items():
            trace_batch = batches.setdefault(trace, TraceBatch(trace))
            span = batch.spans.get(span_id)
            if span_id in members:
                known = stored_span_data(members[span_id].data)
                span = merge(known, span) if span else known
            elif span is None:
                span = cast("SpanData", {"id": span_id, "trace_id": trace, "inferred": True})
                trace_batch.recompute.add(span_id)
            elif span_id in batch.again and self._names.span(span_id) in seen.stored:
                trace_batch.recompute.add(span_id)
            trace_batch.spans[span_id] = cast("SpanData", {**span, "trace_id": trace}) if span.get("inferred") else span
        return list(batches.values())

    def _homes(self, batches: Iterable[TraceBatch], runs: Mapping[UUID, Run], plan: _Plan) -> dict[str, UUID]:
        """Return the thread of each trace: its stored thread, else the thread of its conversation, else its own."""
        homes: dict[str, UUID] = {}
        for batch in batches:
            run = runs.get(self._names.run(batch.trace_id))
            stored = run is not None and run.thread_id not in plan.dissolved
            homes[batch.trace_id] = run.thread_id if run and stored else self._names.thread(batch.name)
        return homes

    async def _joined(
        self, batches: list[TraceBatch], homes: dict[str, UUID], plan: _Plan, seen: _Seen
    ) -> TraceAssignment:
        dissolved = plan.dissolved
        joined = TraceAssignment(
            batches,
            homes,
            {run_id: run for run_id, run in seen.runs.items() if run.thread_id not in dissolved},
            {thread_id: head for thread_id, head in seen.threads.items() if thread_id not in dissolved},
            {
                row_id: row
                for row_id, row in seen.stored.items()
                if row.thread_id not in dissolved and row.data.get("id")
            },
        )
        if dissolved:
            joined.dissolved = {thread_id: seen.threads[thread_id] for thread_id in dissolved}
            runs = await self._mirrors.thread_runs(dissolved)
            traces, _ = ends(plan.links, {trace_of(run) for run in runs})
            joined.origin = {run.id: run.thread_id for run in runs}
            joined.merged = {run.id: (trace_of(run), traces[trace_of(run)]) for run in runs}
        return joined


def _can_dissolve(head: Thread) -> bool:
    return head.kind == "trace" and head.position <= LARGEST


def ends(links: Mapping[str, str], ids: Collection[str]) -> tuple[dict[str, str], set[str]]:
    """Follow the links from each id to the end of its chain. Return the ends, and the ids on circles.

    The end of a chain that leads into a circle is the smallest id of the circle. Each link is followed once.
    """
    result: dict[str, str] = {}
    circular: set[str] = set()
    for start in ids:
        path: dict[str, None] = {}
        here = start
        while here not in result and here not in path and links.get(here, here) != here:
            path[here] = None
            here = links[here]
        end = result.get(here, here)
        if here in path:
            passed = list(path)
            circle = passed[passed.index(here) :]
            circular.update(circle)
            end = min(circle)
        result |= dict.fromkeys((*path, here), end)
    return {span_id: result[span_id] for span_id in ids}, circular
