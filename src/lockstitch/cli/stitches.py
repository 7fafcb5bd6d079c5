"""Stitches as people read them: one line each."""

from typing import Any

from rich.text import Text

from lockstitch.cli import messages
from lockstitch.cli.table import Column
from lockstitch.cli.text import clock_time, one_line
from lockstitch.records import ERRORS, Stitch, codec
from lockstitch.records.stitch import TAKEN_OVER

_COLOURS = {"input": "cyan", "llm_call": "green", "tool_call": "magenta", "compaction": "yellow", "fork": "yellow"}

COLUMNS = [
    Column("POS", right=True),
    Column("STEP", right=True),
    Column("TIME"),
    Column("TYPE"),
    Column("MS", right=True),
    Column("WHAT", flexible=True),
]


def row(stitch: Stitch) -> list[str | Text]:
    """A stitch as a row of a log."""
    return [
        str(stitch.position),
        "" if stitch.step_number is None else str(stitch.step_number),
        clock_time(stitch.at),
        kind(stitch),
        "" if stitch.duration_ms is None else f"{stitch.duration_ms:,}",
        what(stitch),
    ]


def what(stitch: Stitch) -> str:
    """What a stitch tells, on one line."""
    if stitch.message is not None:
        name = f"{stitch.name} " if stitch.type == "tool_call" else ""
        return name + messages.as_line(stitch.message)
    if stitch.type == TAKEN_OVER:
        # The name says it in words.
        return one_line(stitch.name)
    problem = complaint(stitch)
    if problem:
        return " ".join(part for part in (one_line(stitch.name), problem) if part)
    return " ".join(part for part in (one_line(stitch.name), _data(stitch)) if part)


def complaint(stitch: Stitch) -> str:
    """The words of an error."""
    for name in ("error", "message", "error_message", "detail", "reason"):
        value: Any = stitch.data.get(name)
        if isinstance(value, str) and value:
            return one_line(value)
    return ""


def kind(stitch: Stitch) -> Text:
    """The type, in its colour."""
    failed = stitch.type in ERRORS or stitch.status == "error"
    return Text(one_line(stitch.type), style="red" if failed else _COLOURS.get(stitch.type, "dim"))


def line(stitch: Stitch, *, whole: bool = False) -> Text:
    """A stitch as `tail` shows it; `whole` says of which thread."""
    place = f"{stitch.thread_id}:{stitch.position}" if whole else f"{stitch.position:>5}"
    parts = [Text(place, style="dim"), Text(clock_time(stitch.at), style="dim"), kind(stitch), Text(what(stitch))]
    return Text("  ").join(parts)


def _data(stitch: Stitch) -> str:
    if stitch.parent_id is not None:
        # All that another system said about a span is for --json.
        return f"({one_line(stitch.data['kind'])})" if isinstance(stitch.data.get("kind"), str) else ""
    # How a request is rebuilt is for `lockstitch request`, not for people.
    shown = {name: value for name, value in stitch.data.items() if name != "request"}
    return one_line(codec.dumps(shown).decode()) if shown else ""
