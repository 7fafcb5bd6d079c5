"""Reading HTML: what a person would see of a page, without scripts, styles and markup; in a process of its own."""

import re
from html.parser import HTMLParser
from typing import Final

from lockstitch.apps.notebooks.document import Document, Heading
from lockstitch.apps.notebooks.reader import Limits, checked, clean
from lockstitch.apps.notebooks.readers.apart import read_apart
from lockstitch.apps.notebooks.readers.text import decode

_SKIPPED: Final = frozenset({"script", "style", "template", "noscript", "svg", "math", "iframe", "object", "select"})
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt", "fieldset"}
    | {"figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"}
    | {"nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul"}
)
_LINES: Final = frozenset({"br", "li", "tr", "dt", "dd"})
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_EMPTY: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE)
_HTML_PROCESS: Final = "lockstitch.apps.notebooks.readers.html_process"
_SPACE: Final = re.compile(r"[ \t\n\f]+")


class HtmlReader:
    """A page as it would be read aloud."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        # Whether it is text at all is known at once; a markup may be made so that a parser takes forever over it.
        text = markup_of(name, content)
        found = await read_apart(_HTML_PROCESS, name, text.encode(), limits)
        headings = [Heading(*heading) for heading in found["headings"]]
        return checked(name, Document("html", found["text"], found["title"], headings=headings), limits)


def markup_of(name: str, content: bytes) -> str:
    """The markup of a page, in the encoding that it says it is in."""
    declared = _CHARSET.search(content[:4096])
    return clean(decode(name, content, declared[1].decode() if declared else None))


def document_of(markup: str) -> Document:
    """What a person sees of a page."""
    page = _Page()
    page.feed(clean(markup))
    page.close()
    return page.document()


class _Page(HTMLParser):
    """Collects text. A markup that is wrong is read as far as it can be, as browsers do."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._length = 0
        self._skipping: str | None = None
        self._depth = 0
        self._pre = 0
        self._in_title = False
        self._title: list[str] = []
        self._heading: tuple[int, int] | None = None
        self._headings: list[tuple[int, int, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping is not None:
            self._depth += tag == self._skipping
            return
        hidden = tag not in _EMPTY and any(name == "hidden" for name, _ in attrs)
        if tag in _SKIPPED or hidden:
            self._skipping, self._depth = tag, 1
            return
        if tag == "title" and not self._length:
            self._in_title = True
        if tag in _LINES:
            self._end_line(1)
        elif tag in _BLOCKS:
            self._end_line(2)
        elif tag in ("td", "th"):
            self._add(" ")
        self._pre += tag == "pre"
        if tag in _HEADINGS:
            self._heading = (_HEADINGS[tag], self._length)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # In HTML a slash closes nothing but what is empty anyway.
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._skipping is not None:
            if tag == self._skipping:
                self._depth -= 1
                self._skipping = self._skipping if self._depth else None
            return
        if tag == "title":
            self._in_title = False
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        if tag in _HEADINGS and self._heading is not None:
            level, at = self._heading
            self._headings.append((level, at, self._length))
            self._heading = None
        if tag in _LINES:
            self._end_line(1)
        elif tag in _BLOCKS:
            self._end_line(2)

    def handle_data(self, data: str) -> None:
        if self._skipping is not None:
            return
        if self._in_title:
            self._title.append(data)
        elif self._pre:
            self._add(data)
        else:
            self._add(_SPACE.sub(" ", data))

    def document(self) -> Document:
        text = "".join(self._parts)
        headings = [
            Heading(at + len(text[at:end]) - len(text[at:end].lstrip()), level, said)
            for level, at, end in self._headings
            if (said := " ".join(text[at:end].split()))
        ]
        title = " ".join("".join(self._title).split()) or None
        return Document("html", text.rstrip(), title, headings=headings)

    def _add(self, text: str) -> None:
        if not self._pre:
            before = self._parts[-1] if self._parts else "\n"
            text = text.lstrip(" ") if before.endswith((" ", "\n")) else text
        if text:
            self._parts.append(text)
            self._length += len(text)

    def _end_line(self, ends: int) -> None:
        """As many line ends as belong here, those counted that are there already."""
        if not self._parts:
            return
        there = 0
        for part in reversed(self._parts):
            ending = len(part) - len(part.rstrip("\n"))
            there += ending
            if ending < len(part) or there >= ends:
                break
        if there < ends:
            self._parts.append("\n" * (ends - there))
            self._length += ends - there
