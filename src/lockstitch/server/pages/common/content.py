"""JSON as highlighted tokens, lines of messages, and media of stitches."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from lockstitch.model import Json, Stitch, codec, text_of
from lockstitch.model.message import blocks
from lockstitch.server.pages.common.markdown import plain_text

WIDTH: Final = 88
"""Maximum length of a JSON value that stays on one line."""

DEEPEST: Final = 40
"""Number of levels that are broken into lines. Deeper values stay on one line."""

CONTENT_LIMIT: Final = 20_000
"""Maximum number of characters on a page. A link shows the full text."""

JsonToken = tuple[str, str]
"""A CSS class (`k` for keys, `p` for punctuation, or empty) and the text."""


def json_tokens(value: Any, limit: int = CONTENT_LIMIT) -> list[JsonToken]:
    """Return a JSON value as tokens. Strings are shown as JSON, so the result is unambiguous."""
    tokens: list[JsonToken] = []
    size = 0
    for kind, text in _json_tokens(value, 0):
        size += len(text)
        if size > limit:
            tokens.append((kind, text[: max(0, len(text) - (size - limit))]))
            tokens.append(("p", " …"))
            break
        tokens.append((kind, text))
    return tokens


def _json_tokens(value: Any, level: int) -> Iterator[JsonToken]:
    if not value or not isinstance(value, dict | list):
        yield ("", codec.dumps(value).decode())
        return
    line = codec.dumps(cast("Any", value)).decode() if level >= DEEPEST or _small(value) else None
    if level >= DEEPEST and line is not None:
        yield ("", line)
        return
    flat = line is not None and len(line) + level * 2 <= WIDTH
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    inner = "" if flat else "\n" + "  " * (level + 1)
    items: list[tuple[str | None, Any]]
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in cast("dict[Any, Any]", value).items()]
    else:
        items = [(None, item) for item in cast("list[Any]", value)]
    yield ("", opening + inner)
    for number, (key, element) in enumerate(items):
        if number:
            yield ("p", ", " if flat else ",")
            if not flat:
                yield ("", inner)
        if key is not None:
            yield ("k", codec.dumps(key).decode())
            yield ("p", ": ")
        yield from _json_tokens(element, level + 1)
    yield ("", closing if flat else "\n" + "  " * level + closing)


def _small(value: Any) -> bool:
    """True if the value may fit on a line. Does not serialise the value."""
    left = WIDTH
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            left -= len(item) + 2
        elif isinstance(item, dict):
            known = cast("dict[Any, Any]", item)
            left -= 2 + sum(len(str(key)) + 4 for key in list(known)[:WIDTH])
            waiting += list(known.values())[:WIDTH]
        elif isinstance(item, list):
            known_list = cast("list[Any]", item)
            left -= 2 + len(known_list)
            waiting += known_list[:WIDTH]
        else:
            left -= 1
        if left < 0:
            return False
    return True


def arguments(value: Any, limit: int = 160) -> str:
    """Return the input of a call on one line: names and values without braces."""
    if not isinstance(value, dict):
        return cut(codec.dumps(value).decode(), limit) if value else ""
    line = ""
    for key, item in cast("dict[str, Any]", value).items():
        shown = item[:limit] if isinstance(item, str) else item
        line += f"{', ' if line else ''}{key} {codec.dumps(shown).decode()}"
        if len(line) > limit:
            return cut(line, limit)
    return line


def cut(text: str, limit: int) -> str:
    """Return the text, cut at `limit` characters with an ellipsis."""
    return text if len(text) <= limit else text[:limit].rstrip() + "…"


def one_line(text: str, limit: int = 200) -> str:
    """Return the start of a text without line breaks."""
    return cut(" ".join(text[: limit * 4].split()), limit)


def answer_line(text: str, limit: int = 200) -> str:
    """Return the start of an answer without line breaks. Of a JSON object: its names and simple values."""
    stripped = text.strip().removeprefix("```json").removesuffix("```").strip()
    if not stripped.startswith("{") or len(stripped) > CONTENT_LIMIT * 10:
        return one_line(plain_text(text[: limit * 4]), limit)
    try:
        value = cast("dict[str, Any]", codec.loads(stripped))
    except ValueError:
        return one_line(text, limit)
    messages = ((one_line(name.replace("_", " "), 40), _value_text(item)) for name, item in value.items())
    return one_line(" · ".join(f"{name} {text}" for name, text in messages if text), limit) or one_line(text, limit)


def _value_text(value: Any) -> str:
    """Return a simple value as text, or the length of a list or object."""
    if isinstance(value, dict | list):
        return f"{len(cast('list[Any]', value)):,}"
    return one_line(value) if isinstance(value, str) else "" if value is None else codec.dumps(value).decode()


def json_text(value: Any) -> str:
    return codec.dumps(value).decode()


def message_line(message: Json) -> str:
    """Return a message on one line: texts, tool calls and tool results."""
    lines: list[str] = []
    for block in blocks(message)[:20]:
        match block.get("type"):
            case "text":
                lines.append(one_line(str(block.get("text"))))
            case "tool_use":
                lines.append(f"{block.get('name')}({arguments(block.get('input'), 60)})")
            case "tool_result":
                content: Any = block.get("content")
                lines.append("result: " + one_line(content if isinstance(content, str) else text_of(block), 80))
            case kind:
                lines.append(f"[{kind}]")
    return " ".join(lines)


SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that are shown as images. SVG can contain scripts, so it is only downloaded."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=3600",
}


@dataclass(frozen=True, slots=True)
class Medium:
    """An image or document in a stitch: its number, the index of its block, and its declared media type."""

    number: int
    block: int
    type: str
    data: str

    @property
    def shown(self) -> bool:
        return self.type in SHOWN

    @property
    def size(self) -> int:
        return len(self.data) * 3 // 4

    def content(self) -> bytes:
        """Return the decoded bytes, or no bytes if the data is not base64."""
        try:
            return base64.b64decode(self.data, validate=False)
        except (binascii.Error, ValueError):
            return b""


def media_of(stitch: Stitch) -> list[Medium]:
    """Return the media of a stitch in order."""
    mediums: list[Medium] = []
    content: Any = (stitch.message or {}).get("content")
    for number, block in enumerate(cast("list[Any]", content) if isinstance(content, list) else []):
        _collect(block, number, mediums)
    return mediums


def _collect(block: Any, place: int, mediums: list[Medium]) -> None:
    if not isinstance(block, dict):
        return
    known = cast("Json", block)
    source: Any = known.get("source")
    if known.get("type") in ("image", "document") and isinstance(source, dict):
        value = cast("Json", source)
        if value.get("type") == "base64" and isinstance(value.get("data"), str):
            mediums.append(Medium(len(mediums), place, str(value.get("media_type") or "").lower(), value["data"]))
    inner: Any = known.get("content")
    for item in cast("list[Any]", inner) if isinstance(inner, list) else []:
        _collect(item, place, mediums)
