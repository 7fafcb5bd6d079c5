"""Placing: a trace that was worked out, put into what is written to its thread."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.bridges.rows import Row, part
from lockstitch.bridges.trace import Known, place
from lockstitch.records import TERMINAL, Run
from lockstitch.store.mirrors import Mirrored

_TITLE: Final = 80
"""Characters of what the user said that name a thread."""


def put_into(into: Mirrored, known: Known, run: Run, rows: Sequence[Row], root_id: UUID | None) -> None:
    """Add a trace's rows and run to what is written to its thread."""
    head = into.head
    position = head.position + len(into.stitches)
    run = place(known, run, rows, position, head.fence + 1, root_id)
    into.stitches += sorted((row.stitch() for row in rows if row.old is None), key=lambda stitch: stitch.position)
    into.replaced += [row.stitch() for row in rows if row.old is not None and row.differs()]
    if known.is_new:
        into.new_runs.append(run)
    elif run != known.run:
        into.runs.append(run)
    into.fields |= _head_fields(into, known, run)


def _head_fields(into: Mirrored, known: Known, run: Run) -> dict[str, Any]:
    """What a trace changes about its thread."""
    head = into.head
    fields: dict[str, Any] = {}
    if known.is_new:
        fields["last_sequence"], fields["last_turn"] = run.sequence, run.turn
    finished = run.status in TERMINAL and (known.is_new or known.run.status not in TERMINAL)
    if finished:
        fields["total_runs"] = into.fields.get("total_runs", head.total_runs) + 1
    last = into.fields.get("last_run_at", head.last_run_at)
    # A run that turns out to have begun earlier is still the last one, if it was.
    if last is None or run.started_at >= last or known.run.started_at == last:
        fields["last_run_at"], fields["status"] = run.started_at, run.status
    state = run.state
    if head.user_id is None and state.get("user_id"):
        fields["user_id"] = part(str(state["user_id"]))
    if head.title is None and state.get("said") and "title" not in into.fields:
        fields["title"] = " ".join(str(state["said"]).split())[:_TITLE] or None
    return fields
