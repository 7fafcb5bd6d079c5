"""Messages, stitches and failures as text, and failures grouped by their cause. For the terminal and for models."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.model import Json, Message, Stitch, codec
from lockstitch.model.format import size
from lockstitch.model.message import blocks
from lockstitch.model.stitch import TAKEN_OVER

_VARYING: Final = re.compile(r"\b(?=[0-9a-f-]*[0-9])[0-9a-f]{8}[0-9a-f-]*\b|\d+(?:[.,:]\d+)*", re.IGNORECASE)
"""Ids and numbers, which differ between failures with the same cause."""

_COMPARED: Final = 500
"""Number of characters of an error text that are compared."""


def message_blocks(message: Message) -> list[Json]:
    """Return the blocks of a message. The message of a `tool_call` stitch is a block without a role."""
    return [message] if "role" not in message and "type" in message else blocks(message)


def block_text(block: Json) -> str:
    """Return one block of a message as text. Media are shown by their type and size."""
    kind = str(block.get("type", ""))
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "thinking":
        return f"(thinking) {block.get('thinking', '')}"
    if kind.endswith("tool_use"):
        return f"→ {call_text(str(block.get('name')), block.get('input'))}"
    if kind.endswith("tool_result"):
        return f"{'✗' if block.get('is_error') else '←'} {_result(block.get('content'))}"
    return f"[{kind} {_described(block)}]"


def call_text(name: str, arguments: Any) -> str:
    """Return a call of a tool: `name({"argument":"value"})`."""
    return f"{name}({_inline(arguments)})"


def message_line(message: Message | None) -> str:
    """Return the text of a message on one line."""
    return _one_line(" ".join(map(block_text, message_blocks(message)))) if message else ""


def stitch_line(stitch: Stitch) -> str:
    """Return the content of a stitch on one line: its message, its error, or its data."""
    if stitch.message is not None:
        name = f"{stitch.name} " if stitch.type == "tool_call" else ""
        return _one_line(name + message_line(stitch.message))
    if stitch.type == TAKEN_OVER:
        # The name contains the description.
        return _one_line(stitch.name)
    return _one_line(f"{stitch.name or ''} {complaint(stitch) or _data(stitch)}")


def complaint(stitch: Stitch) -> str:
    """Return the error text of a stitch on one line, or an empty text."""
    for name in ("error", "message", "error_message", "detail", "reason"):
        value: Any = stitch.data.get(name)
        if isinstance(value, str) and value:
            return _one_line(value)
    return ""


def failure_text(stitch: Stitch) -> str:
    """Return the error of a stitch on one line. For a tool, the class of the exception comes first."""
    problem, name = complaint(stitch), stitch.data.get("type")
    if stitch.type == "tool_error" and problem and isinstance(name, str) and name not in problem:
        return f"{_one_line(name)}: {problem}"
    return problem or message_line(stitch.message) or (_inline(stitch.data) if stitch.data else "")


@dataclass(slots=True)
class Cause:
    """Failures of one type with the same text, apart from ids and numbers."""

    type: str
    """Type of the stitches."""
    name: str
    """Tool, model or span that failed."""
    text: str
    """Text of the latest failure."""
    failures: list[Stitch] = field(default_factory=list[Stitch])
    """The failures, newest first."""

    @property
    def threads(self) -> list[UUID]:
        """Ids of the threads, each once, the latest failure first."""
        return list(dict.fromkeys(stitch.thread_id for stitch in self.failures))


def causes(stitches: Iterable[Stitch]) -> list[Cause]:
    """Return the failures by cause, the most frequent cause first.

    Args:
        stitches: Failures, newest first.
    """
    grouped: dict[tuple[str, str, str], Cause] = {}
    for stitch in stitches:
        text = failure_text(stitch)
        cause = Cause(stitch.type, _one_line(stitch.name), text)
        grouped.setdefault((cause.type, cause.name, cause_key(text)), cause).failures.append(stitch)
    return sorted(grouped.values(), key=lambda cause: -len(cause.failures))


def cause_key(text: str) -> str:
    """Return the start of an error text without ids and numbers. Failures with an equal text have the same cause."""
    return _VARYING.sub("…", text[:_COMPARED])


def _result(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(block_text(cast("Json", block)) for block in cast("list[Any]", content))
    return content if isinstance(content, str) else _inline(content)


def _described(block: Json) -> str:
    source: Any = block.get("source")
    if not isinstance(source, dict):
        return _inline({name: value for name, value in block.items() if name != "type"})
    bag = cast("Json", source)
    where = bag.get("url") or bag.get("file_id") or ""
    data: Any = bag.get("data")
    amount = size(len(data) * 3 // 4) if isinstance(data, str) else ""
    return " ".join(str(part) for part in (bag.get("media_type"), where, amount) if part)


def _data(stitch: Stitch) -> str:
    if stitch.parent_id is not None:
        # The attributes of imported spans are long, so only the whole stitch shows them.
        return f"({stitch.data['kind']})" if isinstance(stitch.data.get("kind"), str) else ""
    # The request of a model call is rebuilt on demand.
    shown = {name: value for name, value in stitch.data.items() if name != "request"}
    return _inline(shown)


def _inline(value: Any) -> str:
    return "" if value is None or value == {} else codec.dumps(value).decode()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
