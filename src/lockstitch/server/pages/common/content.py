"""JSON as highlighted tokens, Markdown as blocks, and media of stitches."""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from lockstitch.model import Json, Stitch, codec, text_of
from lockstitch.model.message import blocks

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
        return one_line(text, limit)
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


_FENCE: Final = re.compile(r"^ {0,3}(```+|~~~+)")
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}\s+(.*)$")
_BULLET: Final = re.compile(r"^ {0,3}[-*+]\s+(.*)$")
_NUMBER: Final = re.compile(r"^ {0,3}(\d{1,9})[.)]\s+(.*)$")
_INLINE: Final = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|\*\*(?P<bold>[^*\n]+)\*\*"
    r"|(?<![\w*])\*(?P<soft>[^*\s][^*\n]*?)\*(?![\w*])"
    r"|\[(?P<name>[^\[\]\n]{1,500})\]\((?P<href>https?://[^\s()<>\"']{1,2000})\)"
    r"|(?P<url>https?://[^\s<>\"'`()\[\]]{1,2000}[^\s<>\"'`()\[\].,;:!?])"
)

MarkdownInline = tuple[str, str, str]
"""Kind (text, code, bold, soft, link, or cite, which apps add), text, and link target."""


@dataclass(slots=True)
class MarkdownBlock:
    """A paragraph (p), heading (h), list (ul, ol) of items, or code (pre)."""

    kind: str
    """`p`, `h`, `ul`, `ol` or `pre`."""
    items: list[list[MarkdownInline]] = field(default_factory=list[list[MarkdownInline]])
    """Text of a paragraph or heading as one item, or the items of a list."""
    text: str = ""
    """Text of a code block."""
    start: int = 1
    """First number of an ordered list."""


def markdown_blocks(text: str) -> list[MarkdownBlock]:
    """Return a Markdown text as blocks, in one pass over its lines."""
    blocks: list[MarkdownBlock] = []
    paragraph: list[str] = []
    lines = text.split("\n")
    place = 0

    def end_paragraph() -> None:
        if paragraph:
            blocks.append(MarkdownBlock("p", [inlines("\n".join(paragraph))]))
            paragraph.clear()

    while place < len(lines):
        line = lines[place]
        place += 1
        fence = _FENCE.match(line)
        if fence:
            end_paragraph()
            code: list[str] = []
            while place < len(lines) and not lines[place].strip().startswith(fence[1]):
                code.append(lines[place])
                place += 1
            place += 1
            blocks.append(MarkdownBlock("pre", text="\n".join(code)))
        elif not line.strip():
            end_paragraph()
        elif heading := _HEADING.match(line):
            end_paragraph()
            # A pattern for the closing marks would backtrack quadratically.
            blocks.append(MarkdownBlock("h", [inlines(heading[1].rstrip("#").rstrip())]))
        elif (bullet := _BULLET.match(line)) or (_NUMBER.match(line) and not paragraph):
            end_paragraph()
            kind, number = ("ul", None) if bullet else ("ol", _NUMBER.match(line))
            value = bullet[1] if bullet else number[2] if number else ""
            if blocks and blocks[-1].kind == kind and lines[place - 2].strip():
                blocks[-1].items.append(inlines(value))
            else:
                blocks.append(MarkdownBlock(kind, [inlines(value)], start=int(number[1]) if number else 1))
        elif blocks and blocks[-1].kind in ("ul", "ol") and line.startswith("  ") and not paragraph:
            blocks[-1].items[-1] += [("text", "\n", ""), *inlines(line.strip())]
        else:
            paragraph.append(line)
    end_paragraph()
    return blocks


def inlines(text: str) -> list[MarkdownInline]:
    """Return the inline nodes of a text. Each alternative of the pattern is bounded, so the work is linear."""
    matches: list[MarkdownInline] = []
    place = 0
    for match in _INLINE.finditer(text):
        if match.start() > place:
            matches.append(("text", text[place : match.start()], ""))
        place = match.end()
        kind = str(match.lastgroup)
        if kind == "href":
            matches.append(("link", match["name"], match["href"]))
        elif kind == "url":
            matches.append(("link", match["url"], match["url"]))
        else:
            matches.append((kind, match[kind], ""))
    if place < len(text):
        matches.append(("text", text[place:], ""))
    return matches


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
