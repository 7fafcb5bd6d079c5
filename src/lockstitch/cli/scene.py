"""A picture of a store as lines for people."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, cast

from rich.text import Text

from lockstitch.cli import forest
from lockstitch.cli.session import Session
from lockstitch.cli.status import status_word
from lockstitch.cli.table import Column, lay_out
from lockstitch.cli.text import age, clock_time, cost, one_line, plural
from lockstitch.records import Json, Thread, Worker, parse_time
from lockstitch.store.picture import OPEN, Picture

TODO: Final = 8
"""Tasks shown of one list."""

_MARKS = {"completed": ("✓", "green"), "in_progress": ("▸", "cyan"), "blocked": ("✗", "red")}

_WORKERS = [
    Column("WORKER"),
    Column("HOLDS", right=True),
    Column("BEAT", right=True),
    Column("DOING", flexible=True),
]


def scene(session: Session, picture: Picture, width: int | None) -> list[Text]:
    """All of it. The most important comes first, since a terminal shows only so many lines."""
    lines = [_header(session, picture), _sums(picture)]
    if picture.workers:
        rows = [_worker(picture, worker) for worker in picture.workers]
        lines += [Text(), *lay_out(_WORKERS, rows, width)]
    if picture.trees:
        lines += [Text(), *lay_out(forest.COLUMNS, list(forest.rows(picture.trees, picture.at)), width)]
    for tree in picture.trees:
        for node, _ in tree.walk():
            if node.thread.status == "running" and node.thread.tasks:
                lines += [Text(), *_todo(node.thread)]
    return lines


def _header(session: Session, picture: Picture) -> Text:
    scope = f"project {one_line(session.project)}" if session.project_named else "all projects"
    return Text(f"{clock_time(picture.at)[:8]}Z  {one_line(session.shown)}  {scope}", style="dim")


def _sums(picture: Picture) -> Text:
    counted = [Text(f"{picture.counts[word]:,} ") + status_word(word) for word in OPEN]
    spent = [f"{cost(picture.cost_today) or '$0'} today", f"{cost(picture.cost_shown) or '$0'} shown here"]
    return Text(" · ").join([*counted, *map(Text, spent)])


def _worker(picture: Picture, worker: Worker) -> list[str | Text]:
    silent = picture.since_beat(worker)
    late = silent > worker.lease_seconds
    style = "dim" if worker.dead else "red" if late else ""
    state = " (dead)" if worker.dead else " (silent)" if late else ""
    held = picture.held.get(worker.id, [])
    return [
        Text(f"{one_line(worker.host)} {worker.pid}{state}", style=style),
        Text(f"{len(held):,}", style=style),
        Text(f"{silent:.0f}s", style=style),
        Text(", ".join(_doing(picture, worker, held)) or "nothing", style=style),
    ]


def _doing(picture: Picture, worker: Worker, held: list[Thread]) -> Iterator[str]:
    """What it told with its last beat of the threads that it still holds."""
    for thread in held:
        told: Any = worker.doing.get(str(thread.id))
        bag = cast("Json", told) if isinstance(told, dict) else {}
        parts = (forest.name_of(thread) or str(thread.id), one_line(str(bag.get("act") or "")), _since(bag, picture.at))
        yield " ".join(part for part in parts if part)


def _since(told: Json, now: datetime) -> str:
    try:
        return age(parse_time(str(told["since"])), now)
    except (KeyError, ValueError):
        return ""


def _todo(thread: Thread) -> Iterator[Text]:
    yield Text(f"TODO {forest.tasks_done(thread)}  ", style="bold") + Text(forest.name_of(thread) or str(thread.id))
    # What is done is the least interesting, so it gives way first.
    order = sorted(range(len(thread.tasks)), key=lambda number: thread.tasks[number].get("status") == "completed")
    shown = sorted(order[:TODO])
    for number in shown:
        task = thread.tasks[number]
        mark, style = _MARKS.get(str(task.get("status")), ("·", "dim"))
        yield Text(f"  {mark} ", style=style) + Text(one_line(str(task.get("description", ""))))
    if len(shown) < len(thread.tasks):
        yield Text(f"  and {plural(len(thread.tasks) - len(shown), 'more', 'more')}", style="dim")
