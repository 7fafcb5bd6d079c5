"""The parts of the panel: texts, requests, tokens and cost."""

import math
import re
from typing import Any, Final, NamedTuple, cast

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import estimate, estimate_json, price
from lockstitch.errors import LockstitchError, NotFound
from lockstitch.integrations.requests import request_of
from lockstitch.model import Json, Message, Run, Stitch, as_id, codec
from lockstitch.model.message import blocks
from lockstitch.server.pages.common.content import one_line
from lockstitch.store import Store
from lockstitch.store.reports.traces import cost_of

_AT: Final = re.compile(r"(?:([0-9a-f-]{36})\.)?([0-9]{1,9})(?:-([0-9]{1,5}))?")


class TextLocation(NamedTuple):
    """The subject of a row: a run, a stitch, or for an open call its response."""

    run: Run | None = None
    stitch: Stitch | None = None
    call: int | None = None


async def place(store: Store, run: Run, at: str) -> TextLocation:
    """Return the subject of a row name. Raises `NotFound` if the name is invalid or the subject is gone."""
    if at in ("", "run"):
        return TextLocation(run=run)
    if at.startswith("run-"):
        return TextLocation(run=await store.run(at.removeprefix("run-")))
    match = _AT.fullmatch(at)
    if match is None:
        raise NotFound(f"Row {at[:80]} not found in this run.")
    thread_id = as_id(match[1]) if match[1] else run.thread_id
    if thread_id is None:
        raise NotFound(f"Row {at[:80]} not found in this run.")
    position = int(match[2])
    stitches = await store.stitches(thread_id, position, position)
    if not stitches:
        raise NotFound(f"No stitch at position {position}. It may have been deleted.")
    return TextLocation(stitch=stitches[0], call=int(match[3]) if match[3] else None)


async def text_at(store: Store, run: Run, at: str, of: str, pointer: str) -> str:
    """Return a part of a stitch, a request or a run. `pointer` is a JSON pointer."""
    text_location = await place(store, run, at)
    value: Any
    if of == "request" and text_location.stitch is not None:
        stitch = text_location.stitch
        imported = run.source != "native"
        value = request_of(run.source, stitch.data) if imported else await store.request(stitch.id)
    else:
        value = (text_location.stitch or text_location.run or run).as_json()
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(name)]
        elif isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
        else:
            raise NotFound("Text not found.")
    return value if isinstance(value, str) else codec.dumps(value).decode()


def step(pointer: str, name: object) -> str:
    """Return the pointer to a member of a value."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


Part = Json
"""A part of the panel: its kind and the data of the kind."""

LONGEST: Final = 4_000
"""Number of characters of a text that are shown at first."""


def text(
    caption: str, value: str, pointer: str, *, says: bool = False, of: str = "stitch", at: str | None = None
) -> Part:
    """Return a text part, shown as prose with `says`, else as code. `at` names the row if it is another one."""
    hidden = len(value) - LONGEST if len(value) > LONGEST else 0
    shown = value[:LONGEST] if hidden else value
    return {
        "kind": "text",
        "caption": caption,
        "text": shown,
        "more": hidden,
        "says": says,
        "of": of,
        "pointer": pointer,
        "at": at,
    }


def data(caption: str, value: Any, pointer: str, *, of: str = "stitch", at: str | None = None) -> Part:
    """Return a part for a JSON value; a string becomes a text part."""
    if isinstance(value, str):
        return text(caption, value, pointer, of=of, at=at)
    size = len(codec.dumps(value))
    return {
        "kind": "json",
        "caption": caption,
        "value": value,
        "limit": LONGEST,
        "more": max(0, size - LONGEST),
        "of": of,
        "pointer": pointer,
        "at": at,
    }


def facts(known: list[tuple[str, Any]]) -> Part:
    return {"kind": "facts", "facts": [(name, value) for name, value in known if value not in (None, "")]}


def note(title: str, says: str = "", *, failed: bool = True) -> Part:
    return {"kind": "note", "title": title, "text": says, "failed": failed}


def message_parts(message: Message | None, pointer: str, *, of: str = "stitch", at: str | None = None) -> list[Part]:
    """Return the blocks of a message as parts: thinking, texts, calls and results."""
    if not message:
        return []
    content: Any = message.get("content")
    below = step(pointer, "content")
    if isinstance(content, str):
        return [text("", content, below, says=message.get("type") != "tool_result", of=of, at=at)] if content else []
    if not isinstance(content, list):
        return [data("", message, pointer, of=of, at=at)]
    return [
        _block(block, step(below, number), result=message.get("type") == "tool_result", of=of, at=at)
        for number, block in enumerate(blocks(message))
    ]


def _block(block: Json, pointer: str, *, result: bool, of: str, at: str | None) -> Part:
    match block:
        case {"type": "text", "text": str(content)}:
            return text("", content, step(pointer, "text"), says=not result, of=of, at=at)
        case {"type": "thinking", "thinking": str(content)}:
            return {**text("Thought", content, step(pointer, "thinking"), of=of, at=at), "kind": "thought"}
        case {"type": "tool_use", "name": name, "input": arguments, **other_fields}:
            return data(f"tool_use {name}, {other_fields.get('id')}", arguments, step(pointer, "input"), of=of, at=at)
        case {"type": "tool_result", "content": str(content), **other_fields}:
            return text(
                f"tool_result, {other_fields.get('tool_use_id')}", content, step(pointer, "content"), of=of, at=at
            )
        case _:
            return data(str(block.get("type") or ""), block, pointer, of=of, at=at)


_PARTS: Final = (
    ("Read from cache", "m3", "cache_read_cost"),
    ("Written to cache", "m4", "cache_write_cost"),
    ("New input", "m2", "input_cost"),
    ("Output with thinking", "m1", "output_cost"),
)


def by_call(run: Run, stitch: Stitch) -> list[Part]:
    """Return tokens and cost of a model call. The parts of the cost are shown if their sum is the stored cost."""
    if stitch.input_tokens is None and stitch.output_tokens is None:
        return [note("No token counts recorded.", failed=False)]
    usage = Usage(
        input_tokens=stitch.input_tokens or 0,
        output_tokens=stitch.output_tokens or 0,
        cache_read_tokens=stitch.cache_read_tokens or 0,
        cache_write_tokens=stitch.cache_write_tokens or 0,
    )
    total = cost_of(stitch)
    if total is None or stitch.at is None:
        return [_table(usage, {}, total, None)]
    model = str(stitch.data.get("model") or stitch.name or run.model or "")
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    plain = usage._replace(cache_read_tokens=0, cache_write_tokens=0)
    # Use the price tables, or else the prices of the run, which can be the user's own.
    for priced, without in (
        (price(run.provider or "", model, usage, stitch.at), price(run.provider or "", model, plain, stitch.at)),
        (_as_charged(run, usage), _as_charged(run, plain)),
    ):
        if priced and math.isclose(float(priced["total_cost"]), total, rel_tol=1e-6, abs_tol=1e-12):
            return [_table(usage, priced, total, without.get("total_cost") if cached else None)]
    return [_table(usage, {}, total, None)]


def _as_charged(run: Run, usage: Usage) -> Json:
    """Return the cost of a call at the average prices of its run, or an empty object."""
    cost = run.cost
    new = run.input_tokens - run.cache_read_tokens - run.cache_write_tokens
    here = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    parts = (
        ("input_cost", new, here),
        ("output_cost", run.output_tokens, usage.output_tokens),
        ("cache_read_cost", run.cache_read_tokens, usage.cache_read_tokens),
        ("cache_write_cost", run.cache_write_tokens, usage.cache_write_tokens),
    )
    result: Json = {"source": cost.get("source"), "version": cost.get("version")}
    for name, all_tokens, tokens in parts:
        amount: Any = cost.get(name)
        if not isinstance(amount, int | float) or (tokens and not all_tokens):
            return {}
        result[name] = amount / all_tokens * tokens if all_tokens else 0.0
    return {**result, "total_cost": math.fsum(result[name] for name, _, _ in parts)}


def by_run(run: Run) -> list[Part]:
    """Return tokens and cost of all model calls of a run."""
    usage = Usage(
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cache_read_tokens=run.cache_read_tokens,
        cache_write_tokens=run.cache_write_tokens,
    )
    return [_table(usage, run.cost, run.total_cost, None)]


def _table(usage: Usage, priced: Json, total: float | None, without: float | None) -> Part:
    new = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    counts = (usage.cache_read_tokens, usage.cache_write_tokens, new, usage.output_tokens)
    rows: list[Json] = []
    for (name, look, key), tokens in zip(_PARTS, counts, strict=True):
        cost: Any = priced.get(key)
        amount = float(cost) if isinstance(cost, int | float) else None
        each = amount / tokens * 1_000_000 if amount and tokens else None
        rows.append({"name": name, "look": look, "tokens": tokens, "each": each, "cost": amount})
    known = all(row["cost"] is not None for row in rows) and bool(total)
    weights = [row["cost"] if known else row["tokens"] for row in rows]
    sum_of_weights = sum(weights)
    place = 0.0
    for row, weight in zip(rows, weights, strict=True):
        row["share"] = 100 * weight / sum_of_weights if sum_of_weights else 0.0
        row["x"] = place
        place += row["share"]
    return {
        "kind": "tokens",
        "rows": rows,
        "by": "cost" if known else "tokens",
        "tokens": usage.input_tokens + usage.output_tokens,
        "cost": total,
        "without": without,
        "source": priced.get("source"),
        "version": priced.get("version"),
    }


RECENT: Final = 30
"""Number of messages that are shown separately. Earlier messages are counted."""


async def request(store: Store, stitch: Stitch) -> list[Part]:
    """Return the rebuilt request, or a note with the reason why it cannot be rebuilt."""
    stored: Any = stitch.data.get("request")
    if not isinstance(stored, dict):
        prompt: Any = stitch.data.get("prompt")
        if isinstance(prompt, str):
            return [text("Prompt", prompt, "/data/prompt", says=True)]
        return [note("No request recorded.", "The call was made outside the loop or was imported.", failed=False)]
    try:
        rebuilt = await store.request(stitch.id)
    except LockstitchError as exc:
        return [note("The request cannot be rebuilt.", str(exc))]
    digest = str(cast("Json", stored).get("sha256"))
    parts = _rows(rebuilt)
    _seal(parts, stitch)
    return [*parts, {"kind": "proof", "sha256": digest, "same": codec.digest(rebuilt) == digest}]


def imported_request(run: Run, stitch: Stitch) -> list[Part]:
    """Return the request of an imported call: its messages if they are known, else its inputs."""
    known = request_of(run.source, stitch.data)
    if known:
        parts = _rows(known)
        _seal(parts, stitch)
        return parts
    inputs: Any = stitch.data.get("inputs")
    missing = note("Input not recorded.", "The source system sent no inputs.", failed=False)
    return [data("", inputs, "/data/inputs") if inputs else missing]


def _rows(rebuilt: Json) -> list[Part]:
    parts: list[Part] = []
    parameters = {name: value for name, value in rebuilt.items() if name not in ("system", "tools", "messages")}
    if parameters:
        parts.append(
            _row(
                "parameters",
                _json_text(parameters),
                estimate_json(parameters),
                [data("", parameters, "", of="none")],
                counts=False,
            )
        )
    system: Any = rebuilt.get("system")
    if system:
        inside = data("", system, "/system", of="request")
        shown = system if isinstance(system, str) else _json_text(system)
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
        parts.append(_row(str(message.get("role")), _message_summary(message), estimate(message), inside))
    if parts:
        parts[-1]["open"] = True
    return parts


def _row(name: str, gist: str, tokens: int, inside: list[Part], *, counts: bool = True) -> Part:
    shown = one_line(gist, 160)
    known = {"name": name, "gist": shown, "tokens": tokens, "inside": inside, "counts": counts}
    return {"kind": "message", "open": False, **known}


def _seal(parts: list[Part], stitch: Stitch) -> None:
    """Insert the line where the cached part ends. Providers report only the number of tokens, so it is estimated."""
    cached, total = stitch.cache_read_tokens or 0, stitch.input_tokens or 0
    guessed = sum(part["tokens"] for part in parts if part["counts"])
    if not cached or not total or not guessed:
        return
    best, place, sum_so_far = float(total), 0, 0
    for number, part in enumerate(parts, 1):
        sum_so_far += part["tokens"] if part["counts"] else 0
        distance = abs(sum_so_far * total / guessed - cached)
        if distance < best:
            best, place = distance, number
    parts.insert(place, {"kind": "seal", "tokens": cached})


def _message_summary(message: Message) -> str:
    matches: list[str] = []
    results = 0
    for block in blocks(message):
        match block.get("type"):
            case "text":
                matches.append(str(block.get("text")))
            case "tool_use":
                matches.append(f"{block.get('name')}(…)")
            case "tool_result":
                results += 1
            case kind:
                matches.append(f"[{kind}]")
    if results:
        matches.append("1 tool result" if results == 1 else f"{results} tool results")
    return " ".join(matches)


def _json_text(value: Any) -> str:
    return codec.dumps(value).decode()
