"""`Output`: tables, lines, JSON and CSV, without control characters.

On a terminal, flexible columns shrink until a row fits. In a pipe, nothing is cut. Other columns, for example ids, are
never cut, because users copy them.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lockstitch.cli.render.text import one_line, safe
from lockstitch.errors import Refused
from lockstitch.model import as_id, codec
from lockstitch.model.format import age, cost, distinct, duration, plain, plural, shown, size
from lockstitch.store import QueryResult

GAP = 2
NARROWEST = 6


class TableColumn(NamedTuple):
    """A table column. It is omitted if the terminal is narrower than `from_width`."""

    title: str
    right: bool = False
    flexible: bool = False
    from_width: int = 0


def lay_out(columns: Sequence[TableColumn], rows: Sequence[Sequence[str | Text]], width: int | None) -> list[Text]:
    """Return the lines of a table. `width` is None for a pipe."""
    shown = [number for number, column in enumerate(columns) if width is None or width >= column.from_width]
    table_columns = [columns[number] for number in shown]
    cells = [[_as_text(row[number]) for number in shown] for row in rows]
    header = [Text(column.title, style="bold") for column in table_columns]
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(header, *cells, strict=True)]
    if width is not None:
        widths = _fitted(table_columns, widths, width)
    return [_line(table_columns, row, widths) for row in (header, *cells)]


def _as_text(cell: str | Text) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def _fitted(columns: Sequence[TableColumn], widths: Sequence[int], width: int) -> list[int]:
    """Return the widths after the widest flexible columns shrank to fit `width`."""
    fitted = list(widths)
    excess = sum(fitted) + GAP * (len(fitted) - 1) - width
    while excess > 0:
        candidates = [number for number, column in enumerate(columns) if column.flexible and fitted[number] > NARROWEST]
        if not candidates:
            break
        fitted[max(candidates, key=lambda number: fitted[number])] -= 1
        excess -= 1
    return fitted


def _line(columns: Sequence[TableColumn], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True)
    for number, (column, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
        cell.truncate(width, overflow="ellipsis")
        room = " " * (width - cell_len(cell.plain))
        last = number == len(columns) - 1
        line.append_text(Text(room) + cell if column.right else cell + Text("" if last else room))
        line.append("" if last else " " * GAP)
    line.rstrip()
    return line


__all__ = ["age", "clock_time", "cost", "duration", "one_line", "plural", "safe", "size", "time"]


def time(moment: datetime | None, *, seconds: bool = True) -> str:
    """Format a time in UTC."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ" if seconds else "%Y-%m-%d %H:%MZ")


def clock_time(moment: datetime | None) -> str:
    """Format the time of day in UTC, with milliseconds."""
    return "" if moment is None else f"{moment.astimezone(UTC):%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        # rich would exit the process here with its own exit code.
        raise BrokenPipeError


class Output:
    """The output of one command. It uses colours and widths only on a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = _Console(highlight=False, markup=False, emoji=False, legacy_windows=False)
        self._aside = _Console(stderr=True, highlight=False, markup=False, emoji=False, legacy_windows=False)

    @property
    def width(self) -> int | None:
        """The number of columns of the terminal, or None without a terminal."""
        return self.console.width if self.console.is_terminal else None

    @property
    def shows_markdown(self) -> bool:
        """True if stdout is a terminal that can replace its last lines."""
        return self.console.is_terminal and not self.console.is_dumb_terminal and not self.as_json

    def json(self, value: Any) -> None:
        """Print one JSON value on one line, always in UTF-8."""
        sys.stdout.flush()
        sys.stdout.buffer.write(codec.dumps(value) + b"\n")

    def line(self, text: str | Text = "", style: str = "", indent: int = 0, mark: Text | None = None) -> None:
        """Print indented text. It wraps only on a terminal. `mark` comes before the first line."""
        content = Text(safe(text), style=style) if isinstance(text, str) else text
        first = Text(" " * indent) + (mark or Text())
        margin = Text(" " * cell_len(first.plain))
        for number, item in enumerate(self._lines(content, cell_len(first.plain)) or [Text()]):
            item.rstrip()
            shown = (margin if number else first) + item
            shown.rstrip()
            self.console.print(shown, soft_wrap=True)

    def _lines(self, content: Text, indent: int) -> Iterable[Text]:
        if self.width is None:
            return content.split("\n", allow_blank=True)
        return content.wrap(self.console, max(self.width - indent, 20), tab_size=4)

    def cropped(self, text: Text) -> None:
        """Print one line, cut to the width of the terminal."""
        if self.width is not None:
            text.truncate(self.width, overflow="ellipsis")
        self.console.print(text, soft_wrap=True)

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[str | Text]]) -> None:
        for line in lay_out(columns, rows, self.width):
            self.console.print(line, soft_wrap=True)

    def fields(self, pairs: Sequence[tuple[str, str | Text]]) -> None:
        """Print names and values below each other. Pairs without a value are omitted."""
        shown = [(name, value) for name, value in pairs if str(value)]
        longest = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            label = Text(name.ljust(longest + 2), style="dim")
            value = Text(safe(value)) if isinstance(value, str) else value
            self.console.print(label + value, soft_wrap=True)

    def stream(self, text: str) -> None:
        """Print a part of a streamed answer at once."""
        sys.stdout.write(safe(text))
        sys.stdout.flush()

    def stderr_line(self, text: Text) -> None:
        """Print a line to stderr, cut to the width of the terminal."""
        sys.stdout.flush()
        if self._aside.is_terminal:
            text = text.copy()
            text.plain = " ".join(text.plain.split())
            text.truncate(self._aside.width, overflow="ellipsis")
        self._aside.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a note to stderr. Nothing is printed with --json."""
        if not self.as_json:
            sys.stdout.flush()
            sys.stderr.write(safe(text) + "\n")
            sys.stderr.flush()


FORMS = ("table", "json", "csv")


def check_form(form: str) -> None:
    if form not in FORMS:
        raise Refused(f"--format {form!r} is not valid. Use one of: {', '.join(FORMS)}.")


def show(out: Output, answer: QueryResult, form: str) -> None:
    names = distinct(answer.columns)
    if form == "json":
        out.json([dict(zip(names, map(plain, row), strict=True)) for row in answer.rows])
    elif form == "csv":
        _write_csv(answer)
    else:
        rows = [[one_line(shown(value)) for value in row] for row in answer.rows]
        columns = [_column(answer, place, one_line(name)) for place, name in enumerate(names)]
        out.table(columns, rows)


def _write_csv(answer: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([shown(value) for value in row] for row in answer.rows)


def _column(answer: QueryResult, place: int, name: str) -> TableColumn:
    """Return the column for a result. Numbers are right-aligned. Ids are never cut, because users copy them."""
    values = [row[place] for row in answer.rows if row[place] is not None]
    numbers = bool(values) and all(isinstance(value, int | float | Decimal) for value in values)
    ids = bool(values) and all(as_id(str(value)) for value in values)
    return TableColumn(name, right=numbers, flexible=not numbers and not ids)
