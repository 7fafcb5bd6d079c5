"""A run as a tree, and the difference of two runs."""

from datetime import datetime
from typing import Any

from rich.text import Text

from lockstitch.cli.render.output import Output, TableColumn, cost, duration, one_line, plural, safe
from lockstitch.cli.render.threads import branch, status_word
from lockstitch.model import codec
from lockstitch.store.reports.diff import Change, Difference, Pair, Step
from lockstitch.store.reports.trace import Node
from lockstitch.store.reports.traces import Trace

_COLOURS = {"run": "bold", "model": "green", "tool": "magenta", "thread": "cyan", "event": "yellow"}
_WRONG = ("error", "failed", "in_doubt", "denied")

_BAR = 24
"""Width of the timeline in columns."""

_WIDE = 150
"""Minimum width of the terminal for the timeline."""


def show(out: Output, traced: Trace) -> None:
    """Print the tree as a table, and the number of omitted lines."""
    root = traced.root
    wide = out.width is not None and out.width >= _WIDE
    columns = [
        TableColumn("WHAT", flexible=True),
        TableColumn("STATUS"),
        TableColumn("START", right=True),
        TableColumn("DURATION", right=True),
        TableColumn("TOKENS", right=True, from_width=90),
        TableColumn("COST", right=True, from_width=80),
        *([TableColumn("TIMELINE")] if wide else []),
        TableColumn("CONTENT", flexible=True, from_width=60),
    ]
    total = _milliseconds(root, root.start)
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
                *([Text(_bar(began, node.duration_ms or 0, total), style="dim")] if wide else []),
                _summary(node),
            ]
        )
    out.table(columns, rows)
    if traced.omitted:
        advice = "or use --depth for the upper levels" if traced.shown > 1 else "or a larger --depth"
        out.note(f"{plural(traced.omitted, 'more line')} omitted. Use a larger --limit, {advice}.")


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


def _summary(node: Node) -> Text:
    parts: list[Text] = []
    if node.omitted:
        parts.append(Text(f"(+{node.omitted:,} below)", style="dim"))
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
    """Return the milliseconds from the start to the end of the last node."""
    ends = ((node.start - origin).total_seconds() * 1000 + (node.duration_ms or 0) for node, _ in root.walk())
    return max(1.0, *ends, 1.0)


def _bar(began: float, took: float, total: float) -> str:
    first = min(_BAR - 1, max(0, int(began / total * _BAR)))
    long = min(_BAR - first, max(1, round(took / total * _BAR)))
    return "·" * first + "━" * long + "·" * (_BAR - first - long)


_COLUMNS = [TableColumn(""), TableColumn("A", flexible=True), TableColumn("B", flexible=True)]
_LONGEST = 200


def show_difference(out: Output, difference: Difference) -> None:
    """Print the differences of two runs. As JSON, print everything."""
    if out.as_json:
        out.json(difference.as_json())
        return
    rows = [["run", str(difference.a.id), str(difference.b.id)]]
    rows += [[change.name.replace("_", " "), *_both(change)] for change in difference.changes]
    out.table(_COLUMNS, rows)
    same = 0
    for number, pair in enumerate(difference.pairs, 1):
        if pair.same:
            same += 1
            continue
        out.line()
        _show_pair(out, number, pair)
    out.line()
    out.line(f"{plural(same, 'step')} equal, {plural(len(difference.pairs) - same, 'step')} different.", style="dim")


def _show_pair(out: Output, number: int, pair: Pair) -> None:
    if pair.a is None or pair.b is None:
        sign, step, style = ("-", pair.a, "red") if pair.a is not None else ("+", pair.b, "green")
        out.cropped(Text(f"{sign} {number} {_title(step)}", style=style))
        return
    out.cropped(Text(f"  {number} {_title(pair.a)}", style="bold"))
    for change in pair.changes:
        out.line(f"    {change.name}", style="dim")
        if change.lines:
            for line in change.lines:
                style = {"-": "red", "+": "green"}.get(line[:1], "dim")
                out.cropped(Text(f"      {safe(line)}", style=style))
            continue
        a, b = _both(change)
        out.cropped(Text(f"      - {a}", style="red"))
        out.cropped(Text(f"      + {b}", style="green"))


def _title(step: Step | None) -> str:
    if step is None:
        return ""
    messages = [duration(step.details.get("duration_ms")), cost(step.details.get("total_cost"))]
    return " ".join(part for part in (step.kind, one_line(step.name), *messages) if part)


def _both(change: Change) -> list[str]:
    return [_shown(change.name, value) for value in (change.a, change.b)]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "(none)"
    if name == "duration_ms":
        return duration(value)
    if name == "total_cost":
        return cost(value)
    text = value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else codec.dumps(value).decode()
    line = one_line(text[: _LONGEST * 10])
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
