"""Tool results in a smaller form."""

from collections.abc import Callable
from typing import Any, Final, cast

from lockstitch.records import Json, Message
from lockstitch.records.message import blocks
from lockstitch.runtime.tokens import estimate_block

PLACEHOLDER: Final = "[An old tool result was removed here to make room.]"


def placeholder(block: Json) -> Json:
    """A result whose content is gone, unless that is no larger; whether it was an error is still to be seen."""
    empty = {**block, "content": PLACEHOLDER}
    return empty if estimate_block(empty) < estimate_block(block) else block


def truncated(block: Json, longest: int) -> Json:
    """A result whose texts have at most `longest` characters of what they had."""
    content: Any = block.get("content")
    short = content
    if isinstance(content, str):
        short = _cut(content, longest)
    elif isinstance(content, list):
        short = [_cut_block(part, longest) for part in cast("list[Any]", content)]
    return block if short == content else {**block, "content": short}


def with_results(message: Message, change: Callable[[Json], Json]) -> Message:
    """A message whose results are changed, the last one first, and whose other blocks are not."""
    parts = [change(block) if block.get("type") == "tool_result" else block for block in reversed(blocks(message))]
    return {**message, "content": parts[::-1]}


def _cut_block(part: Any, longest: int) -> Any:
    if not isinstance(part, dict):
        return part
    block = cast("Json", part)
    text: Any = block.get("text")
    return {**block, "text": _cut(text, longest)} if isinstance(text, str) else block


def _cut(text: str, longest: int) -> str:
    cut = f"{text[:longest]}… [{len(text) - longest} more characters were removed]"
    return cut if len(cut) < len(text) else text
