"""Tables: columns side by side, no frame, nothing wrapped.

On a terminal the flexible columns give way until a row fits; in a pipe everything is written whole. Other columns,
ids above all, are never cut, because people copy them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

GAP = 2
NARROWEST = 6


class Column(NamedTuple):
    """A column; an optional one is left out of a table that is narrower than `from_width`."""

    title: str
    right: bool = False
    flexible: bool = False
    from_width: int = 0


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], width: int | None) -> list[Text]:
    """The table's lines, for a terminal of this width or for a pipe (None)."""
    shown = [number for number, column in enumerate(columns) if width is None or width >= column.from_width]
    kept = [columns[number] for number in shown]
    cells = [[_as_text(row[number]) for number in shown] for row in rows]
    header = [Text(column.title, style="bold") for column in kept]
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(header, *cells, strict=True)]
    if width is not None:
        widths = _fitted(kept, widths, width)
    return [_line(kept, row, widths) for row in (header, *cells)]


def _as_text(cell: str | Text) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The widths after the widest flexible columns gave way."""
    fitted = list(widths)
    excess = sum(fitted) + GAP * (len(fitted) - 1) - width
    while excess > 0:
        candidates = [number for number, column in enumerate(columns) if column.flexible and fitted[number] > NARROWEST]
        if not candidates:
            break
        fitted[max(candidates, key=lambda number: fitted[number])] -= 1
        excess -= 1
    return fitted


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True)
    for number, (column, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
        cell.truncate(width, overflow="ellipsis")
        room = " " * (width - cell_len(cell.plain))
        last = number == len(columns) - 1
        line.append_text(Text(room) + cell if column.right else cell + Text("" if last else room))
        line.append("" if last else " " * GAP)
    line.rstrip()
    return line
