"""Reading Markdown: the text as it was written, and where its headings stand."""

import re
from typing import Final

from lockstitch.apps.notebooks.document import Document, Heading
from lockstitch.apps.notebooks.reader import Limits, checked, clean
from lockstitch.apps.notebooks.readers.text import decode

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
    found: list[Heading] = []
    fence, before, before_at, at = "", "", 0, 0
    for line in text.split("\n"):
        fenced = _FENCE.match(line)
        if fence:
            closes = fenced and fenced[1].startswith(fence) and not fenced[2].strip()
            fence, before = ("" if closes else fence), ""
        elif fenced:
            fence, before = fenced[1], ""
        elif (marked := _HASHES.match(line)) and (said := _said(marked[2])):
            found.append(Heading(at, len(marked[1]), said))
            before = ""
        elif (under := _UNDER.match(line)) and before and not _NO_HEADING.match(before):
            found.append(Heading(before_at, 1 if under[1][0] == "=" else 2, before.strip()))
            before = ""
        else:
            before, before_at = line, at
        at += len(line) + 1
    return found


def _said(heading: str) -> str:
    """What a heading says, without the marks that may close it after a space."""
    said = heading.strip()
    open_ = said.rstrip("#")
    return open_.rstrip() if open_ != open_.rstrip() or not open_ else said
