"""Plain text and Markdown."""

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
"""The share of control characters above which bytes are taken for something else than text."""


class TextReader:
    """Text as it stands."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        return checked(name, Document("text", clean(decode(name, content))), limits)


def decode(name: str, content: bytes, charset: str | None = None) -> str:
    """The text that these bytes are. Refused when they are none."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decoded(name, content, encoding)
    head = content[:_LOOKED_AT]
    if b"\x00" in content or sum(byte in _ODD for byte in head) > _MOST_ODD * len(head):
        raise _no_text(name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        # Before UTF-8 there was this, and old files are still in it.
        return _decoded(name, content, charset or "cp1252")


def _decoded(name: str, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except (UnicodeError, LookupError) as exc:
        raise _no_text(name) from exc


def _no_text(name: str) -> Refused:
    return Refused(f"{name} is no text: it may be a picture, a program or an archive. Nothing was added.")


_HASHES: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)$")
_UNDER: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_NO_HEADING: Final = re.compile(r"\s*(?:[>*+-]|\d+[.)]|\||$)")


class MarkdownReader:
    """Markdown as it was written."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        text = clean(decode(name, content))
        headings = headings_of(text)
        title = headings[0].text if headings and headings[0].level == 1 else None
        return checked(name, Document("markdown", text, title, headings=headings), limits)


def headings_of(text: str) -> list[Heading]:
    """The headings of a Markdown text; what stands in a block of code is none."""
    headings: list[Heading] = []
    fence, before, before_at, at = "", "", 0, 0
    for line in text.split("\n"):
        fenced = _FENCE.match(line)
        if fence:
            closes = fenced and fenced[1].startswith(fence) and not fenced[2].strip()
            fence, before = ("" if closes else fence), ""
        elif fenced:
            fence, before = fenced[1], ""
        elif (marked := _HASHES.match(line)) and (said := _said(marked[2])):
            headings.append(Heading(at, len(marked[1]), said))
            before = ""
        elif (under := _UNDER.match(line)) and before and not _NO_HEADING.match(before):
            headings.append(Heading(before_at, 1 if under[1][0] == "=" else 2, before.strip()))
            before = ""
        else:
            before, before_at = line, at
        at += len(line) + 1
    return headings


def _said(heading: str) -> str:
    """What a heading says, without the marks that may close it after a space."""
    text = heading.strip()
    open_ = text.rstrip("#")
    return open_.rstrip() if open_ != open_.rstrip() or not open_ else text
