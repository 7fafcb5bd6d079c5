"""`read_list()`: parse task lists in Markdown and CSV.

    # Checkout                                 a document
    ## Payment                                 a section of it
    - [ ] T4: Choose the provider (3h)         with an id and an estimate
    - [ ] Payment form (after: T4)             waits for it
      - [ ] 3-D Secure                         a part: "Payment form" waits for it
      Only for cards.                          details
    - [x] Refund policy                        done, so nothing waits for it
    - [ ] Receipts (after: payment form, T4; related: Refund policy)

A file without any `[ ]` has every list item as a task.

id,task,estimate,after,document
T1,Choose the provider,3h,,Checkout
T2,Payment form,8,T1,Checkout
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import PurePath
from typing import Final

from lockstitch import Refused
from lockstitch.apps.prioritizer.models import RelationshipType
from lockstitch.apps.prioritizer.task_lists import (
    Item,
    Reference,
    Sheet,
    TaskList,
    as_text,
    build_list,
    estimate_in,
    hours,
)

# Adjacent repetitions must not match the same text. Otherwise a long line needs exponential time.
_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})\s+(.*)$")
_ITEM: Final = re.compile(r"^(?P<indent>\s*)(?:[-*+]|\d{1,9}[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?(?P<text>\S.*)$")
_BOX: Final = re.compile(r"^[^\S\n]*(?:[-*+]|\d{1,9}[.)])[^\S\n]+\[[ xX]\][^\S\n]+\S", re.MULTILINE)
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_ID: Final = re.compile(
    r"^(?:\[(?P<boxed>[A-Za-z][\w.-]{0,30})\]\s*"
    r"|(?P<small>[a-z]{1,9}-?\d{1,9}):\s*"
    r"|(?P<plain>[A-Z][A-Z0-9]{0,9}-?\d{1,9})(?::|\.\s|\)\s|\s+[-\u2013\u2014]\s)\s*)"
)
_PARENTHESES: Final = re.compile(r"\(([^()]*)\)")
_ANNOTATION: Final = re.compile(
    r"\b(?:after|needs|requires|depends on|blocked by|before|blocks|related|related to|see|id)\s*:", re.IGNORECASE
)
_KINDS: Final[dict[str, tuple[RelationshipType, bool]]] = {
    **dict.fromkeys(("after", "needs", "requires", "depends on", "blocked by"), ("prerequisite", False)),
    **dict.fromkeys(("before", "blocks"), ("blocks", True)),
    **dict.fromkeys(("related", "related to", "see"), ("related", False)),
}


def read_markdown(text: str, title: str) -> list[Sheet]:
    """Return the documents of a Markdown text: one for each first-level heading, or one for all."""
    boxes = bool(_BOX.search(text))
    sheets = [Sheet(title, "")]
    section: str | None = None
    # The items that a line can belong to, with their indentation.
    above: list[tuple[int, Item]] = []
    fenced = False
    lines: list[list[str]] = [[]]
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) == 1:
            sheets.append(Sheet(_heading_text(heading[2]) or title, ""))
            lines.append([])
            section, above = None, []
        elif heading:
            section, above = _heading_text(heading[2]) or None, []
        lines[-1].append(line)
        if fence:
            fenced = not fenced
        if fence or heading or fenced:
            continue
        match = _ITEM.match(line.expandtabs(4))
        if match and (match["box"] is not None or not boxes):
            indent = len(match["indent"])
            above = [(depth, item) for depth, item in above if depth < indent]
            item = _markdown_item(match["text"], number)
            item.section, item.done = section, (match["box"] or " ") in "xX"
            item.parent = above[-1][1] if above else None
            above.append((indent, item))
            sheets[-1].items.append(item)
        elif above and line.strip() and line[:1].isspace():
            _detail(above, line)
        elif line.strip():
            above = []
    for sheet, own in zip(sheets, lines, strict=True):
        sheet.text = "\n".join(own).strip("\n")
    return [sheet for sheet in sheets if sheet.items]


def _heading_text(heading: str) -> str:
    """Return the text of a heading without closing number signs."""
    return heading.rstrip().rstrip("#").rstrip()


def _detail(above: list[tuple[int, Item]], line: str) -> None:
    """Add a line to the last task with less indentation."""
    indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
    owner = next((item for depth, item in reversed(above) if depth < indent), above[0][1])
    owner.details.append(line.strip())


def _markdown_item(text: str, line: int) -> Item:
    item = Item(title="", line=line)
    title, at = "", 0
    for match in _PARENTHESES.finditer(text):
        if _ANNOTATION.search(match[1]):
            for annotation in match[1].split(";"):
                _annotate(item, annotation, line)
            title += text[at : match.start()].rstrip()
            at = match.end()
    title = (title + text[at:]).strip()
    own = _ID.match(title)
    if own and title[own.end() :].strip():
        item.id = item.id or own["boxed"] or own["small"] or own["plain"]
        title = title[own.end() :].strip()
    title, item.estimate = estimate_in(title)
    item.title = re.sub(r"(\*\*|__|`)", "", title).strip() or text.strip()
    return item


def _annotate(item: Item, annotation: str, line: int) -> None:
    word, _, names = annotation.partition(":")
    kind = _KINDS.get(word.strip().lower())
    if word.strip().lower() == "id":
        item.id = names.strip() or None
    elif kind is not None:
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        item.references += [Reference(name, *kind, line) for name in wanted]


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
    """Return the documents of a CSV text: one for each value of the document column, or one for all."""
    rows = _rows(text, file)
    try:
        _, heading = next(rows)
    except StopIteration:
        return []
    columns = _columns(heading, file)
    sheets: dict[str, Sheet] = {}
    for line, row in rows:
        if len(row) > len(heading) and any(cell.strip() for cell in row[len(heading) :]):
            raise Refused(f"{file}, line {line}: {len(row)} cells for {len(heading)} columns. Check the quotes.")
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
    """Yield the rows that are not empty, with their line numbers."""
    first = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t|", key=first.count) if any(mark in first for mark in ",;\t|") else ","
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except csv.Error as exc:
        raise Refused(f"{file}, line {reader.line_num}: not valid CSV: {exc}.") from exc


def _columns(heading: list[str], file: str) -> dict[str, int]:
    columns: dict[str, int] = {}
    for place, name in enumerate(heading):
        column = _NAMES.get(" ".join(name.casefold().split()))
        if column is not None:
            columns.setdefault(column, place)
    if "title" not in columns:
        names = ", ".join(name.strip() for name in heading)[:200]
        raise Refused(f"{file}: no column has the tasks. Name a column task or title. Columns: {names}.")
    return columns


def _csv_item(cells: dict[str, str], line: int, file: str) -> Item:
    item = Item(cells["title"], line, id=cells.get("id") or None, section=cells.get("section") or None)
    if cells.get("details"):
        item.details = cells["details"].splitlines()
    item.done = cells.get("done", "").casefold() in _DONE
    if cells.get("estimate"):
        match = _ESTIMATE.fullmatch(cells["estimate"])
        if match is None:
            raise Refused(
                f"{file}, line {line}: {cells['estimate']!r} is not an estimate. Use 3h, 30m, 2d or a number."
            )
        item.estimate = hours(match[1], match[2] or "h")
    for column, (kind, reverse) in _RELATIONS.items():
        for name in re.split(r"[;,|\n]", cells.get(column, "")):
            if name.strip():
                item.references.append(Reference(name.strip(), kind, reverse, line))
    return item


def read_list(content: bytes | str, name: str, used_ids: Sequence[str] = ()) -> TaskList:
    """Return the tasks of a file. It is read as CSV if its name ends in .csv or .tsv, otherwise as Markdown.

    `used_ids` are ids of other documents. Raises `Refused` with the line if the file cannot be parsed.
    """
    text = as_text(content, name)
    title = PurePath(name).stem or "Tasks"
    sheets = read_csv(text, title, name) if name.lower().endswith((".csv", ".tsv")) else read_markdown(text, title)
    return build_list(sheets, name, used_ids)
