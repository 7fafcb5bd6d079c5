"""`pack`: compress the data of imported stitches. `add_complete_stitches`: a view that shows it.

An imported span has much data that repeats from span to span, and few queries read it. So the data of the stitches of a
commit is compressed together, per thread.
"""

import sqlite3
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite.query_process import unpacked_data
from lockstitch.model import ColumnKind, Json, Stitch, codec, columns

Put = Callable[[Sequence[Stitch]], Script[None]]

PLAIN: Final = frozenset({"failed", "finish_reason", "provider", "text", "usage"})
"""Members of the data that are in the column, too, because the lens of LangSmith reads them for many rows."""

_LENGTH: Final = 64 << 10
"""Bytes of data from which on the next stitch starts another row. A reader of one stitch unpacks a whole row."""

_LEVEL: Final = 3
"""The level of compression. Higher levels take more time than they save space."""

_COLUMNS: Final = {
    "run_id": "r.id",
    "thread_id": "t.id",
    "previous_id": "coalesce(p.id, s.previous_id)",
    "data": "CASE WHEN s.packed IS NULL THEN coalesce(s.data, '{}') ELSE "
    "lockstitch_data((SELECT c.content FROM main.packed_data c WHERE c.no = s.packed), s.position) END",
}

VIEW: Final = f"""CREATE TEMP VIEW IF NOT EXISTS stitches AS
SELECT {", ".join(f"{_COLUMNS.get(name, f's.{name}')} AS {name}" for name, _ in columns(Stitch))}, s.llm_call_id
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no
LEFT JOIN main.run_rows r ON r.no = s.run_no
LEFT JOIN main.stitch_rows p ON p.thread_no = s.thread_no AND p.position = s.previous"""
"""The view `stitches` of a connection: that of the file with complete data."""


class Content(NamedTuple):
    """Packed data: a line for each stitch, with its position."""

    first_position: int
    last_position: int
    compressed: bytes


class PackedStitches(NamedTuple):
    """The data of stitches of a thread."""

    complete: Sequence[Stitch]
    indexes: list[int]
    """The index of the content of each stitch."""
    plain: list[Json]
    """The members of the data of each stitch that are in the column."""
    contents: list[Content]

    @property
    def stitches(self) -> list[tuple[int, Stitch]]:
        """The stitches with the members of their data that are in the column, each with the index of its content."""
        members = zip(self.indexes, self.complete, self.plain, strict=True)
        return [(index, stitch.changed(data=plain)) for index, stitch, plain in members]


def pack(stitches: Sequence[Stitch]) -> PackedStitches:
    """Return the data of stitches. Raises `Refused` if JSON cannot represent a value exactly."""
    packed = PackedStitches(stitches, [], [], [])
    lines: dict[int, bytes] = {}
    size = 0
    for stitch in stitches:
        data = stitch.data
        line = codec.dumps(data)
        if lines and size + len(line) > _LENGTH:
            packed.contents.append(_content(lines))
            lines, size = {}, 0
        lines[stitch.position] = line
        size += len(line)
        packed.indexes.append(len(packed.contents))
        is_packed = PLAIN.isdisjoint(data)
        packed.plain.append({} if is_packed else {name: data[name] for name in data if name in PLAIN})
    if lines:
        packed.contents.append(_content(lines))
    return packed


def _content(lines: dict[int, bytes]) -> Content:
    text = b"\n".join([b"%d %b" % line for line in lines.items()])
    return Content(min(lines), max(lines), zlib.compress(text, _LEVEL))


def write_contents(
    cursor: sqlite3.Cursor, dialect: Dialect, thread: int | None, contents: Sequence[Content]
) -> Sequence[int | None]:
    """Write the contents of the thread with this row number. Return their row numbers."""
    text = dialect.text("pack", first="0")
    return [cursor.execute(text, (thread, *content)).lastrowid for content in contents]


def replaced(dialect: Dialect, thread_id: UUID, stitches: Sequence[Stitch], put: Put) -> Script[None]:
    """Replace stitches of a thread with `put`, and their packed data."""
    packed = pack(stitches)
    thread = {"thread_id": dialect.encode_id(thread_id)}
    marks, places = dialect.among([stitch.position for stitch in stitches], "position", ColumnKind.INTEGER)
    old = [number for (number,) in (yield dialect.statement("packed_at", {**thread, **places}, positions=marks))]
    yield from put([stitch for _, stitch in packed.stitches])
    for index, (first, last, content) in enumerate(packed.contents):
        span = {**thread, "first_position": first, "last_position": last}
        yield dialect.statement("pack_named", {**span, "content": content})
        marks, places = dialect.among(
            [stitch.position for stitch, content in zip(stitches, packed.indexes, strict=True) if content == index],
            "position",
            ColumnKind.INTEGER,
        )
        yield dialect.statement("packed_set", {**thread, **places}, positions=marks)
    if old:
        marks, numbers = dialect.among(old, "number", ColumnKind.INTEGER)
        yield dialect.statement("packed_sweep", numbers, numbers=marks)


def add_complete_stitches(connection: sqlite3.Connection) -> None:
    """Add the view `stitches` with complete data. It is temporary and hides the view of the file."""
    connection.create_function("lockstitch_data", 2, unpacked_data, deterministic=True)
    connection.execute(VIEW)
