"""Threads: status, waits, trees."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from lockstitch.cli.render.output import TableColumn, age, cost, one_line, plural
from lockstitch.model import Json, Run, Thread, parse_time
from lockstitch.model.thread import open_waits
from lockstitch.store.queries.overview import Node

__all__ = ["explain", "open_waits"]


def explain(name: str, waits: Sequence[Json]) -> str:
    """The sentences that tell a person what to do."""
    return " ".join([f"Thread {one_line(name)} waits.", *(f"{_what(one)}: {_commands(name, one)}." for one in waits)])


def _what(wait: Json) -> str:
    kind = str(wait.get("kind"))
    call = " ".join(one_line(str(part)) for part in (wait.get("name"), wait.get("id")) if part)
    match kind:
        case "approval":
            return f"A person must agree to {call}"
        case "doubt":
            return f"Nobody knows whether {call} took effect before it was cut off"
        case "frontend_tools":
            return f"A browser must execute {call}"
        case "input":
            return "It asked something"
        case "retry":
            return f"It cannot go on with {call} ({one_line(str(wait.get('reason') or 'no reason given'))})"
        case _:
            until: Any = wait.get("until")
            return f"It waits for {one_line(kind)}{f' until {until}' if until else ''}"


def _commands(name: str, wait: Json) -> str:
    thread, call = shlex.quote(one_line(name)), shlex.quote(one_line(str(wait.get("id"))))
    match wait.get("kind"):
        case "approval":
            return f"`lockstitch approve {thread} {call}` or `lockstitch deny {thread} {call}`"
        case "doubt":
            return f'`lockstitch settle {thread} {call} --done "what it gave"` or `… --redo`'
        case "frontend_tools":
            return f"hand in its result with submit_results, or in `lockstitch chat AGENT --thread {thread}`"
        case "input":
            return f'`lockstitch answer {thread} "…"`'
        case _:
            return f"`lockstitch resume {thread}` looks again, `lockstitch cancel {thread}` ends it"


_COLOURS = {
    "pending": "blue",
    "running": "cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}


def status(record: Thread | Run) -> Text:
    return status_word(record.status)


def status_word(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def waits(thread: Thread) -> str:
    """What a waiting thread waits for."""
    return reasons(thread.waiting_for)


def waits_since(thread: Thread, now: datetime) -> str:
    """Whom a waiting thread waits for, and for how long already. An idle chat waits for nobody in particular."""
    waits = open_waits(thread.waiting_for) if thread.status == "waiting" else []
    return ", ".join(f"{_whom(one)} since {_age(one, now)}" for one in waits)


def _whom(wait: Json) -> str:
    name = one_line(str(wait.get("name") or wait.get("id") or ""))
    match wait.get("kind"):
        case "approval":
            return f"a person to allow {name}"
        case "doubt":
            return f"a person to settle {name}"
        case "input":
            return "a person to answer"
        case "frontend_tools":
            return f"a browser to do {name}"
        case "children":
            return plural(len(wait.get("ids") or ()), "child", "children")
        case "timer":
            return f"its time, {one_line(str(wait.get('until')))[:19]}Z,"
        case "retry":
            return one_line(str(wait.get("reason") or f"code for {name}"))
        case kind:
            return one_line(str(kind))


def _age(wait: Json, now: datetime) -> str:
    try:
        return age(parse_time(str(wait.get("since"))), now)
    except ValueError:
        return "?"


def reasons(waiting_for: Sequence[Json]) -> str:
    return ", ".join(_reason(entry) for entry in waiting_for)


def _reason(entry: Json) -> str:
    parts = [one_line(str(entry.get("kind", "")).replace("_", " "))]
    if entry.get("id"):
        parts.append(one_line(str(entry["id"])))
    if entry.get("until"):
        parts.append(f"until {one_line(str(entry['until']))}")
    return " ".join(parts)


COLUMNS = [
    TableColumn("THREAD"),
    TableColumn("STATUS"),
    TableColumn("TASKS", right=True, from_width=90),
    TableColumn("STITCHES", right=True, from_width=100),
    TableColumn("CHILDREN", right=True, from_width=130),
    TableColumn("COST", right=True, from_width=100),
    TableColumn("AGE", right=True, from_width=130),
    TableColumn("AGENT", flexible=True, from_width=130),
    TableColumn("NAME", flexible=True),
    TableColumn("WAITS FOR", flexible=True),
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
