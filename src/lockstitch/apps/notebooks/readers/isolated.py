"""Readers of HTML and PDF, which parse in a subprocess with limits.

The subprocess gets the limits as arguments and the bytes on standard input. It writes JSON to standard output.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any, Final

from lockstitch import Refused
from lockstitch.apps.notebooks.readers.reader import Document, Heading, Limits, checked, clean
from lockstitch.apps.notebooks.readers.text import decode
from lockstitch.ext import Json, codec

_PROCESS: Final = "lockstitch.apps.notebooks.readers.isolated_process"


async def read_in_subprocess(kind: str, name: str, content: bytes, limits: Limits) -> Json:
    """Return the JSON of the subprocess. Raises `Refused` if the subprocess rejects the source or fails."""
    arguments = [str(limits.pages), str(limits.characters), str(limits.memory), str(int(limits.seconds) + 1)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _PROCESS, kind, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        value, _ = await asyncio.wait_for(process.communicate(content), limits.seconds)
    except TimeoutError as exc:
        raise Refused(f"Reading {name} takes more than {limits.seconds:g} seconds. Nothing was added.") from exc
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        result = codec.loads(value)
    except ValueError as exc:
        raise Refused(f"{name} cannot be read: it is damaged or needs too much memory. Nothing was added.") from exc
    if "refused" in result:
        raise Refused(f"{name} {result['refused']} Nothing was added.")
    return result


def run_reader(read: Callable[[bytes, int, int], Json], arguments: Sequence[str]) -> None:
    """Read standard input with `read(content, most_pages, most_characters)` and write the result as JSON."""
    pages, characters, memory, seconds = map(int, arguments)
    _limit(memory, seconds)
    try:
        value = read(sys.stdin.buffer.read(), pages, characters)
    except MemoryError:
        value: Json = {"refused": "needs too much memory."}
    except Exception as exc:  # a damaged file can raise any error in a parser
        value = {"refused": f"cannot be read: it is damaged or too large ({type(exc).__name__})."}
    sys.stdout.buffer.write(codec.dumps(value))


def _limit(memory: int, seconds: int) -> None:
    """Limit the memory and the CPU time of this process, if the system supports it."""
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


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
_SPACE: Final = re.compile(r"[ \t\n\f]+")


class HtmlReader:
    """Reads the visible text of an HTML page."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        # Decode here, and parse in the subprocess: markup can be written so that a parser takes very long.
        text = markup_of(name, content)
        result = await read_in_subprocess("html", name, text.encode(), limits)
        headings = [Heading(*heading) for heading in result["headings"]]
        return checked(name, Document("html", result["text"], result["title"], headings=headings), limits)


def markup_of(name: str, content: bytes) -> str:
    """Return the markup of a page, decoded with the charset that it declares."""
    declared = _CHARSET.search(content[:4096])
    return clean(decode(name, content, declared[1].decode() if declared else None))


def document_of(markup: str) -> Document:
    """Return the visible text of a page."""
    page = _Page()
    page.feed(clean(markup))
    page.close()
    return page.document()


class _Page(HTMLParser):
    """Collects text. Invalid markup is accepted, as in browsers."""

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
        # In HTML the slash has no effect.
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
            Heading(at + len(text[at:end]) - len(text[at:end].lstrip()), level, heading)
            for level, at, end in self._headings
            if (heading := " ".join(text[at:end].split()))
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
        """Add line ends until the text ends with `ends` of them."""
        if not self._parts:
            return
        present = 0
        for part in reversed(self._parts):
            ending = len(part) - len(part.rstrip("\n"))
            present += ending
            if ending < len(part) or present >= ends:
                break
        if present < ends:
            self._parts.append("\n" * (ends - present))
            self._length += ends - present


_HEADER: Final = 1024
"""Number of bytes at the start that contain the header of a PDF."""


class PdfReader:
    """Reads the text of a PDF. The outline becomes headings."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        if b"%PDF-" not in content[:_HEADER]:
            raise Refused(f"{name} is not a PDF. Nothing was added.")
        if find_spec("pypdf") is None:
            raise Refused("Reading a PDF needs pypdf. Run: pip install 'lockstitch[notebooks]'.")
        result = await read_in_subprocess("pdf", name, content, limits)
        return checked(name, _document(result["pages"], result.get("title"), result.get("outline") or ()), limits)


def _document(pages: Sequence[str], title: str | None, outline: Sequence[Any]) -> Document:
    """Join the pages. A page without text keeps its number."""
    starts: list[int] = []
    parts: list[str] = []
    at = 0
    for page in pages:
        text = clean(page).strip() + "\n\n"
        starts.append(at)
        parts.append(text)
        at += len(text)
    headings = [
        Heading(starts[page], level, " ".join(clean(text).split())[:255])
        for level, text, page in outline
        if 0 <= page < len(starts) and text.strip()
    ]
    # The outline can be out of order.
    headings.sort(key=lambda heading: heading.at)
    return Document("pdf", "".join(parts).rstrip(), clean(title or "").strip() or None, starts, headings)
