"""Stored traces in a form that does not depend on the order of arrival."""

from typing import Any

from lockstitch.integrations.spans.trace import trace_of
from lockstitch.model import Json, Run, Stitch
from lockstitch.store import Store


async def seen(store: Store) -> Json:
    """Return all imported traces of a project: their rows without positions, and the totals of their runs."""
    records: Json = {}
    for thread in await store.threads(kind="trace", limit=None):
        for run in await store.runs(thread):
            rows = [row for row in await store.stitches(thread) if row.run_id == run.id]
            records[trace_of(run)] = {"run": _run(run, rows), "rows": _rows(rows), "thread": thread.key}
    return records


async def rows_of(store: Store, kind: str) -> list[Stitch]:
    """Return the rows of one type, in the order of their start."""
    stitches: list[Stitch] = []
    for thread in await store.threads(kind="trace", limit=None):
        stitches += [row for row in await store.stitches(thread) if row.type == kind]
    return sorted(stitches, key=lambda row: (str(row.at), row.position))


async def fences(store: Store) -> dict[str, int]:
    """Return the fences of imported traces. Every write raises one."""
    return {str(thread.id): thread.fence for thread in await store.threads(kind="trace", limit=None)}


def _run(run: Run, rows: list[Stitch]) -> Json:
    fields = ("status", "steps", "input_tokens", "output_tokens", "total_cost", "model", "agent", "error", "tags")
    spans = {row.position: row.data.get("id") for row in rows}
    return {
        **{name: getattr(run, name) for name in fields},
        "times": (run.started_at, run.completed_at),
        "texts": (run.imported_input, run.imported_answer),
        "ends": (spans.get(run.input_position or 0), spans.get(run.output_position or 0)),
    }


def _rows(rows: list[Stitch]) -> list[Any]:
    places = {row.position: row for row in rows}
    return sorted(
        (
            row.type,
            str(row.name),
            str(row.call_id),
            str(row.status),
            str(row.message),
            str(places[row.reply_to].data.get("id")) if row.reply_to else "",
            row.call_index,
            str(row.step_number),
            row.input_tokens,
            str(row.duration_ms),
            str(row.data.get("id")),
            str(row.data.get("duplicate_of")),
        )
        for row in rows
        if row.type != "removed"
    )
