"""Messages and content blocks; the exact model request."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from lockstitch.model import codec
from lockstitch.model.record import Json

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


def build(parameters: Json, system: str | None, tools: Sequence[Json], messages: Sequence[Message]) -> Json:
    """The request as one JSON value; its key order is part of its bytes."""
    request: dict[str, Any] = dict(parameters)
    if system is not None:
        request["system"] = system
    if tools:
        request["tools"] = list(tools)
    request["messages"] = list(messages)
    return request


def reference(parameters: Json, system_sha256: str | None, tools_sha256: str | None, request: Json) -> Json:
    """What an llm_call keeps of its request, under data["request"]: all but the texts and the messages."""
    return {
        "sha256": codec.digest(request),
        "parameters": parameters,
        "system": system_sha256,
        "tools": tools_sha256,
    }
