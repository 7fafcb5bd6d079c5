"""What all providers do with the content of messages, whichever vocabulary theirs is."""

import json
from typing import Any, cast

from lockstitch.errors import Refused
from lockstitch.records import Json, codec
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
