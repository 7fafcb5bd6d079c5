"""Trees of threads as lines: how each stands, what it has done, and whom it waits for since when."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from lockstitch.cli.status import status, waits_since
from lockstitch.cli.table import Column
from lockstitch.cli.text import age, cost, one_line
from lockstitch.records import Thread
from lockstitch.store.forest import Node

COLUMNS = [
    Column("THREAD"),
    Column("STATUS"),
    Column("TASKS", right=True, from_width=90),
    Column("STITCHES", right=True, from_width=100),
    Column("CHILDREN", right=True, from_width=130),
    Column("COST", right=True, from_width=100),
    Column("AGE", right=True, from_width=130),
    Column("AGENT", flexible=True, from_width=130),
    Column("NAME", flexible=True),
    Column("WAITS FOR", flexible=True),
]


def rows(nodes: Sequence[Node], now: datetime) -> Iterator[list[str | Text]]:
    """A row per thread, every child below its parent."""
    for root in nodes:
        for node, place in root.walk():
            thread = node.thread
            yield [
                Text(branch(place), style="dim") + Text(str(thread.id)),
                status(thread),
                tasks_done(thread),
                f"{thread.position:,}",
                f"{len(node.children):,}" if node.children else "",
                cost(node.overview.total_cost),
                age(thread.updated_at, now),
                f"{thread.kind} {one_line(thread.agent)}".strip(),
                Text(name_of(thread)),
                Text(waits_since(thread, now), style="yellow"),
            ]


def name_of(thread: Thread) -> str:
    """What people call a thread: its key, else its title, else its goal."""
    return one_line(thread.key or thread.title or thread.goal)


def tasks_done(thread: Thread) -> str:
    """How much of its todo list a thread has done."""
    done = sum(task.get("status") == "completed" for task in thread.tasks)
    return f"{done}/{len(thread.tasks)}" if thread.tasks else ""


def branch(place: Sequence[bool]) -> str:
    """The lines that lead to a node of a tree."""
    if not place:
        return ""
    return "".join("   " if last else "│  " for last in place[:-1]) + ("└─ " if place[-1] else "├─ ")
