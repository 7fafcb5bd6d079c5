"""Tasks from CSV: a row each, under a heading that says what is in which column.

id,task,estimate,after,document
T1,Choose the provider,3h,,Checkout
T2,Payment form,8,T1,Checkout
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO
from typing import Final

from lockstitch.apps.prioritizer.lists import Item, Reference, Sheet, hours
from lockstitch.apps.prioritizer.models import RelationshipType
from lockstitch.errors import Refused

_COLUMNS: Final = {
    "id": ("id", "key", "task_id", "issue key", "number", "#"),
    "title": ("task", "title", "name", "summary", "subject", "todo", "what"),
    "details": ("details", "description", "notes", "note", "text"),
    "estimate": ("estimate", "estimate_hours", "hours", "effort", "duration", "estimated_duration_hours", "time"),
    "after": ("after", "depends_on", "depends on", "dependencies", "needs", "requires", "blocked_by", "blocked by"),
    "before": ("before", "blocks"),
    "related": ("related", "related_to", "see"),
    "document": ("document", "project", "list", "file"),
    "section": ("section", "epic", "group", "milestone"),
    "done": ("done", "status", "state", "completed"),
}
_NAMES: Final = {name: column for column, names in _COLUMNS.items() for name in names}
_RELATIONS: Final[dict[str, tuple[RelationshipType, bool]]] = {
    "after": ("prerequisite", False),
    "before": ("blocks", True),
    "related": ("related", False),
}
_DONE: Final = frozenset({"x", "yes", "true", "1", "done", "closed", "completed", "complete", "resolved"})
_ESTIMATE: Final = re.compile(r"~?(\d+(?:[.,]\d+)?)\s*(h|hrs?|hours?|m|mins?|minutes?|d|days?)?", re.IGNORECASE)


def read_csv(text: str, title: str, file: str) -> list[Sheet]:
    """The documents of a CSV text: one for each value of its document column, or one for all."""
    rows = _rows(text, file)
    try:
        _, heading = next(rows)
    except StopIteration:
        return []
    columns = _columns(heading, file)
    sheets: dict[str, Sheet] = {}
    for line, row in rows:
        if len(row) > len(heading) and any(cell.strip() for cell in row[len(heading) :]):
            raise Refused(f"{file}, line {line}: {len(row)} cells under {len(heading)} columns; is a quote missing?")
        cells = {column: row[place].strip() for column, place in columns.items() if place < len(row)}
        if not cells.get("title"):
            if any(cells.values()):
                raise Refused(f"{file}, line {line}: this row has no task.")
            continue
        name = cells.get("document") or title
        sheet = sheets.setdefault(name, Sheet(name, ""))
        sheet.items.append(_csv_item(cells, line, file))
        sheet.text += f"- [ ] {cells['title']}\n" + (f"  {cells['details']}\n" if cells.get("details") else "")
    return list(sheets.values())


def _rows(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with their lines."""
    first = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t|", key=first.count) if any(mark in first for mark in ",;\t|") else ","
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except csv.Error as exc:
        raise Refused(f"{file}, line {reader.line_num}: this is no CSV: {exc}.") from exc


def _columns(heading: list[str], file: str) -> dict[str, int]:
    columns: dict[str, int] = {}
    for place, name in enumerate(heading):
        column = _NAMES.get(" ".join(name.casefold().split()))
        if column is not None:
            columns.setdefault(column, place)
    if "title" not in columns:
        names = ", ".join(name.strip() for name in heading)[:200]
        raise Refused(f"{file}: no column holds the tasks. Name one task or title; there are: {names}.")
    return columns


def _csv_item(cells: dict[str, str], line: int, file: str) -> Item:
    item = Item(cells["title"], line, id=cells.get("id") or None, section=cells.get("section") or None)
    if cells.get("details"):
        item.details = cells["details"].splitlines()
    item.done = cells.get("done", "").casefold() in _DONE
    if cells.get("estimate"):
        found = _ESTIMATE.fullmatch(cells["estimate"])
        if found is None:
            raise Refused(f"{file}, line {line}: {cells['estimate']!r} is no estimate; write 3h, 30m, 2d or a number.")
        item.estimate = hours(found[1], found[2] or "h")
    for column, (kind, reverse) in _RELATIONS.items():
        for name in re.split(r"[;,|\n]", cells.get(column, "")):
            if name.strip():
                item.references.append(Reference(name.strip(), kind, reverse, line))
    return item
