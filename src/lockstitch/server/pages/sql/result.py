"""Query results as cells, CSV, JSON and Markdown, and explanations of database errors."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from lockstitch.model import as_id, codec, short_id
from lockstitch.model.format import distinct, plain, shown
from lockstitch.store import QueryResult

_LONGEST: Final = 300
_ID: Final = re.compile(r"(^|_)(id|uuid)$")


class Cell(NamedTuple):
    """A value: the shown text, the full text, and `link` if it may be an id of the record."""

    text: str
    full_text: str
    link: bool
    null: bool


class ResultTable(NamedTuple):
    """A result as a table of cells, with the numeric columns marked."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    has_more: bool


def table(answer: QueryResult) -> ResultTable:
    numeric = [_numbers(answer, place) for place in range(len(answer.columns))]
    ids = [bool(_ID.search(name)) for name in answer.columns]
    rows = [[_cell(value, is_id) for value, is_id in zip(row, ids, strict=True)] for row in answer.rows]
    return ResultTable(answer.columns, numeric, rows, answer.truncated)


def as_csv(answer: QueryResult) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([shown(value) for value in row] for row in answer.rows)
    return out.getvalue()


def as_json(answer: QueryResult) -> str:
    names = distinct(answer.columns)
    rows = [codec.dumps(dict(zip(names, map(plain, row), strict=True))).decode() for row in answer.rows]
    return "[" + ",\n ".join(rows) + "]\n"


def as_markdown(answer: QueryResult) -> str:
    numeric = [_numbers(answer, place) for place in range(len(answer.columns))]
    lines = [answer.columns, ["---:" if item else "---" for item in numeric]]
    lines += [[_one_line(shown(value)) for value in row] for row in answer.rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


FORMS: Final[dict[str, tuple[Callable[[QueryResult], str], str]]] = {
    "csv": (as_csv, "text/csv"),
    "json": (as_json, "application/json"),
    "markdown": (as_markdown, "text/markdown"),
}
"""Download formats: the writer and the media type."""


def _cell(value: Any, is_id: bool) -> Cell:
    if value is None:
        return Cell("null", "", False, True)
    exact = shown(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        text = _number(value, exact)
        return Cell(text, exact, False, False)
    if is_id and as_id(exact) is not None:
        return Cell(short_id(exact), exact, True, False)
    text = exact if len(exact) <= _LONGEST else f"{exact[:_LONGEST]}…"
    return Cell(text, exact if len(exact) <= _LONGEST else exact[: 10 * _LONGEST], False, False)


def _number(value: float | Decimal, exact: str) -> str:
    if isinstance(plain(value), int):
        return f"{int(value):,}"
    number = float(value)
    return f"{number:,.4f}" if 0.001 <= abs(number) < 1e15 else exact


def _numbers(answer: QueryResult, place: int) -> bool:
    values = [row[place] for row in answer.rows if row[place] is not None]
    return bool(values) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values
    )


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


_COLUMN: Final = re.compile(r"no such column: ([\w.\"]+)|column \"?([\w.]+)\"? does not exist", re.IGNORECASE)
_TABLE: Final = re.compile(r"no such table: ([\w.]+)|relation \"([\w.]+)\" does not exist", re.IGNORECASE)
_NEAR: Final = re.compile(r"(?:at or )?near \"(.+?)\"", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryError:
    """An error of a query. `line` and `column` start at 1; 0 means unknown."""

    message: str
    line: int = 0
    column: int = 0
    meant: str = ""
    """The suggested name."""
    mended: str = ""
    """The query with the suggested name."""


def explain_query_error(message: str, query: str, tables: Mapping[str, Sequence[str]]) -> QueryError:
    """Return the database error of a query with its position and a suggestion. `tables` maps tables to columns."""
    text = message.partition("refused the query: ")[2].rstrip(".") or message
    for pattern, is_column in ((_COLUMN, True), (_TABLE, False)):
        match = pattern.search(text)
        if match is None:
            continue
        wrong = next(group for group in match.groups() if group).strip('"').rpartition(".")[2]
        place = _place(wrong, query)
        meant = _meant(wrong, _columns(query, tables) if is_column else list(tables))
        if place is None:
            return QueryError(text, meant=meant)
        mended = query[:place] + meant + query[place + len(wrong) :] if meant else ""
        return QueryError(text, *_line(query, place), meant=meant, mended=mended)
    near = _NEAR.search(text)
    place = _place(near[1], query) if near else None
    return QueryError(text) if place is None else QueryError(text, *_line(query, place))


def _place(word: str, query: str) -> int | None:
    """Return the position of a word in a query, outside strings and comments, or None."""
    bare = _HIDDEN.sub(lambda match: " " * len(match[0]), query)
    edge = r"(?<!\w){}(?!\w)" if word[:1].isalnum() or word[:1] == "_" else "{}"
    result = re.search(edge.format(re.escape(word)), bare, re.IGNORECASE)
    return result.start() if result else None


def _line(query: str, place: int) -> tuple[int, int]:
    before = query[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1


def _columns(query: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns of the tables in a query, or of all tables if it names none."""
    named = [name for name in tables if _place(name, query) is not None] or list(tables)
    return list(dict.fromkeys(column for name in named for column in tables[name]))


def _meant(wrong: str, known: Sequence[str]) -> str:
    low = wrong.lower()
    near = get_close_matches(low, known, n=1, cutoff=0.75)
    if near:
        return near[0]
    parts = [name for name in known if low in name.split("_")]
    return min(parts, key=len) if parts else next(iter(get_close_matches(low, known, n=1, cutoff=0.55)), "")
