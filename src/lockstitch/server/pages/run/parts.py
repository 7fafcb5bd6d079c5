"""What tabs of the panel are made of: small pieces that the template knows how to draw, each by its kind."""

from typing import Any, Final

from lockstitch.records import Json, Message, codec
from lockstitch.records.message import blocks
from lockstitch.server.pages.run.texts import step

Part = Json
"""A piece with its kind and what that needs."""

LONGEST: Final = 4_000
"""Characters of a text that are shown before one asks for all."""


def text(
    caption: str, value: str, pointer: str, *, says: bool = False, of: str = "stitch", at: str | None = None
) -> Part:
    """A text; with `says` as somebody said it, else as code. `at` is where it stands, if that is another row."""
    more = len(value) - LONGEST if len(value) > LONGEST else 0
    shown = value[:LONGEST] if more else value
    return {
        "kind": "text",
        "caption": caption,
        "text": shown,
        "more": more,
        "says": says,
        "of": of,
        "pointer": pointer,
        "at": at,
    }


def data(caption: str, value: Any, pointer: str, *, of: str = "stitch", at: str | None = None) -> Part:
    """Any JSON value; a text stands as it is."""
    if isinstance(value, str):
        return text(caption, value, pointer, of=of, at=at)
    size = len(codec.dumps(value))
    return {
        "kind": "json",
        "caption": caption,
        "value": value,
        "limit": LONGEST,
        "more": max(0, size - LONGEST),
        "of": of,
        "pointer": pointer,
        "at": at,
    }


def facts(known: list[tuple[str, Any]]) -> Part:
    return {"kind": "facts", "facts": [(name, value) for name, value in known if value not in (None, "")]}


def note(title: str, says: str = "", *, failed: bool = True) -> Part:
    return {"kind": "note", "title": title, "text": says, "failed": failed}


def message_parts(message: Message | None, pointer: str, *, of: str = "stitch", at: str | None = None) -> list[Part]:
    """A message block by block: thoughts, texts, calls, results. A bare block is one of its own."""
    if not message:
        return []
    content: Any = message.get("content")
    below = step(pointer, "content")
    if isinstance(content, str):
        return [text("", content, below, says=message.get("type") != "tool_result", of=of, at=at)] if content else []
    if not isinstance(content, list):
        return [data("", message, pointer, of=of, at=at)]
    return [
        _block(block, step(below, number), result=message.get("type") == "tool_result", of=of, at=at)
        for number, block in enumerate(blocks(message))
    ]


def _block(block: Json, pointer: str, *, result: bool, of: str, at: str | None) -> Part:
    match block:
        case {"type": "text", "text": str(said)}:
            return text("", said, step(pointer, "text"), says=not result, of=of, at=at)
        case {"type": "thinking", "thinking": str(said)}:
            return {**text("Thought", said, step(pointer, "thinking"), of=of, at=at), "kind": "thought"}
        case {"type": "tool_use", "name": name, "input": given, **rest}:
            return data(f"tool_use {name}, {rest.get('id')}", given, step(pointer, "input"), of=of, at=at)
        case {"type": "tool_result", "content": str(said), **rest}:
            return text(f"tool_result, {rest.get('tool_use_id')}", said, step(pointer, "content"), of=of, at=at)
        case _:
            return data(str(block.get("type") or ""), block, pointer, of=of, at=at)
