"""Readers of plain text and Markdown."""

import codecs
import re
from typing import Final

from lockstitch import Refused
from lockstitch.apps.notebooks.readers.reader import Document, Heading, Limits, checked, clean

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ODD: Final = frozenset(range(32)) - {9, 10, 12, 13, 27}
_LOOKED_AT: Final = 65_536
_MOST_ODD: Final = 0.01
"""Share of control characters above which bytes are not text."""


class TextReader:
    """Reads plain text."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        return checked(name, Document("text", clean(decode(name, content))), limits)


def decode(name: str, content: bytes, charset: str | None = None) -> str:
    """Decode bytes. Raises `Refused` if they are not text."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decoded(name, content, encoding)
    head = content[:_LOOKED_AT]
    if b"\x00" in content or sum(byte in _ODD for byte in head) > _MOST_ODD * len(head):
        raise _no_text(name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        # Old files often have this encoding.
        return _decoded(name, content, charset or "cp1252")


def _decoded(name: str, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except (UnicodeError, LookupError) as exc:
        raise _no_text(name) from exc


def _no_text(name: str) -> Refused:
    return Refused(f"{name} is not text. It may be an image, a program or an archive. Nothing was added.")


_HASHES: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)$")
_UNDER: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_NO_HEADING: Final = re.compile(r"\s*(?:[>*+-]|\d+[.)]|\||$)")


class MarkdownReader:
    """Reads Markdown. The text keeps its markup."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        text = clean(decode(name, content))
        headings = headings_of(text)
        title = headings[0].text if headings and headings[0].level == 1 else None
        return checked(name, Document("markdown", text, title, headings=headings), limits)


def headings_of(text: str) -> list[Heading]:
    """Return the headings of a Markdown text. Lines in code blocks are not headings."""
    headings: list[Heading] = []
    fence, before, before_at, at = "", "", 0, 0
    for line in text.split("\n"):
        fenced = _FENCE.match(line)
        if fence:
            closes = fenced and fenced[1].startswith(fence) and not fenced[2].strip()
            fence, before = ("" if closes else fence), ""
        elif fenced:
            fence, before = fenced[1], ""
        elif (marked := _HASHES.match(line)) and (heading := _heading_text(marked[2])):
            headings.append(Heading(at, len(marked[1]), heading))
            before = ""
        elif (under := _UNDER.match(line)) and before and not _NO_HEADING.match(before):
            headings.append(Heading(before_at, 1 if under[1][0] == "=" else 2, before.strip()))
            before = ""
        else:
            before, before_at = line, at
        at += len(line) + 1
    return headings


def _heading_text(heading: str) -> str:
    """Return the text of a heading without closing number signs."""
    text = heading.strip()
    stripped = text.rstrip("#")
    return stripped.rstrip() if stripped != stripped.rstrip() or not stripped else text
