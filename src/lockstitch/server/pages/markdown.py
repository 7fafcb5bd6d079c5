"""Markdown as nodes that a template prints one by one, each escaped: paragraphs, headings, lists, code, bold, emphasis
and links to http. Whatever else a text holds, HTML among it, is text. static/markdown.js does the same in a browser."""

import re
from dataclasses import dataclass, field
from typing import Final

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

Inline = tuple[str, str, str]
"""What it is (text, code, bold, soft or link, and cite, which apps put in), its text, and where a link leads."""


@dataclass(slots=True)
class Block:
    """A paragraph (p), heading (h), list (ul, ol) of items, or code (pre)."""

    kind: str
    items: list[list[Inline]] = field(default_factory=list[list[Inline]])
    text: str = ""
    start: int = 1


def markdown_blocks(text: str) -> list[Block]:
    """A text as blocks, in one pass over its lines."""
    found: list[Block] = []
    paragraph: list[str] = []
    lines = text.split("\n")
    place = 0

    def end_paragraph() -> None:
        if paragraph:
            found.append(Block("p", [inlines("\n".join(paragraph))]))
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
            found.append(Block("pre", text="\n".join(code)))
        elif not line.strip():
            end_paragraph()
        elif heading := _HEADING.match(line):
            end_paragraph()
            # A pattern that also skips the closing marks would try each length of them at each character.
            found.append(Block("h", [inlines(heading[1].rstrip("#").rstrip())]))
        elif (bullet := _BULLET.match(line)) or (_NUMBER.match(line) and not paragraph):
            end_paragraph()
            kind, number = ("ul", None) if bullet else ("ol", _NUMBER.match(line))
            said = bullet[1] if bullet else number[2] if number else ""
            if found and found[-1].kind == kind and lines[place - 2].strip():
                found[-1].items.append(inlines(said))
            else:
                found.append(Block(kind, [inlines(said)], start=int(number[1]) if number else 1))
        elif found and found[-1].kind in ("ul", "ol") and line.startswith("  ") and not paragraph:
            found[-1].items[-1] += [("text", "\n", ""), *inlines(line.strip())]
        else:
            paragraph.append(line)
    end_paragraph()
    return found


def inlines(text: str) -> list[Inline]:
    """Return the inline nodes of a text. Each alternative of the pattern is bounded, so the work is linear."""
    found: list[Inline] = []
    place = 0
    for match in _INLINE.finditer(text):
        if match.start() > place:
            found.append(("text", text[place : match.start()], ""))
        place = match.end()
        kind = str(match.lastgroup)
        if kind == "href":
            found.append(("link", match["name"], match["href"]))
        elif kind == "url":
            found.append(("link", match["url"], match["url"]))
        else:
            found.append((kind, match[kind], ""))
    if place < len(text):
        found.append(("text", text[place:], ""))
    return found
