"""Messages as people read them: who speaks, what is said, which tools are asked for and what they gave."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from rich.text import Text

from lockstitch.cli.output import Output
from lockstitch.cli.text import one_line, safe, size
from lockstitch.records import Json, Message, codec
from lockstitch.records.message import blocks

_SPEAKERS = {"user": "bold cyan", "assistant": "bold green"}


def show(out: Output, messages: Sequence[Message]) -> None:
    """A conversation, message by message."""
    for number, message in enumerate(messages):
        if number:
            out.line()
        role = str(message.get("role", ""))
        out.line(role, style=_SPEAKERS.get(role, "bold"))
        for piece in _parts(message):
            out.line(piece, indent=2)


def as_line(message: Message | None) -> str:
    """The gist of a message on one line."""
    return one_line(" ".join(piece.plain for piece in _parts(message))) if message else ""


def _parts(message: Message) -> Iterator[Text]:
    # A tool_call stitch carries the bare block.
    if "role" not in message and "type" in message:
        yield part(message)
        return
    for block in blocks(message):
        yield part(block)


def part(block: Json) -> Text:
    """One block of a message."""
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
