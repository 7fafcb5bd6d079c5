"""Messages and stitches as text."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from rich.text import Text

from lockstitch.cli.render.output import Output, TableColumn, clock_time, one_line, safe, size
from lockstitch.model import ERROR_TYPES, Json, Message, Stitch, codec
from lockstitch.model.message import blocks
from lockstitch.model.stitch import TAKEN_OVER

_SPEAKERS = {"user": "bold cyan", "assistant": "bold green"}


def show(out: Output, messages: Sequence[Message]) -> None:
    """Print a conversation, one message after the other."""
    for number, message in enumerate(messages):
        if number:
            out.line()
        role = str(message.get("role", ""))
        out.line(role, style=_SPEAKERS.get(role, "bold"))
        for part in _parts(message):
            out.line(part, indent=2)


def as_line(message: Message | None) -> str:
    """Return the text of a message on one line."""
    return one_line(" ".join(part.plain for part in _parts(message))) if message else ""


def _parts(message: Message) -> Iterator[Text]:
    # A tool_call stitch contains the block without a role.
    if "role" not in message and "type" in message:
        yield part(message)
        return
    for block in blocks(message):
        yield part(block)


def part(block: Json) -> Text:
    """Return one block of a message as text."""
    kind = str(block.get("type", ""))
    if kind == "text":
        return Text(safe(str(block.get("text", ""))))
    if kind == "thinking":
        return Text(f"(thinking) {safe(str(block.get('thinking', '')))}", style="dim")
    if kind.endswith("tool_use"):
        return Text(f"→ {safe(str(block.get('name')))}({_inline(block.get('input'))})", style="magenta")
    if kind.endswith("tool_result"):
        failed = bool(block.get("is_error"))
        return Text(f"{'✗' if failed else '←'} {_result(block.get('content'))}", style="red" if failed else "")
    return Text(f"[{safe(kind)} {_described(block)}]", style="dim")


def arguments_line(name: str, arguments: Any) -> str:
    """Return a call of a tool on one line."""
    return one_line(f"{name}({_inline(arguments)})")


def _result(content: Any) -> str:
    if isinstance(content, list):
        return safe(" ".join(part(cast("Json", block)).plain for block in cast("list[Any]", content)))
    return safe(content) if isinstance(content, str) else _inline(content)


def _described(block: Json) -> str:
    source: Any = block.get("source")
    if not isinstance(source, dict):
        return _inline({name: value for name, value in block.items() if name != "type"})
    bag = cast("Json", source)
    where = bag.get("url") or bag.get("file_id") or ""
    data: Any = bag.get("data")
    amount = size(len(data) * 3 // 4) if isinstance(data, str) else ""
    return safe(" ".join(str(part) for part in (bag.get("media_type"), where, amount) if part))


def _inline(value: Any) -> str:
    return "" if value is None or value == {} else safe(codec.dumps(value).decode())


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
    if stitch.message is not None:
        name = f"{stitch.name} " if stitch.type == "tool_call" else ""
        return name + as_line(stitch.message)
    if stitch.type == TAKEN_OVER:
        # The name contains the description.
        return one_line(stitch.name)
    problem = complaint(stitch)
    if problem:
        return " ".join(part for part in (one_line(stitch.name), problem) if part)
    return " ".join(part for part in (one_line(stitch.name), _data(stitch)) if part)


def complaint(stitch: Stitch) -> str:
    """Return the error text of a stitch, or an empty string."""
    for name in ("error", "message", "error_message", "detail", "reason"):
        value: Any = stitch.data.get(name)
        if isinstance(value, str) and value:
            return one_line(value)
    return ""


def kind(stitch: Stitch) -> Text:
    """Return the type of a stitch in its colour."""
    failed = stitch.type in ERROR_TYPES or stitch.status == "error"
    return Text(one_line(stitch.type), style="red" if failed else _COLOURS.get(stitch.type, "dim"))


def line(stitch: Stitch, *, with_thread: bool = False) -> Text:
    """Return a stitch as a line of `tail`. With `with_thread`, the line contains the thread id."""
    place = f"{stitch.thread_id}:{stitch.position}" if with_thread else f"{stitch.position:>5}"
    parts = [Text(place, style="dim"), Text(clock_time(stitch.at), style="dim"), kind(stitch), Text(what(stitch))]
    return Text("  ").join(parts)


def _data(stitch: Stitch) -> str:
    if stitch.parent_id is not None:
        # The attributes of imported spans are long, so only --json prints them.
        return f"({one_line(stitch.data['kind'])})" if isinstance(stitch.data.get("kind"), str) else ""
    # `lockstitch request` shows how a request is rebuilt.
    shown = {name: value for name, value in stitch.data.items() if name != "request"}
    return one_line(codec.dumps(shown).decode()) if shown else ""
