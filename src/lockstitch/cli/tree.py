"""A run as a tree of lines: what called what, when it began, how long it took, what it cost."""

from datetime import datetime

from rich.text import Text

from lockstitch.cli.forest import branch
from lockstitch.cli.output import Output
from lockstitch.cli.status import status_word
from lockstitch.cli.table import Column
from lockstitch.cli.text import cost, duration, one_line, plural
from lockstitch.store.traces import Trace
from lockstitch.store.tracing import Node

_COLOURS = {"run": "bold", "model": "green", "tool": "magenta", "thread": "cyan", "event": "yellow"}
_WRONG = ("error", "failed", "in_doubt", "denied")

_BAR = 24
"""Columns of the picture of when each began and how long it took."""

_WIDE = 150
"""Columns from which on there is room for it."""


def show(out: Output, traced: Trace) -> None:
    """The tree as a table, and how much of it is not there."""
    root = traced.root
    wide = out.width is not None and out.width >= _WIDE
    columns = [
        Column("WHAT", flexible=True),
        Column("STATUS"),
        Column("BEGAN", right=True),
        Column("TOOK", right=True),
        Column("TOKENS", right=True, from_width=90),
        Column("COST", right=True, from_width=80),
        *([Column("WHEN")] if wide else []),
        Column("SAYS", flexible=True, from_width=60),
    ]
    whole = _milliseconds(root, root.start)
    rows: list[list[str | Text]] = []
    for node, place in root.walk():
        began = (node.start - root.start).total_seconds() * 1000
        rows.append(
            [
                Text(branch(place), style="dim") + Text(_name(node), style=_COLOURS.get(node.kind, "")),
                _status(node),
                f"+{duration(began) or '0 ms'}" if began >= 0 else f"-{duration(-began)}",
                duration(node.duration_ms),
                _tokens(node),
                cost(node.cost),
                *([Text(_bar(began, node.duration_ms or 0, whole), style="dim")] if wide else []),
                _says(node),
            ]
        )
    out.table(columns, rows)
    if traced.left_off:
        more = "or --depth for the upper levels" if traced.shown > 1 else "or a larger --depth"
        out.note(f"{plural(traced.left_off, 'more line')} left off; --limit shows more, {more}.")


def _name(node: Node) -> str:
    name = one_line(node.name) or node.type
    match node.kind:
        case "model":
            step = f"{node.step} " if node.step else ""
            return f"{step}{name} ({one_line(node.label)})" if node.label else f"{step}{name}"
        case "span":
            return f"{name} ({one_line(node.label)})" if node.label else name
        case "thread":
            return f"thread {one_line(node.name)}".rstrip()
        case "event":
            return node.type if node.name is None else f"{node.type} {name}"
        case _:
            return name


def _status(node: Node) -> Text:
    word = one_line(node.status) or ("open" if node.type == "tool_use" else "")
    if word in _WRONG:
        return Text(word, style="red")
    return status_word(word)


def _tokens(node: Node) -> str:
    return "" if node.usage is None else f"{node.usage['input_tokens']:,} → {node.usage['output_tokens']:,}"


def _says(node: Node) -> Text:
    parts: list[Text] = []
    if node.left_off:
        parts.append(Text(f"(+{node.left_off:,} below)", style="dim"))
    if node.kind == "thread":
        parts.append(Text(str(node.id)))
    if node.args:
        parts.append(Text(one_line(node.args), style="dim"))
    if node.text:
        parts.append(Text(f"→ {one_line(node.text)}" if node.kind == "tool" else one_line(node.text)))
    if node.error and node.error != node.text:
        parts.append(Text(one_line(node.error), style="red"))
    return Text(" ").join(parts)


def _milliseconds(root: Node, origin: datetime) -> float:
    """From the beginning to whatever ends last."""
    ends = ((node.start - origin).total_seconds() * 1000 + (node.duration_ms or 0) for node, _ in root.walk())
    return max(1.0, *ends, 1.0)


def _bar(began: float, took: float, whole: float) -> str:
    first = min(_BAR - 1, max(0, int(began / whole * _BAR)))
    long = min(_BAR - first, max(1, round(took / whole * _BAR)))
    return "·" * first + "━" * long + "·" * (_BAR - first - long)
