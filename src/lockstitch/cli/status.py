"""How a thread or a run stands, in a word and its colour."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from lockstitch.cli.text import age, one_line, plural
from lockstitch.cli.waits import open_waits
from lockstitch.records import Json, Run, Thread, parse_time

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
