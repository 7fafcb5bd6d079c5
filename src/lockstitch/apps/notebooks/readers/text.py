"""Reading plain text: in which encoding it is, and whether it is text at all."""

import codecs
from typing import Final

from lockstitch.apps.notebooks.document import Document
from lockstitch.apps.notebooks.reader import Limits, checked, clean
from lockstitch.errors import Refused

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
