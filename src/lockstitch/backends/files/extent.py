"""Which stitches a log file holds, learnt from its two ends: many questions need not open it further.

Within a file positions and log_ids both rise, so its first and last line say it all.
"""

import os
from pathlib import Path

from lockstitch.backends.files import disk
from lockstitch.backends.files.folder import UNREADABLE, Folder, Torn
from lockstitch.backends.files.memory import Extent, Memory, Signature
from lockstitch.records import codec

_CHUNK = 1 << 16


def extent_of(folder: Folder, path: str) -> Extent | None:
    """The extent of a log file, None when it is missing or holds no whole line."""
    if path in folder.extents:
        return folder.extents[path]
    try:
        signature = _signature(folder.root, path)
    except FileNotFoundError:
        return None
    known = folder.memory.extents.get(path)
    if known and known[0] == signature:
        return known[1]
    try:
        extent = _from_ends(folder, path, signature[1])
    except UNREADABLE:
        extent = _from_lines(folder, path)
    if extent is not None:
        folder.memory.extents.keep(path, (signature, extent))
    return extent


def remember_extent(memory: Memory, root: Path, path: str, extent: Extent) -> None:
    """Keep the extent that a commit has left behind."""
    signature = _signature(root, path)
    if signature[1] == extent.size:
        memory.extents.keep(path, (signature, extent))


def _signature(root: Path, path: str) -> Signature:
    status = os.stat(f"{root}/{path}")
    return status.st_ino, status.st_size, status.st_mtime_ns


def _from_ends(folder: Folder, path: str, size: int) -> Extent:
    with disk.opened(folder.root / path, os.O_RDONLY) as file:
        first = _first_line(file)
        last = _last_line(file, size)
    return _extent(first, last, size)


def _from_lines(folder: Folder, path: str) -> Extent | None:
    """The slow way, for a file whose last line is torn: its size is that of the lines before."""
    lines = folder.lines(path)
    for whole in (lines, lines[:-1]):
        if not whole:
            return None
        try:
            return _extent(whole[0].lstrip(b"\0"), whole[-1].lstrip(b"\0"), sum(len(line) + 1 for line in whole))
        except UNREADABLE as exc:
            if not folder.tolerant:
                raise Torn(path) from exc
    return folder.damaged(path, "more than its last line cannot be read")


def _extent(first: bytes, last: bytes, size: int) -> Extent:
    begin, end = codec.loads(first), codec.loads(last)
    return Extent(begin["position"], end["position"], end["store_log_id"], end["log_id"], size)


def _first_line(file: int) -> bytes:
    text = b""
    while b"\n" not in text:
        part = os.pread(file, _CHUNK, len(text))
        if not part:
            raise ValueError("no whole line")
        text += part
    return text[: text.index(b"\n")].lstrip(b"\0")


def _last_line(file: int, size: int) -> bytes:
    text = b""
    while True:
        start = max(0, size - len(text) - _CHUNK)
        text = os.pread(file, size - len(text) - start, start) + text
        if not text.endswith(b"\n"):
            raise ValueError("the last line is torn")
        cut = text.rfind(b"\n", 0, -1)
        if cut >= 0 or start == 0:
            return text[cut + 1 : -1].lstrip(b"\0")
