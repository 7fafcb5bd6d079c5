"""Reading PDF: in a process of its own, since a PDF may be made to take all time and memory there is."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from lockstitch.apps.notebooks.document import Document, Heading
from lockstitch.apps.notebooks.reader import Limits, checked, clean
from lockstitch.apps.notebooks.readers.apart import read_apart
from lockstitch.errors import Refused

_PDF_PROCESS: Final = "lockstitch.apps.notebooks.readers.pdf_process"
_HEADER: Final = 1024
"""Bytes at the beginning among which a PDF says that it is one."""


class PdfReader:
    """The text of a PDF, page by page, with its outline as headings."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document:
        if b"%PDF-" not in content[:_HEADER]:
            raise Refused(f"{name} is no PDF, whatever it is called. Nothing was added.")
        if find_spec("pypdf") is None:
            raise Refused("Reading a PDF needs pypdf: pip install 'lockstitch[notebooks]'.")
        found = await read_apart(_PDF_PROCESS, name, content, limits)
        return checked(name, _document(found["pages"], found.get("title"), found.get("outline") or ()), limits)


def _document(pages: Sequence[str], title: str | None, outline: Sequence[Any]) -> Document:
    """The pages as one text. A page without text has its place all the same."""
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
    # Of an outline in disorder the pages decide.
    headings.sort(key=lambda heading: heading.at)
    return Document("pdf", "".join(parts).rstrip(), clean(title or "").strip() or None, starts, headings)
