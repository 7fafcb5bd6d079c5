"""Call tools without a run."""

from datetime import UTC, datetime
from typing import Any

from lockstitch.engine.ports.tool import Tool, ToolContext
from lockstitch.model import Thread, new_id
from lockstitch.store import open_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THREAD = Thread(created_at=NOW, updated_at=NOW)
CONTEXT = ToolContext(
    thread=THREAD, run_id=new_id(), call_id="call-1", step=1, store=open_store("sqlite:///:memory:"), deps="deps"
)


async def call(tool: Tool, **arguments: Any) -> Any:
    assert tool.call is not None
    return await tool.call(CONTEXT, arguments)
