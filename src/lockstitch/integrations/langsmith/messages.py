"""`LangSmithMessage`: messages and tool arguments in every serialisation.

A message can be a constructor ({lc, type, id: […, "AIMessage"], kwargs}), a plain object with `type` or `role`, an
object with its fields under `data`, or a pair of role and text.
"""

import re
from typing import Any, Final, Literal, NamedTuple, cast

from lockstitch.integrations.langsmith.runs import as_object, first_text, items, text
from lockstitch.integrations.spans.span import Result
from lockstitch.integrations.spans.values import LONGEST, as_text, literal, name, parse, storable
from lockstitch.model import Json, Message

_DEEPEST_ARGUMENTS: Final = 60
_REPR: Final = re.compile(
    r"""content=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=\s|$)(?:.*\bname='(?P<name>[^']*)')?""", re.DOTALL
)
_REPR_ID: Final = re.compile(r"""\btool_call_id='([^']*)'""")
_REPR_STATUS: Final = re.compile(r"""\bstatus='([^']*)'""")


def arguments(value: Any) -> Any:
    """Return the arguments of a call. Text that is not a JSON object goes under `__invalid_json`, as in providers."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return {}
    try:
        parsed = storable(parse(value), parsed=True)
    except (ValueError, RecursionError):
        return {"__invalid_json": value}
    return as_object(parsed) if isinstance(parsed, dict) else {"__invalid_json": value}


def tool_input(inputs: Any) -> Any:
    """Return the arguments of a tool run. Older versions store {"input": "{'a': 2}"}, the text of a Python object.

    Such text is parsed as a Python literal, never evaluated, then as JSON. Otherwise it stays text, because a tool may
    take text.
    """
    value = as_object(inputs)
    if set(value) == {"input"}:
        only = value["input"]
        return _literal(only) if isinstance(only, str) else as_object(only) or value
    if value.get("type") == "tool_call" and isinstance(value.get("args"), dict):
        return value["args"]
    return value


def tool_message(words: str) -> dict[str, Any] | None:
    """Return the fields of a ToolMessage that an old version stored as its Python repr, or None."""
    if len(words) > LONGEST or not words.startswith("content=") or not (called := _REPR_ID.search(words)):
        return None
    match = _REPR.match(words)
    if match is None:
        return None
    content = literal(match["content"])
    if content is None:
        return None
    status = _REPR_STATUS.search(words)
    fields = {"content": content, "tool_call_id": called[1], "name": match["name"], "status": status and status[1]}
    return {key: value for key, value in storable(fields).items() if value is not None}


def _literal(words: str) -> Any:
    start = words.strip()
    if start[:1] not in ("{", "[") or len(words) > LONGEST or _depth(start) > _DEEPEST_ARGUMENTS:
        return _json(words)
    result = literal(start)
    return cast("Any", result) if isinstance(result, dict | list) else _json(words)


def _json(words: str) -> Any:
    try:
        result = storable(parse(words), parsed=True)
    except (ValueError, RecursionError):
        return words
    return cast("Any", result) if isinstance(result, dict | list) else words


def _depth(words: str) -> int:
    """Return an upper bound of the nesting depth. It is cheap and protects the recursive parser."""
    deepest = level = 0
    for character in words:
        if character in "[({":
            level += 1
            deepest = max(deepest, level)
        elif character in "])}":
            level -= 1
    return deepest


Speaker = Literal["user", "assistant", "system", "tool"]

_SPEAKERS: Final[dict[str, Speaker]] = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_PLACES: Final = ("messages", "generations", "output", "input", "update", "kwargs", "message", "data")
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_MARKS: Final = frozenset({"role", "type", "kwargs", "data"})
"""Every message has one of these fields."""
_DEEPEST: Final = 8


class LangSmithMessage(NamedTuple):
    """One message: its role, and its original fields."""

    speaker: Speaker
    fields: Json

    @property
    def content(self) -> Any:
        return self.fields.get("content")


def message_of(value: Any) -> LangSmithMessage | None:
    """Return the message that `value` represents, or None."""
    if isinstance(value, list | tuple):
        pair = items(cast("Any", value))
        if len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str):
            speaker = _SPEAKERS.get(pair[0].lower())
            return LangSmithMessage(speaker, {"content": pair[1]}) if speaker else None
        return None
    fields = as_object(value)
    if fields.keys().isdisjoint(_MARKS):
        return None
    kwargs, path = fields.get("kwargs"), items(fields.get("id"))
    if isinstance(kwargs, dict) and path:
        kind = path[-1].removesuffix("Chunk").removesuffix("Message").lower() if isinstance(path[-1], str) else ""
        speaker = _SPEAKERS.get(kind) or _speaker_of(as_object(kwargs))
        return LangSmithMessage(speaker, as_object(kwargs)) if speaker else None
    if isinstance(fields.get("data"), dict) and "content" in as_object(fields["data"]):
        fields = {**fields, **as_object(fields["data"]), "type": fields.get("type")}
    speaker = _speaker_of(fields)
    if speaker and any(key in fields for key in ("content", "tool_calls", "function_call", "parts", "tool_call_id")):
        return LangSmithMessage(speaker, fields)
    return None


def _speaker_of(fields: Json) -> Speaker | None:
    for word in (fields.get("role"), fields.get("type")):
        if isinstance(word, str):
            kind = word if word in _SPEAKERS else word.removesuffix("MessageChunk").removesuffix("Message").lower()
            if speaker := _SPEAKERS.get(kind):
                return speaker
    return None


def messages_in(value: Any) -> list[LangSmithMessage]:
    """Return all messages in the inputs or outputs of a run, in order."""
    messages: list[LangSmithMessage] = []
    _collect(value, messages, 0)
    return messages


def _collect(value: Any, messages: list[LangSmithMessage], depth: int) -> None:
    if not value or depth > _DEEPEST or not isinstance(value, dict | list | tuple):
        return
    message = message_of(value)
    if message is not None:
        messages.append(message)
    elif isinstance(value, dict):
        fields = as_object(value)
        for place in _PLACES:
            if isinstance(inner := fields.get(place), dict | list):
                _collect(inner, messages, depth + 1)
    else:
        for item in items(cast("Any", value)):
            _collect(item, messages, depth + 1)


def blocks_of(message: LangSmithMessage) -> list[Any]:
    """Return the content of a message as blocks. Unknown blocks stay unchanged."""
    fields = message.fields
    content = fields.get("content", fields.get("parts"))
    matches = [_block(item) for item in (items(content) or [content])]
    thought = first_text(
        as_object(fields.get("additional_kwargs")).get("reasoning_content"), fields.get("reasoning_content")
    )
    if thought and not any(as_object(each).get("type") == "thinking" for each in matches):
        matches.insert(0, {"type": "thinking", "thinking": thought})
    return [each for each in matches if each is not None]


def assistant(message: LangSmithMessage) -> Message:
    """Return an answer as an assistant message: its blocks, then the calls that are only outside of the content."""
    blocks = blocks_of(message)
    _add_calls(blocks, calls_of(message.fields))
    return {"role": "assistant", "content": blocks}


def calls_of(fields: Json) -> list[Json]:
    """Return the calls of a message outside of its content as tool_use blocks, from any place."""
    beside = as_object(fields.get("additional_kwargs"))
    for source in (fields, beside):
        if calls := [call for item in items(source.get("tool_calls")) if (call := _call(item))]:
            return calls
    for source in (fields, beside):
        if call := _call(source.get("function_call")):
            return [call]
    return []


def text_in(blocks: list[Any]) -> str:
    return "".join(
        block["text"] for block in blocks if as_object(block).get("type") == "text" and text(block.get("text"))
    )


def result_of(message: LangSmithMessage) -> Result:
    """Return the result in a tool message."""
    fields = message.fields
    status = fields.get("status")
    return Result(
        call_id=name(fields.get("tool_call_id")),
        name=name(fields.get("name")),
        content=content_of(fields.get("content")),
        failed=True if status == "error" else False if status == "success" else None,
    )


def results_in(message: LangSmithMessage) -> list[Result]:
    """Return the results in a message: a tool message is one result, a user message may contain result blocks."""
    if message.speaker == "tool":
        return [result_of(message)]
    results: list[Result] = []
    for item in items(message.content):
        block = as_object(item)
        if block.get("type") == "tool_result":
            failed = block.get("is_error")
            content = content_of(block.get("content"))
            results.append(
                Result(name(block.get("tool_use_id")), None, content, failed if failed is not None else None)
            )
    return [result._replace(failed=bool(result.failed)) if result.failed is not None else result for result in results]


def content_of(value: Any) -> Any:
    """Return a result as text, or as a list of blocks."""
    if (
        isinstance(value, list)
        and value
        and all(text(as_object(item).get("type")) for item in items(cast("Any", value)))
    ):
        return cast("Any", value)
    return "" if value is None else as_text(value)


def _block(each: Any) -> Any:
    if isinstance(each, str):
        return {"type": "text", "text": each} if each else None
    block = as_object(each)
    kind = text(block.get("type"))
    if kind in _TEXTS or (kind is None and isinstance(block.get("text"), str)):
        return {**block, "type": "text", "text": block["text"]} if text(block.get("text")) else None
    if kind in ("tool_use", "tool_call", "function_call"):
        return _call(block)
    if kind == "reasoning":
        return _thought(block)
    return each if block else None


def _thought(block: Json) -> Any:
    said_aloud = first_text(block.get("reasoning"), block.get("text"))
    summary = "\n".join(
        as_object(item)["text"] for item in items(block.get("summary")) if text(as_object(item).get("text"))
    )
    stored = {key: value for key, value in block.items() if key not in ("type", "reasoning", "text")}
    return {**stored, "type": "thinking", "thinking": said_aloud or summary}


def _call(value: Any) -> Json | None:
    """Return a tool request in the form of LangChain, OpenAI or Anthropic as a tool_use block, or None."""
    requested = as_object(value)
    function = as_object(requested.get("function")) or requested
    tool = name(function.get("name"))
    if tool is None:
        return None
    values = [function[key] for key in ("args", "arguments", "input") if function.get(key) is not None]
    call_id = name(requested.get("call_id")) or name(requested.get("id")) or name(requested.get("tool_call_id"))
    block: Json = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments(values[0] if values else "")}
    return block if call_id else {key: each for key, each in block.items() if key != "id"}


def _add_calls(blocks: list[Any], calls: list[Json]) -> None:
    """Add calls that the content does not contain. Ids alone do not identify a call, because servers reuse them."""
    open_blocks = [block for block in blocks if as_object(block).get("type") == "tool_use"]
    for call in calls:
        same = next((open_block for open_block in open_blocks if _same(open_block, call)), None)
        if same is None:
            blocks.append(call)
            continue
        open_blocks = [open_block for open_block in open_blocks if open_block is not same]
        if not same.get("input"):
            # While it streams, the input of a block is empty, and the separate call has the complete input.
            same["input"] = call["input"]


def _same(block: Json, call: Json) -> bool:
    return block.get("id") == call.get("id") and block.get("name") == call.get("name")
