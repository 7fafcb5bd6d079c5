"""`entries_of` and `events_of`: events of ADK as entries of a log, and back.

An event becomes one entry, or more if it has results of several tools. `data["adk"]` of the first entry has the event.
Texts, arguments, media and results are only in the messages: the part of an event without them stays in `data`. A part
that has no block in a message is in `data` as {"part": …}.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.model import Entry, Json, Stitch, codec
from lockstitch.model.message import blocks, tool_result, tool_uses

EVENT: Final = "adk"
"""Key of `data` with the event."""

_ENTRIES: Final = "adk_entries"
"""Key of `data` with the number of entries of the event, if it has several."""

_TO_URL_SAFE: Final = str.maketrans("+/", "-_")
_FROM_URL_SAFE: Final = str.maketrans("-_", "+/")


class Call(NamedTuple):
    """An open tool call: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


def calls_of(stitches: Sequence[Stitch]) -> dict[str, Call]:
    """Return the tool calls without a result, by the id of the call."""
    calls: dict[str, Call] = {}
    for stitch in stitches:
        if stitch.type == "llm_call":
            for number, block in enumerate(tool_uses(stitch.message)):
                calls[block["id"]] = Call(stitch.position, number, block["name"])
        elif stitch.type == "tool_call" and stitch.call_id is not None:
            calls.pop(stitch.call_id, None)
    return calls


def state_delta(event: Json) -> Json:
    """Return the changes of the state."""
    return _object(_object(event, "actions"), "state_delta")


def answered_calls(event: Json) -> set[str]:
    """Return the ids of the calls that the event answers."""
    return {_call_id(part["function_response"]) for part in _parts(event) if part.get("function_response")}


def is_final(event: Json) -> bool:
    """True if the event is the answer of an agent, so that nothing more may follow in its invocation."""
    parts = _parts(event)
    if not parts or event.get("author") == "user":
        return False
    if event.get("long_running_tool_ids") or _object(event, "actions").get("skip_summarization"):
        return True
    return "code_execution_result" not in parts[-1] and not any(
        "function_call" in part or "function_response" in part for part in parts
    )


def problem_of(event: Json) -> str | None:
    """Return the text of the error that the event reports instead of an answer, or None."""
    if not event.get("error_code") or _parts(event) or event.get("author") == "user":
        return None
    return ": ".join(str(event[name]) for name in ("error_code", "error_message") if event.get(name))


def entries_of(event: Json, calls: Mapping[str, Call]) -> list[Entry]:
    """Return the entries that record an event.

    Args:
        event: The event, as JSON without null values.
        calls: Open tool calls, by the id of the call.
    """
    content: list[Json] = []
    results: list[Json] = []
    rests: list[Json] = []
    for part in _parts(event):
        response: Json | None = part.get("function_response")
        call = calls.get(_call_id(response)) if response else None
        if response and call and all(result["call_id"] != _call_id(response) for result in results):
            results.append(_result(response, call))
            rests.append({**part, "function_response": _without(response, "response")})
        elif block := _block(part):
            content.append(block)
            rests.append(_rest(part, block))
        else:
            rests.append({"part": part})
    at = _time(event.get("timestamp"))
    values = _main(event, content, at)
    entries = [*([values] if values["type"] != "adk_event" or not results else []), *results]
    data: Json = {EVENT: {**event, "content": {**event["content"], "parts": rests}} if rests else event}
    if len(entries) > 1:
        data[_ENTRIES] = len(entries)
    entries[0]["data"] = {**entries[0].get("data", {}), **data}
    return [Entry(**entry, at=at) for entry in entries]


def events_of(stitches: Sequence[Stitch]) -> list[Json]:
    """Return the events that stitches have recorded, in order. Stitches without an event are left out."""
    return [
        _event(stitches[place : place + stitch.data.get(_ENTRIES, 1)])
        for place, stitch in enumerate(stitches)
        if EVENT in stitch.data
    ]


# Entries


def _main(event: Json, content: list[Json], at: datetime | None) -> Json:
    """Return the values of the entry with the message of an event."""
    problem = problem_of(event)
    if event.get("author") == "user" and content:
        text = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content
        return {"type": "input", "message": {"role": "user", "content": text}}
    if problem is not None:
        return {"type": "run_failed", "status": "failed", **_usage(event), "data": {"message": problem}}
    if not content and not (event.get("usage_metadata") and event.get("author") != "user"):
        return {"type": "adk_event", "name": str(event.get("author", ""))[:255] or None}
    usage = _usage(event)
    model = event.get("model_version")
    data: Json = {}
    if isinstance(model, str):
        data["model"] = model
        if usage:
            cost = price("", model, Usage(**usage), at or datetime.now(UTC))
            data |= {"cost": cost["total_cost"]} if cost else {}
    return {
        "type": "llm_call",
        "name": model if isinstance(model, str) and len(model) <= 255 else None,
        "message": {"role": "assistant", "content": content},
        "status": "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn",
        **usage,
        "data": data,
    }


def _usage(event: Json) -> dict[str, int]:
    usage: Json = event.get("usage_metadata") or {}

    def tokens(*names: str) -> int:
        return sum(max(0, int(usage.get(f"{name}_token_count") or 0)) for name in names)

    counts = {
        "input_tokens": tokens("prompt", "tool_use_prompt"),
        "output_tokens": tokens("candidates", "thoughts"),
        "cache_read_tokens": tokens("cached_content"),
    }
    return counts if any(counts.values()) else {}


def _result(response: Json, call: Call) -> Json:
    """Return the values of the entry of a result.

    ADK wraps results that are no objects: {"result": "sunny"} is recorded as the text `sunny`, which is the content
    itself. An object is the text of a content block.
    """
    value: Json = response.get("response") or {}
    text = value["result"] if value.keys() == {"result"} else None
    content = text if isinstance(text, str) else [{"type": "text", "text": codec.dumps(value).decode()}]
    failed = bool(value.get("error"))
    return {
        "type": "tool_call",
        "name": call.name,
        "call_id": _call_id(response),
        "reply_to": call.position,
        "call_index": call.number,
        "status": "error" if failed else "ok",
        "message": tool_result(_call_id(response), content, is_error=failed),
    }


def _block(part: Json) -> Json | None:
    """Return the content block of a part, or None if there is no block for it."""
    if part.get("function_response"):
        # Its call is unknown or has a result already.
        return None
    if isinstance(part.get("text"), str):
        kind = "thinking" if part.get("thought") else "text"
        return {"type": kind, kind: part["text"]}
    call: Json = part.get("function_call") or {}
    if call.get("name"):
        return {"type": "tool_use", "id": _call_id(call), "name": call["name"], "input": call.get("args") or {}}
    media: Json = part.get("inline_data") or {}
    if media.get("data") and media.get("mime_type"):
        kind = "image" if media["mime_type"].startswith("image/") else "document"
        # ADK writes the alphabet of URLs, models read the standard one.
        data = media["data"].translate(_FROM_URL_SAFE)
        return {"type": kind, "source": {"type": "base64", "media_type": media["mime_type"], "data": data}}
    return None


def _rest(part: Json, block: Json) -> Json:
    """Return a part without the values that its block has."""
    if "text" in part:
        return _without(part, "text")
    if block["type"] == "tool_use":
        return {**part, "function_call": _without(part["function_call"], "args")}
    return {**part, "inline_data": {name: value for name, value in part["inline_data"].items() if name != "data"}}


def _without(values: Json, name: str) -> Json:
    """Return a part without one value. If it has none, it gets null, so that reading does not add one."""
    return {key: value for key, value in values.items() if key != name} if name in values else {**values, name: None}


def _call_id(call: Json) -> str:
    """Return the id of a call or of its response. Old sessions have calls without ids."""
    return str(call.get("id") or call.get("name") or "")


def _parts(event: Json) -> list[Json]:
    return _object(event, "content").get("parts") or []


def _object(values: Json, name: str) -> Json:
    """Return an object in an object. Empty if it is missing."""
    return values.get(name) or {}


def _time(timestamp: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (OSError, OverflowError, TypeError, ValueError):
        return None


# Events


def _event(group: Sequence[Stitch]) -> Json:
    """Return the event of its stitches."""
    event: Json = group[0].data[EVENT]
    rests = _parts(event)
    if not rests:
        return event
    messages = [(stitch.type, stitch.message or {}) for stitch in group]
    content = iter([block for kind, message in messages if kind != "tool_call" for block in blocks(message)])
    results = iter([message for kind, message in messages if kind == "tool_call"])
    return {**event, "content": {**event["content"], "parts": [_part(rest, content, results) for rest in rests]}}


def _part(rest: Json, content: Iterator[Json], results: Iterator[Json]) -> Json:
    if "part" in rest:
        return rest["part"]
    if "function_response" in rest:
        value: str | list[Json] = next(results)["content"]
        response = {"result": value} if isinstance(value, str) else codec.loads(value[0]["text"])
        return {**rest, "function_response": {"response": response, **rest["function_response"]}}
    block = next(content)
    match block["type"]:
        case "tool_use":
            return {**rest, "function_call": {"args": block["input"], **rest["function_call"]}}
        case "image" | "document":
            data = cast("str", block["source"]["data"]).translate(_TO_URL_SAFE)
            return {**rest, "inline_data": {"data": data, **rest["inline_data"]}}
        case kind:
            return {**rest, "text": block[kind]}
