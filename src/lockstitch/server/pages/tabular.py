"""The answer to a query: as cells of a page, and as CSV, JSON and Markdown to take along."""

import csv
import io
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from lockstitch.backend import Answer
from lockstitch.records import as_id, codec
from lockstitch.records.cells import distinct, plain, shown

_LONGEST: Final = 300
_ID: Final = re.compile(r"(^|_)(id|uuid)$")


class Cell(NamedTuple):
    """A value as it is shown; `whole` when that is not all of it, `link` when it may be an id of ours."""

    text: str
    whole: str
    link: bool
    null: bool


class Shown(NamedTuple):
    """An answer as a table of cells; which columns are numbers."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    more: bool


def table(answer: Answer) -> Shown:
    numeric = [_numbers(answer, place) for place in range(len(answer.columns))]
    ids = [bool(_ID.search(name)) for name in answer.columns]
    rows = [[_cell(value, is_id) for value, is_id in zip(row, ids, strict=True)] for row in answer.rows]
    return Shown(answer.columns, numeric, rows, answer.more)


def as_csv(answer: Answer) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([shown(value) for value in row] for row in answer.rows)
    return out.getvalue()


def as_json(answer: Answer) -> str:
    names = distinct(answer.columns)
    rows = [codec.dumps(dict(zip(names, map(plain, row), strict=True))).decode() for row in answer.rows]
    return "[" + ",\n ".join(rows) + "]\n"


def as_markdown(answer: Answer) -> str:
    numeric = [_numbers(answer, place) for place in range(len(answer.columns))]
    lines = [answer.columns, ["---:" if one else "---" for one in numeric]]
    lines += [[_one_line(shown(value)) for value in row] for row in answer.rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


FORMS: Final[dict[str, tuple[Callable[[Answer], str], str]]] = {
    "csv": (as_csv, "text/csv"),
    "json": (as_json, "application/json"),
    "markdown": (as_markdown, "text/markdown"),
}
"""The forms to take an answer along in, with how it is written and its media type."""


def _cell(value: Any, is_id: bool) -> Cell:
    if value is None:
        return Cell("null", "", False, True)
    exact = shown(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        text = _number(value, exact)
        return Cell(text, exact, False, False)
    if is_id and as_id(exact) is not None:
        return Cell(exact[:13], exact, True, False)
    text = exact if len(exact) <= _LONGEST else f"{exact[:_LONGEST]}…"
    return Cell(text, exact if len(exact) <= _LONGEST else exact[: 10 * _LONGEST], False, False)


def _number(value: float | Decimal, exact: str) -> str:
    if isinstance(plain(value), int):
        return f"{int(value):,}"
    number = float(value)
    return f"{number:,.4f}" if 0.001 <= abs(number) < 1e15 else exact


def _numbers(answer: Answer, place: int) -> bool:
    values = [row[place] for row in answer.rows if row[place] is not None]
    return bool(values) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values
    )


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")
