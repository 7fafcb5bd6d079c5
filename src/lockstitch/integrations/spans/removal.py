"""`SpanRemoval`: remove spans that a complete trace no longer contains. `add_to_mirror`: add a trace to its thread."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import Conflict, OutcomeUnknown
from lockstitch.integrations.spans.rows import MirrorIds, SpanRow, part
from lockstitch.integrations.spans.span import TraceSource
from lockstitch.integrations.spans.trace import StoredTrace, TraceBuilder, place, price
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Stitch, Thread
from lockstitch.model.figures import figures_after
from lockstitch.store import Store
from lockstitch.store.writes.mirrors import MirrorUpdate

_TITLE: Final = 80
"""Maximum characters of a thread title taken from the user's message."""


def add_to_mirror(
    into: MirrorUpdate, stored_trace: StoredTrace, run: Run, rows: Sequence[SpanRow], root_id: UUID | None
) -> None:
    """Add the rows and the run of a trace to the update of its thread."""
    head = into.head
    position = head.position + len(into.stitches)
    run = place(stored_trace, run, rows, position, head.fence + 1, root_id)
    into.stitches += sorted((row.stitch() for row in rows if row.old is None), key=lambda stitch: stitch.position)
    into.replaced_stitches += [row.stitch() for row in rows if row.old is not None and row.differs()]
    if stored_trace.is_new:
        into.new_runs.append(run)
    elif rows or run != stored_trace.run:
        # Stitches of a run come with a change of its row, also if its values stay: see `backends/sql/totals.py`.
        into.runs.append(run)
    into.fields |= _head_fields(into, stored_trace, run)


def _head_fields(into: MirrorUpdate, stored_trace: StoredTrace, run: Run) -> dict[str, Any]:
    """Return the changed fields of the thread."""
    head = into.head
    fields: dict[str, Any] = {}
    if stored_trace.is_new:
        fields["last_sequence"], fields["last_turn"] = run.sequence, run.turn
    was_finished = not stored_trace.is_new and stored_trace.run.status in TERMINAL_STATUSES
    if (is_finished := run.status in TERMINAL_STATUSES) != was_finished:
        # A finished substitute can be replaced by a root that is still running.
        fields["total_runs"] = into.fields.get("total_runs", head.total_runs) + (1 if is_finished else -1)
    last = into.fields.get("last_run_at", head.last_run_at)
    # A run with a corrected, earlier start time is still the last run if it was the last before.
    if last is None or run.started_at >= last or stored_trace.run.started_at == last:
        fields["last_run_at"], fields["status"] = run.started_at, run.status
        if run.agent:
            fields["agent"] = run.agent
    if run.started_at < into.fields.get("created_at", head.created_at):
        # The trace is older than its import.
        fields["created_at"] = run.started_at
    state = run.state
    if head.user_id is None and state.get("user_id"):
        fields["user_id"] = part(str(state["user_id"]))
    if "substitute" not in state and "title" not in into.fields:
        # The first question is the title. The root of a trace can state another question than its model call.
        title, before_title = _title(state), None if stored_trace.is_new else _title(stored_trace.run.state)
        if title and title != head.title and head.title in (None, before_title):
            fields["title"] = title
    before = None if stored_trace.is_new else stored_trace.run
    return fields | figures_after(head, [(before, run)], into.fields | fields)


def _title(state: Json) -> str | None:
    return " ".join(str(state.get("said") or "")[:200].split())[:_TITLE] or None


_ATTEMPTS: Final = 20


class SpanRemoval:
    """Removes spans from the traces of one source and project."""

    def __init__(self, store: Store, trace_source: TraceSource, names: MirrorIds) -> None:
        self._store = store
        self._source = trace_source
        self._names = names

    async def drop_others(self, trace_id: str, keep: Callable[[str], bool]) -> int:
        """Remove the spans of a complete trace for which `keep` is False. Return the number of removed rows."""
        run_id = self._names.run(trace_id)
        for _ in range(_ATTEMPTS):
            run = (await self._store.mirrors.runs([run_id])).get(run_id)
            head = (await self._store.mirrors.threads([run.thread_id])).get(run.thread_id) if run else None
            if run is None or head is None:
                return 0
            # Read again after the thread, so that these rows belong to the fence of the thread.
            run = (await self._store.mirrors.runs([run_id])).get(run_id, run)
            rows = await self._store.mirrors.rows(run_id)
            stitches = _removed_rows(rows, keep)
            if not stitches:
                return 0
            try:
                await self._write(head, run, stitches, rows)
                return len(stitches)
            except (Conflict, OutcomeUnknown):
                continue
        raise Conflict(f"Other writers keep changing trace {trace_id}. Nothing was removed. Try again later.")

    async def _write(self, head: Thread, run: Run, stitches: Sequence[Stitch], rows: Sequence[Stitch]) -> None:
        """Write a trace without the removed rows."""
        now = self._store.clock.now()
        into = MirrorUpdate(head, is_new=False)
        places = {row.position for row in stitches}
        stored_trace = StoredTrace(
            run,
            is_new=False,
            tools=[row for row in rows if row.type == "tool_call" and row.position not in places],
            calls=[row for row in rows if row.type == "llm_call" or (row.type == "span" and "cost" in row.data)],
        )
        after, changed = TraceBuilder(self._source, self._names, stored_trace, price, now).assemble([], stitches)
        add_to_mirror(into, stored_trace, after, changed, None)
        await self._store.mirrors.write([into], now)


def _removed_rows(rows: Sequence[Stitch], keep: Callable[[str], bool]) -> list[Stitch]:
    """Return the rows of removed spans, and of calls that only such a span requested."""
    stitches = [row for row in rows if row.type != "removed" and _span(row) and not keep(_span(row))]
    places = {row.position for row in stitches}
    orphans = [row for row in rows if row.type == "tool_call" and not _span(row) and row.reply_to in places]
    return [*stitches, *orphans]


def _span(row: Stitch) -> str:
    """Return the span id of a row, also for a further generation of a span."""
    return str(row.data.get("id") or row.data.get("of") or "")
