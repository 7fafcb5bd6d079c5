"""`searched_text`: the text of a stitch that a search finds."""

from collections.abc import Iterator
from typing import Any, Final, cast

from lockstitch.model.message import blocks
from lockstitch.model.record import Json
from lockstitch.model.stitch import ERROR_TYPES

CALL_CHARS: Final = 8_192
"""Maximum number of characters of one tool call, or of one tool result, that are searched."""


def searched_text(type: str, message: Json | None, data: Json | None) -> str:
    """Return the texts of a message, the name and the arguments of its tool calls, tool results, or an error.

    The function `stitch_text` of PostgreSQL has the same rules.

    Args:
        type: Type of the stitch.
        message: Message, or content block.
        data: Data of the stitch, of errors without a message.
    """
    if message is None:
        problem = (data or {}).get("message") if type in ERROR_TYPES else None
        return problem if isinstance(problem, str) else ""
    parts = [message] if "type" in message and "role" not in message else blocks(message)
    return " ".join(text for text in map(_block_text, parts) if text)


def _block_text(block: Json) -> str:
    kind = str(block.get("type", ""))
    if kind == "text":
        return str(block.get("text", ""))
    if kind.endswith("tool_use"):
        words = " ".join(_values(block.get("input")))[:CALL_CHARS]
        return f"{block.get('name', '')} {words}"
    if kind.endswith("tool_result"):
        return " ".join(str(part.get("text", "")) for part in blocks(block))[:CALL_CHARS]
    return ""


def _values(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value."""
    # Not recursive: arguments may be nested deeply.
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += reversed(list(cast("Json", item).values()))
        elif isinstance(item, list):
            waiting += reversed(cast("list[Any]", item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield str(item)
