"""What all providers do with the content of messages, whichever vocabulary theirs is."""

import json
import operator
from collections.abc import Sequence
from typing import Any, cast

from lockstitch.errors import Refused
from lockstitch.records import Json, Message, codec
from lockstitch.records.message import blocks
from lockstitch.runtime.provider import INVALID_JSON, Piece, PieceKind


def parse_input(text: str) -> Json:
    """A call's arguments; the INVALID_JSON marker when they are no JSON object or cannot be kept exactly."""
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text)
        codec.dumps(value)
    except (ValueError, RecursionError, Refused):
        return {INVALID_JSON: whole(text)}
    return cast("Json", value) if isinstance(value, dict) else {INVALID_JSON: whole(text)}


def write_input(value: Any) -> str:
    """Arguments as the text of a call: what the model wrote when that was no JSON, else compact JSON."""
    if isinstance(value, dict) and set(cast("Json", value)) == {INVALID_JSON}:
        return str(cast("Json", value)[INVALID_JSON])
    return codec.dumps(value).decode()


def whole(text: str) -> str:
    """Text whose surrogates, which a stream may bring one by one, are joined; what stays alone is replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def with_unique_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a request so that no two calls in it have the same id.

    Servers that number their calls from 0 in each response repeat ids, and the record keeps them. The Anthropic API
    rejects a request with a repeated id, and no API allows it within one response. The first call keeps its id. Later
    calls get a number behind it, and so do their results. Only the messages before a call decide about its id, so the
    prefix of a conversation stays the same while it grows.
    """
    counts: dict[str, int] = {}
    used: set[str] = set()
    given: dict[str, list[str]] = {}
    """The new ids of the last calls with an id whose results are still to come."""
    return [_renamed(message, counts, used, given) for message in messages]


def _renamed(message: Message, counts: dict[str, int], used: set[str], given: dict[str, list[str]]) -> Message:
    content: Any = message.get("content")
    if not isinstance(content, list):
        return message
    parts: list[Any] = []
    fresh: set[str] = set()
    for part in cast("list[Any]", content):
        block = cast("Json", part) if isinstance(part, dict) else {}
        if block.get("type") == "tool_use":
            known = new = str(block.get("id"))
            while new in used:
                counts[known] = counts.get(known, 1) + 1
                new = f"{known}_{counts[known]}"
            used.add(new)
            given[known] = [*given[known], new] if known in fresh else [new]
            fresh.add(known)
            parts.append(part if new == known else {**block, "id": new})
        elif block.get("type") == "tool_result" and (names := given.get(str(block.get("tool_use_id")))):
            new = names.pop(0) if len(names) > 1 else names[0]
            parts.append(part if new == block["tool_use_id"] else {**block, "tool_use_id": new})
        else:
            parts.append(part)
    return message if all(map(operator.is_, parts, cast("list[Any]", content))) else {**message, "content": parts}


def piece_of(block: Json) -> Piece | None:
    """The piece that tells of a complete block, if it is a call or a result."""
    kind = str(block.get("type", ""))
    told: PieceKind
    if kind == "tool_use":
        told = "tool_call"
    elif kind.endswith("tool_use"):
        told = "server_tool_call"
    elif kind.endswith("tool_result"):
        told = "server_tool_result"
    else:
        return None
    return Piece(told, data=block)


def result_parts(block: Json) -> list[Json]:
    """The content of a tool_result as blocks; a value that is neither text nor blocks is its JSON."""
    content: Any = block.get("content")
    if content is None or content == "":
        return []
    if isinstance(content, str) or _are_blocks(content):
        return blocks({"content": content})
    return [{"type": "text", "text": codec.dumps(content).decode()}]


def _are_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) for part in cast("list[Any]", content))


def document_text(block: Json) -> str | None:
    """The text of a document that is text, under its title; None of any other document."""
    source: Json = block.get("source") or {}
    if source.get("type") == "text":
        text = str(source.get("data", ""))
    elif source.get("type") == "content":
        parts = blocks({"content": source.get("content")})
        text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    else:
        return None
    title = block.get("title")
    return f"{title}\n\n{text}" if title else text


def data_url(source: Json) -> str:
    return f"data:{source.get('media_type', 'application/octet-stream')};base64,{source.get('data', '')}"
