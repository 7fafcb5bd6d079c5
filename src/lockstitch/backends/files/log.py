"""Reading the log of a thread: one file per run, each line a stitch."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from lockstitch.backends.files import layout, line
from lockstitch.backends.files.extent import extent_of
from lockstitch.backends.files.folder import UNREADABLE, Folder
from lockstitch.backends.files.memory import Extent
from lockstitch.errors import StoreDamaged
from lockstitch.records import Stitch, as_id

Ranges = Sequence[tuple[int, int | None]]


def files(folder: Folder, thread_id: UUID) -> list[str]:
    """The log files of a thread."""
    directory = layout.logs(thread_id)
    return [f"{directory}/{name}" for name in folder.names(directory) if name.endswith(".jsonl")]


def stitches(folder: Folder, path: str) -> list[Stitch]:
    """All stitches of a file, in the order in which they were written."""
    return list(each(folder, path))


def each(folder: Folder, path: str) -> Iterator[Stitch]:
    """The stitches of a file one by one."""
    lines = folder.lines(path)
    for number, text in enumerate(lines, 1):
        # A hole stands where lines were lost before the journal's oldest entry.
        text = text.lstrip(b"\0")
        try:
            yield line.decode_stitch(text)
        except UNREADABLE as exc:
            if not (folder.tolerant and number == len(lines)):
                folder.damaged(path, f"line {number} cannot be read", exc)


def read(folder: Folder, thread_id: UUID, ranges: Ranges) -> list[Stitch]:
    """The stitches of these ranges of positions, in order, each once. Files that hold none are not opened."""
    found: list[Stitch] = []
    for path in files(folder, thread_id):
        extent = extent_of(folder, path)
        if extent is None or not any(_meets(extent, first, last) for first, last in ranges):
            continue
        found += [stitch for stitch in stitches(folder, path) if _within(stitch.position, ranges)]
    return sorted(found, key=lambda stitch: stitch.position)


def last_log_id(folder: Folder) -> int:
    """The last log_id that was given to a stitch; a lost counter goes on behind all that stand here."""
    with suppress(StoreDamaged, KeyError):
        document = folder.document(layout.COUNTERS)
        if document is not None:
            return document["log_id"]
    threads = (thread_id for name in folder.names(layout.LOGS) if (thread_id := as_id(name)))
    paths = (path for thread_id in threads for path in files(folder, thread_id))
    return max((extent.log_id for path in paths if (extent := extent_of(folder, path))), default=0)


def _meets(extent: Extent, first: int, last: int | None) -> bool:
    return extent.last >= first and (last is None or extent.first <= last)


def _within(position: int, ranges: Ranges) -> bool:
    return any(first <= position and (last is None or position <= last) for first, last in ranges)
