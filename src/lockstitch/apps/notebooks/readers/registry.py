"""Choose the reader of a source by its content, name or media type."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from lockstitch import Refused
from lockstitch.apps.notebooks.readers.isolated import HtmlReader, PdfReader
from lockstitch.apps.notebooks.readers.reader import Document, Kind, Limits, Reader
from lockstitch.apps.notebooks.readers.text import MarkdownReader, TextReader

_READERS: Final[Mapping[Kind, Reader]] = {
    "text": TextReader(),
    "markdown": MarkdownReader(),
    "html": HtmlReader(),
    "pdf": PdfReader(),
}

_ENDINGS: Final[Mapping[str, Kind]] = {
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".csv": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
}

_MEDIA_TYPES: Final[Mapping[str, Kind]] = {
    "text/plain": "text",
    "text/csv": "text",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
}

KINDS: Final = tuple(_READERS)
ENDINGS: Final = tuple(_ENDINGS)


def kind_of(name: str, content: bytes, media_type: str | None = None) -> Kind:
    """Return the kind of a source. Raises `Refused` if it is not supported."""
    if b"%PDF-" in content[:1024]:
        return "pdf"
    by_name = _ENDINGS.get(PurePosixPath(name).suffix.lower())
    by_type = _MEDIA_TYPES.get((media_type or "").partition(";")[0].strip().lower())
    # Browsers send text/plain for unknown types, so the name comes first.
    result = by_name or by_type
    if result is None:
        raise Refused(f"{name} is not a supported kind of file. Supported: {', '.join(ENDINGS)}. Nothing was added.")
    return result


def kind_of_text(name: str) -> Kind:
    """Return the kind of a source that is passed as text."""
    result = _ENDINGS.get(PurePosixPath(name).suffix.lower(), "text")
    return "text" if result == "pdf" else result


async def read(name: str, content: bytes, kind: Kind | None = None, *, limits: Limits | None = None) -> Document:
    """Read a source. Raises `Refused` if it cannot be read or is too large."""
    limits = limits or Limits()
    if not content:
        raise Refused(f"{name} is empty. Nothing was added.")
    if len(content) > limits.bytes:
        raise Refused(f"{name} has {len(content):,} bytes. The limit is {limits.bytes:,}. Nothing was added.")
    return await _READERS[kind or kind_of(name, content)].read(name, content, limits)
