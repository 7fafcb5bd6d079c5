"""Functions on messages and content blocks, and `build` for the exact request to a model."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from lockstitch.model import codec
from lockstitch.model.record import Json

Message = Json
"""A message as the model gets it: `{"role": …, "content": text or blocks}`."""


def blocks(message: Message) -> list[Json]:
    """Return the content blocks of a message. Plain text becomes one text block.

    Args:
        message: The message.
    """
    content: Any = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return cast("list[Json]", [block for block in cast("list[Any]", content) if isinstance(block, dict)])


def text_of(message: Message | None) -> str:
    """Return the text of all text blocks of a message, joined. Empty if there is no message.

    Args:
        message: The message, or None.
    """
    return _joined(blocks(message)) if message else ""


def answer_of(message: Message | None) -> str:
    """Return the text after the last tool block: the answer in a final response.

    Args:
        message: The message, or None.
    """
    if not message:
        return ""
    parts = blocks(message)
    last_tool = max((place for place, block in enumerate(parts) if _is_tool(block)), default=-1)
    return _joined(parts[last_tool + 1 :])


def tool_uses(message: Message | None) -> list[Json]:
    """Return the `tool_use` blocks of a response, in order.

    Args:
        message: The message, or None.
    """
    return [block for block in blocks(message) if block.get("type") == "tool_use"] if message else []


def tool_result(call_id: str, content: Any, *, is_error: bool = False) -> Json:
    """Return the `tool_result` block that answers a call.

    Args:
        call_id: Id of the call.
        content: Content of the result: a text, or a list of content blocks.
        is_error: True if the call failed.
    """
    block: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {**block, "is_error": True} if is_error else block


def user(content: Any) -> Message:
    """Return a message of the role `user`."""
    return {"role": "user", "content": content}


def _joined(parts: Iterable[Json]) -> str:
    return "".join(str(block.get("text", "")) for block in parts if block.get("type") == "text")


def _is_tool(block: Json) -> bool:
    kind = str(block.get("type", ""))
    return kind.endswith(("tool_use", "tool_result"))


def build(parameters: Json, system: str | None, tools: Sequence[Json], messages: Sequence[Message]) -> Json:
    """Return a model request as one JSON value. Its key order is part of its bytes, so of its digest."""
    request: dict[str, Any] = dict(parameters)
    if system is not None:
        request["system"] = system
    if tools:
        request["tools"] = list(tools)
    request["messages"] = list(messages)
    return request


def reference(parameters: Json, system_sha256: str | None, tools_sha256: str | None, request: Json) -> Json:
    """Return the reference to a request that an `llm_call` stores in `data["request"]`.

    It contains the parameters, the digest of the whole request and the digests of its texts, but neither texts nor
    messages.
    """
    return {
        "sha256": codec.digest(request),
        "parameters": parameters,
        "system": system_sha256,
        "tools": tools_sha256,
    }
