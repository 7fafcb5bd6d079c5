"""The exact request of a model call, as rows that unfold: system, tools, messages, and where the cache ends."""

from typing import Any, Final, cast

from lockstitch.errors import LockstitchError
from lockstitch.records import Json, Message, Stitch, codec
from lockstitch.records.message import blocks
from lockstitch.runtime.tokens import estimate, estimate_json
from lockstitch.server.pages.code import one_line
from lockstitch.server.pages.run.parts import Part, data, message_parts, note, text
from lockstitch.store import Store

RECENT: Final = 30
"""Messages shown one by one; earlier ones are counted."""


async def request(store: Store, stitch: Stitch) -> list[Part]:
    """The request, rebuilt; or why that cannot be done."""
    kept: Any = stitch.data.get("request")
    if not isinstance(kept, dict):
        prompt: Any = stitch.data.get("prompt")
        if isinstance(prompt, str):
            return [text("Prompt", prompt, "/data/prompt", says=True)]
        return [
            note("No request is kept.", "This call was made beside the loop, or comes from elsewhere.", failed=False)
        ]
    try:
        rebuilt = await store.request(stitch.id)
    except LockstitchError as exc:
        return [note("The request cannot be rebuilt.", str(exc))]
    digest = str(cast("Json", kept).get("sha256"))
    parts = _rows(rebuilt)
    _seal(parts, stitch)
    return [*parts, {"kind": "proof", "sha256": digest, "same": codec.digest(rebuilt) == digest}]


def _rows(rebuilt: Json) -> list[Part]:
    parts: list[Part] = []
    rest = {name: value for name, value in rebuilt.items() if name not in ("system", "tools", "messages")}
    if rest:
        parts.append(
            _row("parameters", _said(rest), estimate_json(rest), [data("", rest, "", of="none")], counts=False)
        )
    system: Any = rebuilt.get("system")
    if system:
        inside = data("", system, "/system", of="request")
        shown = system if isinstance(system, str) else _said(system)
        parts.append(_row("system", shown, estimate_json(system), [inside]))
    tools: list[Json] = rebuilt.get("tools") or []
    if tools:
        names = ", ".join(str(tool.get("name") or tool.get("type")) for tool in tools)
        inside = data("", tools, "/tools", of="request")
        parts.append(_row("tools", f"{len(tools)}: {names}", estimate_json(tools), [inside]))
    messages: list[Message] = rebuilt.get("messages") or []
    early = max(0, len(messages) - RECENT)
    if early:
        inside = data("", messages[:2], "/messages", of="request")
        parts.append(_row("earlier", f"{early:,} messages", sum(map(estimate, messages[:early])), [inside]))
    for number, message in enumerate(messages[early:], early):
        inside = message_parts(message, f"/messages/{number}", of="request")
        parts.append(_row(str(message.get("role")), _gist(message), estimate(message), inside))
    if parts:
        parts[-1]["open"] = True
    return parts


def _row(name: str, gist: str, tokens: int, inside: list[Part], *, counts: bool = True) -> Part:
    shown = one_line(gist, 160)
    known = {"name": name, "gist": shown, "tokens": tokens, "inside": inside, "counts": counts}
    return {"kind": "message", "open": False, **known}


def _seal(parts: list[Part], stitch: Stitch) -> None:
    """Put the seam where the cache ended: providers tell how many tokens it gave, not which, so this is by estimate."""
    cached, whole = stitch.cache_read_tokens or 0, stitch.input_tokens or 0
    guessed = sum(part["tokens"] for part in parts if part["counts"])
    if not cached or not whole or not guessed:
        return
    best, place, sum_so_far = float(whole), 0, 0
    for number, part in enumerate(parts, 1):
        sum_so_far += part["tokens"] if part["counts"] else 0
        distance = abs(sum_so_far * whole / guessed - cached)
        if distance < best:
            best, place = distance, number
    parts.insert(place, {"kind": "seal", "tokens": cached})


def _gist(message: Message) -> str:
    found: list[str] = []
    results = 0
    for block in blocks(message):
        match block.get("type"):
            case "text":
                found.append(str(block.get("text")))
            case "tool_use":
                found.append(f"{block.get('name')}(…)")
            case "tool_result":
                results += 1
            case kind:
                found.append(f"[{kind}]")
    if results:
        found.append("1 tool result" if results == 1 else f"{results} tool results")
    return " ".join(found)


def _said(value: Any) -> str:
    return codec.dumps(value).decode()
