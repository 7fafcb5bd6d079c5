"""Rows of a lens as Python values that are equal for all databases."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from lockstitch.model import Json, codec, format_time
from lockstitch.store import Store

JSON = {
    *("messages", "tool_schemas", "tool_names", "server_tools", "beta_headers", "api_kwargs", "file_registry"),
    *("pending_frontend_tools", "pending_backend_results", "conversation_history", "usage", "generated_files"),
    *("cost", "extras", "action_data", "messages_snapshot", "tasks", "result", "pending_child_results"),
    *("llm_request", "llm_response", "tool_input", "tool_output"),
}
"""Columns that contain JSON, which is text in SQLite."""

BOOLEAN = {"awaiting_frontend_tools", "stream_meta_history_and_tool_results"}


async def look(store: Store, lens: str, sql: str, limit: int = 10_000) -> list[Json]:
    """Return the rows of a query as dicts."""
    answer = await store.sql(sql, lens=lens, limit=limit, seconds=60)
    assert not answer.truncated
    return [{name: plain(name, value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]


def plain(name: str, value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Decimal):
        return float(value)
    if name in JSON and isinstance(value, str):
        return codec.loads(value)
    return bool(value) if name in BOOLEAN else value
