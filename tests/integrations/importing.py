"""Import files or generated items in the same way as the command."""

import io
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from lockstitch.backends.files.backend import FilesBackend
from lockstitch.integrations.importer import ImportSource, Report, TraceImport, open_source
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import Item
from lockstitch.model import Json, codec, format_time
from lockstitch.store import Store, open_store

COLUMNS = {"input_messages", "output_messages", "tags", "langgraph_metadata", "usage_metadata", "tool_call_requests"}
COLUMNS |= {"tool_args"}
"""Columns of the lens that contain JSON. SQLite stores it as text."""

ORDER = {
    "agent_runs": "start_time, run_id",
    "llm_calls": "run_id, step_index",
    "tool_calls": "run_id, tool_call_id, tool_response",
}


async def import_path(store: Store, source: str, path: Path, **options: bool) -> Report:
    opened = open_source(source, str(path), io.BytesIO())
    return await TraceImport(store, opened.source, **options).run(opened.sources)


async def import_bytes(store: Store, source: str, body: bytes, **options: bool) -> Report:
    """Import bytes as from a pipe."""
    opened = open_source(source, "-", io.BytesIO(body))
    return await TraceImport(store, opened.source, **options).run(opened.sources)


async def import_items(store: Store, source: str, items: Iterable[Item], **options: bool) -> Report:
    """Return items that were read before as a separate source."""
    trace_source = open_source(source, "-", io.BytesIO()).source
    return await TraceImport(store, trace_source, **options).run(
        iter([ImportSource("items", lambda on_bad, share: iter(items))])
    )


def items_of(source: str, path: Path) -> list[Item]:
    """Return all items that an integration reads from a file or a folder."""
    items: list[Item] = []
    for opened in open_source(source, str(path), io.BytesIO()).sources:
        items += opened.items(_raise, Share())
    return items


def _raise(exc: Exception) -> None:
    raise exc


async def lens_rows(store: Store, view: str) -> list[Json]:
    """Return a table of the lens langsmith with parsed JSON."""
    answer = await store.sql(
        f"SELECT * FROM {view} ORDER BY {ORDER[view]}", lens="langsmith", limit=100_000, seconds=60
    )
    assert not answer.truncated
    return [{name: _read(name, value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]


async def lens(store: Store) -> dict[str, list[Json]]:
    """Return the three tables. A file store is copied for every query, so it is copied once here."""
    if isinstance(store._backend, FilesBackend):
        async with open_store("sqlite:///:memory:") as copy:
            await store.copy_to(copy)
            return await lens(copy)
    return {view: await lens_rows(store, view) for view in ORDER}


def _read(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    return codec.loads(value) if name in COLUMNS and isinstance(value, str) else value
