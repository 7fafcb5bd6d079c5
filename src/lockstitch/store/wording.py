"""What a stitch says on one line: for nodes of a tree and steps of a difference."""

from typing import Any, Final

from lockstitch.records import Stitch, answer_of, codec, text_of, tool_uses
from lockstitch.records.figures import amount
from lockstitch.records.message import blocks
from lockstitch.store.tracing import Node

LONGEST: Final = 200
"""Characters of a text that a line has room for."""


def fill(node: Node, stitch: Stitch, asking: Stitch | None) -> None:
    """Put into a node what its stitch says; `asking` is the response that a call answers."""
    data = stitch.data
    if node.kind == "run":
        node.text = gist(text_of(stitch.message))
        return
    node.cost = cost_of(stitch)
    node.error = complaint(stitch)
    match node.kind:
        case "model":
            node.label = _word(data.get("purpose"))
            node.text = gist(text_of(stitch.message) or data.get("text"))
        case "tool":
            node.args = gist(arguments(stitch, asking))
            node.text = gist(outcome(stitch))
        case "span":
            node.label = _word(data.get("kind"))
        case "thread":
            node.text = gist(data.get("goal"))
        case _:
            node.text = gist(text_of(stitch.message) or data.get("reason") or data.get("problem"))


def cost_of(stitch: Stitch) -> float | None:
    """What one model call cost, where that is known."""
    return amount(stitch.data.get("cost"))


def arguments(stitch: Stitch, asking: Stitch | None) -> Any:
    """Return the input of a tool call: from its response, or from its span if no response asks for it."""
    uses = tool_uses(asking.message if asking is not None else None)
    index = stitch.call_index or 0
    return uses[index].get("input") if index < len(uses) else stitch.data.get("inputs")


def outcome(stitch: Stitch) -> Any:
    """What a tool gave back."""
    content: Any = (stitch.message or {}).get("content")
    if isinstance(content, list):
        parts = blocks({"content": content})
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)
    return content


def said(stitch: Stitch) -> str:
    """What a model answered at last."""
    return answer_of(stitch.message) or text_of(stitch.message)


def complaint(stitch: Stitch) -> str | None:
    """The words of an error, where there was one."""
    failed = stitch.status in ("error", "failed") or stitch.type.endswith(("error", "failed", "retry"))
    for name in ("message", "error", "detail", "problem"):
        value: Any = stitch.data.get(name)
        if isinstance(value, str) and value and (failed or name == "error"):
            return gist(value)
    return None


def gist(value: Any) -> str | None:
    """A value on one line, cut to what a line has room for."""
    if value is None or value == "" or value == {}:
        return None
    text = value if isinstance(value, str) else codec.dumps(value).decode()
    line = " ".join(text[: LONGEST * 10].split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _word(value: Any) -> str | None:
    return gist(value) if isinstance(value, str) else None
