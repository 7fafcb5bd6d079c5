"""`build_list()`: documents, tasks and dependencies from parsed Markdown or CSV.

Input that is not valid raises `Refused` with the line. Nothing is guessed or ignored.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from pydantic import ValidationError

from lockstitch import Refused
from lockstitch.apps.prioritizer.models import Hours, RelationshipType, Task

MAX_BYTES: Final = 5_000_000
MAX_TASKS: Final = 2_000

NESTED: Final = 0.8
"""Confidence that a task waits for the tasks nested below it."""

_ESTIMATE: Final = re.compile(
    r"(?:^|\s)[(\[]?~?(?P<number>\d+(?:[.,]\d+)?)\s?(?P<unit>h|hrs?|hours?|m|mins?|minutes?|d|days?)[)\]]?$",
    re.IGNORECASE,
)
_HOURS: Final = {"h": 1.0, "m": 1 / 60, "d": 8.0}
_SLUG: Final = re.compile(r"[^\W_]+")
_SLUG_LENGTH: Final = 48


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a task to another task, by id or title."""

    to: str
    kind: RelationshipType
    reverse: bool
    """True if the other task waits for this one."""
    line: int


@dataclass(slots=True)
class Item:
    """A task in a list."""

    title: str
    line: int
    id: str | None = None
    details: list[str] = field(default_factory=list[str])
    section: str | None = None
    estimate: float | None = None
    done: bool = False
    references: list[Reference] = field(default_factory=list[Reference])
    parent: "Item | None" = None


@dataclass(slots=True)
class Sheet:
    """A document in a file."""

    title: str
    text: str
    items: list[Item] = field(default_factory=list[Item])


@dataclass(frozen=True, slots=True)
class Relation:
    """A dependency that a list states: the source waits for the target."""

    source: str
    target: str
    kind: RelationshipType
    confidence: float


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """A document with its text and its open tasks."""

    title: str
    text: str
    tasks: list[Task]


@dataclass(frozen=True, slots=True)
class TaskList:
    """The content of a file."""

    documents: list[TaskDocument]
    relations: list[Relation]

    @property
    def tasks(self) -> list[Task]:
        return [task for document in self.documents for task in document.tasks]


def build_list(sheets: Sequence[Sheet], name: str, used_ids: Sequence[str] = ()) -> TaskList:
    """Return the documents and relations of parsed sheets. `used_ids` are ids of other documents.

    Raises `Refused` with the line if a task waits for itself or for an unknown task, or if there are no tasks.
    """
    items = [item for sheet in sheets for item in sheet.items]
    if not items:
        raise Refused(f"{name}: no tasks found. A task is a line like “- [ ] Write the brief”, or a row of a CSV file.")
    if len(items) > MAX_TASKS:
        raise Refused(f"{name} has {len(items):,} tasks, and the limit is {MAX_TASKS:,}. Split it.")
    if all(item.done for item in items):
        raise Refused(f"{name}: no open tasks found. All {len(items)} are done.")
    ids = _ids(items, set(used_ids), name)
    relations = _relations(items, ids, name)
    for place, item in enumerate(items):
        item.id = ids[place]
    documents = [TaskDocument(sheet.title, sheet.text, _tasks(sheet.items, name)) for sheet in sheets]
    return TaskList([document for document in documents if document.tasks], relations)


def as_text(content: bytes | str, name: str) -> str:
    """Decode the content. Raises `Refused` if it is too large or not text."""
    if len(content) > MAX_BYTES:
        raise Refused(f"{name} has {len(content):,} bytes, and the limit is {MAX_BYTES:,}. Split it.")
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise Refused(f"{name} is not UTF-8 text (byte {exc.start}). Use Markdown or CSV.") from exc
    if "\x00" in content:
        raise Refused(f"{name} is not text: it contains NUL. Use Markdown or CSV.")
    return content


def estimate_in(text: str) -> tuple[str, Hours | None]:
    """Return a title without its estimate, and the hours: "Test it (3h)", "Test it 30 min", "Test it ~2d"."""
    match = _ESTIMATE.search(text)
    if match is None or not text[: match.start()].strip():
        return text, None
    return text[: match.start()].rstrip(" ,-\u2013\u2014:"), hours(match["number"], match["unit"])


def hours(number: str, unit: str = "h") -> float:
    return round(float(number.replace(",", ".")) * _HOURS[unit[0].lower()], 2)


def slug(text: str) -> str:
    """Return a readable id for a text."""
    words = _SLUG.findall(text.casefold())
    result = ""
    for word in words:
        if result and len(result) + len(word) >= _SLUG_LENGTH:
            break
        result = f"{result}-{word}" if result else word[:_SLUG_LENGTH]
    return result or "task"


def _ids(items: Sequence[Item], used_ids: set[str], name: str) -> dict[int, str]:
    """Return a unique id for each item by its index: its own id, or an id from its title."""
    counter = Counter(item.id for item in items if item.id is not None)
    for item in items:
        if item.id is not None and counter[item.id] > 1:
            raise Refused(f"{name}, line {item.line}: {counter[item.id]} tasks have the id {item.id}.")
    used = used_ids | set(counter) - {None}
    result: dict[int, str] = {}
    for place, item in enumerate(items):
        if item.id is not None and item.id not in used_ids:
            result[place] = item.id
            continue
        # Another document has this id, so add the name of the file.
        wanted = slug(item.title) if item.id is None else f"{item.id}@{slug(PurePath(name).stem)}"
        number, id = 1, wanted
        while id in used:
            number += 1
            id = f"{wanted}-{number}"
        used.add(id)
        result[place] = id
    return result


def _tasks(items: Sequence[Item], name: str) -> list[Task]:
    return [_task(item, name) for item in items if not item.done]


def _task(item: Item, name: str) -> Task:
    try:
        return Task(
            id=item.id or "",
            title=item.title,
            details="\n".join(item.details),
            section=item.section,
            estimate_hours=item.estimate,
            line=item.line,
        )
    except ValidationError as exc:
        problem = exc.errors()[0]
        raise Refused(f"{name}, line {item.line}: {problem['loc'][0]}: {problem['msg']}.") from exc


def _relations(items: Sequence[Item], ids: dict[int, str], name: str) -> list[Relation]:
    """Return the stated dependencies between open tasks."""
    # Exact ids take precedence: x and X can be two tasks.
    authors = {item.id.casefold(): place for place, item in enumerate(items) if item.id is not None}
    authors |= {item.id: place for place, item in enumerate(items) if item.id is not None}
    titles: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        titles.setdefault(_plain(item.title), []).append(place)
    ordered = sorted(titles)
    relations: dict[tuple[str, str, str], Relation] = {}
    places = {id(item): place for place, item in enumerate(items)}
    for place, item in enumerate(items):
        references: list[tuple[int, RelationshipType, bool, float]] = [
            (_resolved(reference, authors, titles, ordered, name), reference.kind, reference.reverse, 1.0)
            for reference in item.references
        ]
        if item.parent is not None:
            references.append((places[id(item.parent)], "prerequisite", True, NESTED))
        for other, kind, reverse, confidence in references:
            if other == place:
                raise Refused(f"{name}, line {item.line}: “{item.title}” cannot wait for itself.")
            if item.done or items[other].done:
                continue
            source, target = (other, place) if reverse else (place, other)
            relation = Relation(ids[source], ids[target], kind, confidence)
            relations.setdefault((relation.source, relation.target, relation.kind), relation)
    return list(relations.values())


def _resolved(
    reference: Reference, authors: dict[str, int], titles: dict[str, list[int]], ordered: Sequence[str], name: str
) -> int:
    """Return the index of the referenced task, by id, title or a unique prefix of a title.

    `ordered` are the sorted titles.
    """
    plain = _plain(reference.to)
    for text in (reference.to, plain):
        if text in authors:
            return authors[text]
    if len(titles.get(plain, ())) == 1:
        return titles[plain][0]
    # One or two letters are a prefix of many titles. With a colon they are a label of the task.
    start = plain if len(plain) > 2 else f"{plain}:"
    begins: list[int] = []
    for title in ordered[bisect_left(ordered, start) :]:
        if not title.startswith(start):
            break
        begins += titles[title]
    if len(begins) == 1:
        return begins[0]
    many = len(titles.get(plain) or begins)
    text = f"matches {many} tasks. Give them ids" if many > 1 else "is not a task of this list"
    raise Refused(f"{name}, line {reference.line}: “{reference.to}” {text}.")


def _plain(text: str) -> str:
    return " ".join(text.casefold().strip(" .“”\"'`#").split())
