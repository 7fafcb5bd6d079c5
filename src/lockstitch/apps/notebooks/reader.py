"""The contract of a reader: bytes of one kind of source become a document, or it is said why not.

Reading changes nothing, so whatever is wrong with a source is known before anything of it is kept.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from lockstitch.apps.notebooks.document import Document
from lockstitch.errors import Refused

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_ENDS: Final = re.compile("\r\n|\r|\x85|\u2028|\u2029")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a source may be: what is larger is refused, so that reading takes a bounded time and memory."""

    bytes: int = 32 * 2**20
    characters: int = 4_000_000
    pages: int = 2_000
    seconds: float = 60.0
    """How long one source may take to be read or fetched."""
    memory: int = 2 * 2**30
    """Bytes of memory for the process that reads a PDF, where the system can limit it."""


class Reader(Protocol):
    """Reads one kind of source. Refused says what is wrong with it, in the name of the source."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document: ...


def clean(text: str) -> str:
    """A text that every store can keep, with one kind of line end and no characters that nobody can see."""
    return _CONTROL.sub("", _ENDS.sub("\n", text))


def checked(name: str, document: Document, limits: Limits) -> Document:
    """`document`, if there is something in it and not too much."""
    if not document.text.strip():
        raise Refused(f"{name} has no text in it, so there is nothing to look up. Nothing was added.")
    if len(document.text) > limits.characters:
        raise Refused(
            f"{name} has {len(document.text):,} characters of text; at most {limits.characters:,} are read. "
            "Split it. Nothing was added."
        )
    return document
