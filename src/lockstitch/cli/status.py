"""How a thread or a run stands, in a word and its colour."""

from typing import Any

from rich.text import Text

from lockstitch.cli.text import one_line
from lockstitch.records import Run, Thread

_COLOURS = {
    "pending": "blue",
    "running": "cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}


def status(record: Thread | Run) -> Text:
    return Text(record.status, style=_COLOURS.get(record.status, ""))


def waits(thread: Thread) -> str:
    """What a waiting thread waits for."""
    return ", ".join(_reason(entry) for entry in thread.waiting_for)


def _reason(entry: dict[str, Any]) -> str:
    parts = [one_line(str(entry.get("kind", "")).replace("_", " "))]
    if entry.get("id"):
        parts.append(one_line(str(entry["id"])))
    if entry.get("until"):
        parts.append(f"until {one_line(str(entry['until']))}")
    return " ".join(parts)
