"""The difference of two runs as lines: first as wholes, then step by step."""

from typing import Any

from rich.text import Text

from lockstitch.cli.output import Output
from lockstitch.cli.table import Column
from lockstitch.cli.text import cost, duration, one_line, plural, safe
from lockstitch.records import codec
from lockstitch.store.difference import Change, Difference, Pair, Step

_COLUMNS = [Column(""), Column("A", flexible=True), Column("B", flexible=True)]
_LONGEST = 200


def show_difference(out: Output, found: Difference) -> None:
    """What is not the same; in JSON all of it."""
    if out.as_json:
        out.json(found.as_json())
        return
    rows = [["run", str(found.a.id), str(found.b.id)]]
    rows += [[change.name.replace("_", " "), *_both(change)] for change in found.changes]
    out.table(_COLUMNS, rows)
    same = 0
    for number, pair in enumerate(found.pairs, 1):
        if pair.same:
            same += 1
            continue
        out.line()
        _show_pair(out, number, pair)
    out.line()
    out.line(f"{plural(same, 'step')} the same, {plural(len(found.pairs) - same, 'step')} not.", style="dim")


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
    told = [duration(step.told.get("duration_ms")), cost(step.told.get("total_cost"))]
    return " ".join(part for part in (step.kind, one_line(step.name), *told) if part)


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
