"""Media in messages: shown by a route of their own, with headers under which nothing in them can run."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final, cast

from lockstitch.records import Json, Stitch

SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a browser may show as a picture. SVG is a document that can hold scripts, so it is only downloaded."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=3600",
}


@dataclass(frozen=True, slots=True)
class Medium:
    """A picture or document in a stitch: the how-manyth, in which block of its message, and what it says that it is."""

    number: int
    block: int
    type: str
    data: str

    @property
    def shown(self) -> bool:
        return self.type in SHOWN

    @property
    def size(self) -> int:
        return len(self.data) * 3 // 4

    def content(self) -> bytes:
        """The bytes; none if it is no base64."""
        try:
            return base64.b64decode(self.data, validate=False)
        except (binascii.Error, ValueError):
            return b""


def media_of(stitch: Stitch) -> list[Medium]:
    """All media of a stitch, in their order."""
    found: list[Medium] = []
    content: Any = (stitch.message or {}).get("content")
    for number, block in enumerate(cast("list[Any]", content) if isinstance(content, list) else []):
        _collect(block, number, found)
    return found


def _collect(block: Any, place: int, found: list[Medium]) -> None:
    if not isinstance(block, dict):
        return
    known = cast("Json", block)
    source: Any = known.get("source")
    if known.get("type") in ("image", "document") and isinstance(source, dict):
        told = cast("Json", source)
        if told.get("type") == "base64" and isinstance(told.get("data"), str):
            found.append(Medium(len(found), place, str(told.get("media_type") or "").lower(), told["data"]))
    inner: Any = known.get("content")
    for one in cast("list[Any]", inner) if isinstance(inner, list) else []:
        _collect(one, place, found)
