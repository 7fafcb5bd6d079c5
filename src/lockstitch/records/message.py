"""Messages: {role, content}, where content is a text or a list of blocks."""

from collections.abc import Iterable
from typing import Any, cast

from lockstitch.records.record import Json

Message = Json


def blocks(message: Message) -> list[Json]:
    """The blocks of a message; a plain text is one text block."""
    content: Any = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [cast("Json", block) for block in cast("list[Any]", content) if isinstance(block, dict)]


def text_of(message: Message | None) -> str:
    """All text of a message, its parts joined."""
    return _joined(blocks(message)) if message else ""


def answer_of(message: Message | None) -> str:
    """The text after the last tool block: what a final response says."""
    if not message:
        return ""
    parts = blocks(message)
    last_tool = max((place for place, block in enumerate(parts) if _is_tool(block)), default=-1)
    return _joined(parts[last_tool + 1 :])


def tool_uses(message: Message | None) -> list[Json]:
    """The calls a response asks the client to make, in order."""
    return [block for block in blocks(message) if block.get("type") == "tool_use"] if message else []


def tool_result(call_id: str, content: Any, *, is_error: bool = False) -> Json:
    """The bare block that answers a call."""
    block: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {**block, "is_error": True} if is_error else block


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def _joined(parts: Iterable[Json]) -> str:
    return "".join(str(block.get("text", "")) for block in parts if block.get("type") == "text")


def _is_tool(block: Json) -> bool:
    kind = str(block.get("type", ""))
    return kind.endswith(("tool_use", "tool_result"))
