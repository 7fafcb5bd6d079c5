"""Lists of tasks as people keep them: read from Markdown or CSV into documents, their tasks, and who waits for whom.

What cannot be understood is refused with its line; nothing is guessed and nothing is dropped in silence.
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
"""How sure it is that a task waits for those written below it."""

_ESTIMATE: Final = re.compile(
    r"(?:^|\s)[(\[]?~?(?P<number>\d+(?:[.,]\d+)?)\s?(?P<unit>h|hrs?|hours?|m|mins?|minutes?|d|days?)[)\]]?$",
    re.IGNORECASE,
)
_HOURS: Final = {"h": 1.0, "m": 1 / 60, "d": 8.0}
_SLUG: Final = re.compile(r"[^\W_]+")
_SLUG_LENGTH: Final = 48


@dataclass(frozen=True, slots=True)
class Reference:
    """What a task says of another: by its id or its title, and on which line."""

    to: str
    kind: RelationshipType
    reverse: bool
    """Whether the other one waits for this one."""
    line: int


@dataclass(slots=True)
class Item:
    """A task as it stands in a list."""

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
    """A document as it stands in a file."""

    title: str
    text: str
    items: list[Item] = field(default_factory=list[Item])


@dataclass(frozen=True, slots=True)
class Relation:
    """That one task waits for another, as its author says."""

    source: str
    target: str
    kind: RelationshipType
    confidence: float


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """A document, its text, and the tasks that are still to be done."""

    title: str
    text: str
    tasks: list[Task]


@dataclass(frozen=True, slots=True)
class TaskList:
    """What a file holds."""

    documents: list[TaskDocument]
    relations: list[Relation]

    @property
    def tasks(self) -> list[Task]:
        return [task for document in self.documents for task in document.tasks]


def build_list(sheets: Sequence[Sheet], name: str, selected: Sequence[str] = ()) -> TaskList:
    """Return the documents and relations of parsed sheets. `taken` are ids that other documents have.

    Raises Refused with the line if a task waits for itself or for an unknown task, or if there are no tasks.
    """
    items = [item for sheet in sheets for item in sheet.items]
    if not items:
        raise Refused(f"{name}: no tasks found. A task is a line like “- [ ] Write the brief”, or a row of a CSV file.")
    if len(items) > MAX_TASKS:
        raise Refused(f"{name} has {len(items):,} tasks, and {MAX_TASKS:,} are the limit; split it.")
    if all(item.done for item in items):
        raise Refused(f"{name}: no tasks found that are still to be done; all {len(items)} are.")
    ids = _ids(items, set(selected), name)
    relations = _relations(items, ids, name)
    for place, item in enumerate(items):
        item.id = ids[place]
    documents = [TaskDocument(sheet.title, sheet.text, _tasks(sheet.items, name)) for sheet in sheets]
    return TaskList([document for document in documents if document.tasks], relations)


def as_text(content: bytes | str, name: str) -> str:
    """Text as it can be kept, or Refused."""
    if len(content) > MAX_BYTES:
        raise Refused(f"{name} has {len(content):,} bytes, and {MAX_BYTES:,} are the limit; split it.")
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise Refused(f"{name} is no text in UTF-8 (byte {exc.start}); a list is Markdown or CSV.") from exc
    if "\x00" in content:
        raise Refused(f"{name} is no text: it contains NUL; a list is Markdown or CSV.")
    return content


def estimate_in(text: str) -> tuple[str, Hours | None]:
    """A title without the estimate at its end, and that in hours: "Test it (3h)", "Test it 30 min", "Test it ~2d"."""
    match = _ESTIMATE.search(text)
    if match is None or not text[: match.start()].strip():
        return text, None
    return text[: match.start()].rstrip(" ,-\u2013\u2014:"), hours(match["number"], match["unit"])


def hours(number: str, unit: str = "h") -> float:
    return round(float(number.replace(",", ".")) * _HOURS[unit[0].lower()], 2)


def slug(text: str) -> str:
    """A text as an id that people can read and type."""
    words = _SLUG.findall(text.casefold())
    result = ""
    for word in words:
        if result and len(result) + len(word) >= _SLUG_LENGTH:
            break
        result = f"{result}-{word}" if result else word[:_SLUG_LENGTH]
    return result or "task"


def _ids(items: Sequence[Item], selected: set[str], name: str) -> dict[int, str]:
    """An id for each item, by its place: its own, or one made of its title. None is given twice."""
    counter = Counter(item.id for item in items if item.id is not None)
    for item in items:
        if item.id is not None and counter[item.id] > 1:
            raise Refused(f"{name}, line {item.line}: the id {item.id} is given to {counter[item.id]} tasks.")
    used = selected | set(counter) - {None}
    result: dict[int, str] = {}
    for place, item in enumerate(items):
        if item.id is not None and item.id not in selected:
            result[place] = item.id
            continue
        # Another document has this id: the reader of both needs two.
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
        raise Refused(f"{name}, line {item.line}: its {problem['loc'][0]}: {problem['msg']}.") from exc


def _relations(items: Sequence[Item], ids: dict[int, str], name: str) -> list[Relation]:
    """Who waits for whom, as it is written. What waits for something that is done waits no more."""
    # As they are written before as they sound: x and X may be two tasks.
    authors = {item.id.casefold(): place for place, item in enumerate(items) if item.id is not None}
    authors |= {item.id: place for place, item in enumerate(items) if item.id is not None}
    titles: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        titles.setdefault(_plain(item.title), []).append(place)
    ordered = sorted(titles)
    relations: dict[tuple[str, str, str], Relation] = {}
    places = {id(item): place for place, item in enumerate(items)}
    for place, item in enumerate(items):
        messages: list[tuple[int, RelationshipType, bool, float]] = [
            (_resolved(reference, authors, titles, ordered, name), reference.kind, reference.reverse, 1.0)
            for reference in item.references
        ]
        if item.parent is not None:
            messages.append((places[id(item.parent)], "prerequisite", True, NESTED))
        for other, kind, reverse, sure in messages:
            if other == place:
                raise Refused(f"{name}, line {item.line}: “{item.title}” cannot wait for itself.")
            if item.done or items[other].done:
                continue
            source, target = (other, place) if reverse else (place, other)
            relation = Relation(ids[source], ids[target], kind, sure)
            relations.setdefault((relation.source, relation.target, relation.kind), relation)
    return list(relations.values())


def _resolved(
    reference: Reference, authors: dict[str, int], titles: dict[str, list[int]], ordered: Sequence[str], name: str
) -> int:
    """The place of the task that a reference means: by id, by title, or by the beginning of one title alone.

    `ordered` are the titles in the order of the alphabet.
    """
    plain = _plain(reference.to)
    for text in (reference.to, plain):
        if text in authors:
            return authors[text]
    if len(titles.get(plain, ())) == 1:
        return titles[plain][0]
    # A letter or two begin many titles; with a colon behind them they are what their author calls the task.
    start = plain if len(plain) > 2 else f"{plain}:"
    begins: list[int] = []
    for title in ordered[bisect_left(ordered, start) :]:
        if not title.startswith(start):
            break
        begins += titles[title]
    if len(begins) == 1:
        return begins[0]
    many = len(titles.get(plain) or begins)
    text = f"means {many} tasks; give them ids" if many > 1 else "is no task of this list"
    raise Refused(f"{name}, line {reference.line}: “{reference.to}” {text}.")


def _plain(text: str) -> str:
    return " ".join(text.casefold().strip(" .“”\"'`#").split())
