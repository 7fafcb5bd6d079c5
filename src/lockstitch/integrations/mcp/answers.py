"""Answers that fit into the context of a model: cut texts, bounded rows, and pages that continue at a cursor."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.model import Json, Thread, as_id, codec, format_time, parse_time

PIECE: Final = 16_000
"""Maximum characters of a piece of a stitch or a request."""

_ROWS: Final = 18_000
"""Maximum characters of the rows of a page, if it has more than one row."""

ROW: Final = 4_000
"""Maximum characters of one row, or of the facts before the rows."""

_STEPS: Final = ((2_000, 50), (600, 20), (200, 10), (60, 5))
"""Limits of the texts and the lists of a row: the first limits with which the row is short enough apply."""

_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})

T = TypeVar("T")


def clipped(text: str, most: int) -> str:
    """Return a text with at most `most` characters, and the number of the characters that are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def compact(**members: Any) -> Json:
    """Return an object without the members that have no value."""
    return {name: value for name, value in members.items() if value not in _EMPTY}


def bounded(row: Json, most: int = ROW) -> Json:
    """Return a row with at most `most` characters of JSON. Long texts and lists are cut."""
    if length(row) <= most:
        return row
    for longest, entries in _STEPS:
        shorter = _cut(row, longest, entries)
        if length(shorter) <= most:
            return shorter
    return {"cut": clipped(codec.dumps(row).decode(), most // 2)}


def length(value: Any) -> int:
    """Return the number of characters of a value as JSON."""
    return len(codec.dumps(value).decode())


def page(rows: Iterable[tuple[Json, str]], more: bool) -> tuple[list[Json], str | None]:
    """Return the first rows that fit into an answer, and the cursor of the next page or None.

    Args:
        rows: Rows, each with the cursor that continues after it.
        more: True if more rows follow these.
    """
    shown: list[Json] = []
    used = 0
    cursor: str | None = None
    for row, after in rows:
        row = bounded(row)
        used += length(row) + 1
        if shown and used > _ROWS:
            return shown, cursor
        shown.append(row)
        cursor = after
    return shown, cursor if more else None


def numbered(rows: Sequence[T], row_of: Callable[[T], Json], cursor: str, limit: int) -> tuple[list[Json], str | None]:
    """Return a page of rows that have no key. The cursor is the number of rows before the page."""
    start = number(cursor)
    part = rows[start : start + limit]
    described = [(row_of(row), str(place)) for place, row in enumerate(part, start + 1)]
    return page(described, more=start + limit < len(rows))


def number(cursor: str) -> int:
    """Return the number in a cursor. 0 if there is no cursor."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 15:
        raise _invalid(cursor)
    return int(cursor)


def thread_cursor(thread: Thread, moment: datetime | None) -> str:
    """Return the cursor after a thread in a list that is ordered by a time."""
    return f"{format_time(moment or thread.created_at)}~{thread.id}"


def thread_place(cursor: str) -> Thread | None:
    """Return a thread with the id and the times of a cursor, for `after`. None if there is no cursor.

    The thread of the cursor is not read. It may have changed or may be deleted since the last page.
    """
    if not cursor:
        return None
    text, _, name = cursor.partition("~")
    thread_id = as_id(name)
    try:
        moment = parse_time(text)
    except ValueError:
        raise _invalid(cursor) from None
    if thread_id is None:
        raise _invalid(cursor)
    return _place(thread_id, moment)


def _place(thread_id: UUID, moment: datetime) -> Thread:
    return Thread(id=thread_id, created_at=moment, updated_at=moment, awaiting_person_since=moment)


def _invalid(cursor: str) -> Refused:
    return Refused(f"The cursor {clipped(cursor, 50)!r} is not valid. Use `next` of the previous answer.")


def _cut(value: Any, longest: int, entries: int) -> Any:
    if isinstance(value, str):
        return clipped(value, longest)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        left_out = [f"… ({len(items) - entries:,} more)"] if len(items) > entries else []
        return [*(_cut(item, longest, entries) for item in items[:entries]), *left_out]
    if isinstance(value, dict):
        return {name: _cut(member, longest, entries) for name, member in cast("Json", value).items()}
    return value
