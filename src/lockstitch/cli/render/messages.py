"""Messages and stitches as text."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from lockstitch.cli.render.output import Output, TableColumn, clock_time, one_line, safe
from lockstitch.model import ERROR_TYPES, Json, Message, Stitch
from lockstitch.store.reports import lines

_SPEAKERS = {"user": "bold cyan", "assistant": "bold green"}


def show(out: Output, messages: Sequence[Message]) -> None:
    """Print a conversation, one message after the other."""
    for number, message in enumerate(messages):
        if number:
            out.line()
        role = str(message.get("role", ""))
        out.line(role, style=_SPEAKERS.get(role, "bold"))
        for block in lines.message_blocks(message):
            out.line(part(block), indent=2)


def part(block: Json) -> Text:
    """Return one block of a message as text."""
    kind = str(block.get("type", ""))
    style = "dim"
    if kind == "text":
        style = ""
    elif kind.endswith("tool_use"):
        style = "magenta"
    elif kind.endswith("tool_result"):
        style = "red" if block.get("is_error") else ""
    return Text(safe(lines.block_text(block)), style=style)


def arguments_line(name: str, arguments: Any) -> str:
    """Return a call of a tool on one line."""
    return one_line(lines.call_text(name, arguments))


_COLOURS = {"input": "cyan", "llm_call": "green", "tool_call": "magenta", "compaction": "yellow", "fork": "yellow"}

COLUMNS = [
    TableColumn("POS", right=True),
    TableColumn("STEP", right=True),
    TableColumn("TIME"),
    TableColumn("TYPE"),
    TableColumn("MS", right=True),
    TableColumn("WHAT", flexible=True),
]


def row(stitch: Stitch) -> list[str | Text]:
    """Return a stitch as a row of a log table."""
    return [
        str(stitch.position),
        "" if stitch.step_number is None else str(stitch.step_number),
        clock_time(stitch.at),
        kind(stitch),
        "" if stitch.duration_ms is None else f"{stitch.duration_ms:,}",
        what(stitch),
    ]


def what(stitch: Stitch) -> str:
    """Return the content of a stitch on one line."""
    return one_line(lines.stitch_line(stitch))


def kind(stitch: Stitch) -> Text:
    """Return the type of a stitch in its colour."""
    failed = stitch.type in ERROR_TYPES or stitch.status == "error"
    return Text(one_line(stitch.type), style="red" if failed else _COLOURS.get(stitch.type, "dim"))


def line(stitch: Stitch, *, with_thread: bool = False) -> Text:
    """Return a stitch as a line of `tail`. With `with_thread`, the line contains the thread id."""
    place = f"{stitch.thread_id}:{stitch.position}" if with_thread else f"{stitch.position:>5}"
    parts = [Text(place, style="dim"), Text(clock_time(stitch.at), style="dim"), kind(stitch), Text(what(stitch))]
    return Text("  ").join(parts)
