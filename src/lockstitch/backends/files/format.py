"""File formats: one stitch as one JSON line, one record as one JSON document.

The well-known keys come first: log_id (counted within the file), agent_uuid, run_id, timestamp, step_number,
action_type, action_data, messages_count, estimated_tokens, duration_ms. The other fields of a stitch follow. Each type
of error has the action_type `error`, and action_data has the type. A response's content and a tool's result are in
action_data, and the message is rebuilt from them. If that would not restore the same stitch (an unusual message, or
data with conflicting names), separate keys contain the whole message or data. Three keys of action_data repeat content
of another line, for readers of the file: user_message, final_response and the input of a tool. `decode_stitch` ignores
them.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from lockstitch.model import (
    ERROR_TYPES,
    Archive,
    Blob,
    ColumnKind,
    Json,
    Record,
    Stitch,
    codec,
    columns,
    format_time,
    parse_time,
)
from lockstitch.model.stitch import answering_model

_ACTIONS: Final = {
    "llm_call": "api_response_received",
    "tool_call": "tool_execution",
    **dict.fromkeys(ERROR_TYPES, "error"),
}
_TYPES: Final = {"api_response_received": "llm_call", "tool_execution": "tool_call"}

_USAGE: Final = (
    ("input_tokens", "input_tokens"),
    ("output_tokens", "output_tokens"),
    ("cache_creation_input_tokens", "cache_write_tokens"),
    ("cache_read_input_tokens", "cache_read_tokens"),
)
"""Names in the documents, and fields of a stitch."""

_MEASURES: Final = ("messages_count", "estimated_tokens", "duration_ms")
_PLACE: Final = ("lane", "parent_id", "child_id", "reply_to", "call_index", "calls", "previous_id")
_IDS: Final = frozenset({"lane", "parent_id", "child_id", "previous_id"})
_OF_RESPONSE: Final = frozenset({"stop_reason", "usage", "content"})
_OF_TOOL: Final = frozenset({"tool_name", "tool_use_id", "input", "result", "success", "execution_time_ms"})
_OF_ERROR: Final = frozenset({"stitch_type"})
_OF_RUN: Final = {"run_started": frozenset({"user_message"}), "run_completed": frozenset({"final_response"})}
_FIELDS: Final = tuple(name for name, _ in columns(Stitch))
_NONE: Final[frozenset[str]] = frozenset()


def encode_stitch(stitch: Stitch, number: int, repeated: Json | None = None) -> bytes:
    """Return the line of a stitch without its line end.

    Args:
        stitch: Stitch to encode.
        number: Number of the line in the file.
        repeated: Content of other stitches that action_data repeats.
    """
    action_data, other_data = _parts(stitch)
    if repeated:
        action_data = {**action_data, **repeated}
    line: Json = {
        "log_id": number,
        "agent_uuid": str(stitch.thread_id),
        "run_id": _text(stitch.run_id),
        "timestamp": _text(stitch.at),
        "step_number": stitch.step_number,
        "action_type": _ACTIONS.get(stitch.type, stitch.type),
        "action_data": action_data,
    }
    _add(line, {name: getattr(stitch, name) for name in _MEASURES})
    line["store_log_id"] = stitch.log_id
    line["id"] = str(stitch.id)
    line["position"] = stitch.position
    line["fence"] = stitch.fence
    _add(line, {name: _text(getattr(stitch, name)) for name in _PLACE})
    _add(line, other_data)
    if stitch.type in _TYPES:
        line["type"] = stitch.type
    return codec.dumps(line)


def decode_stitch(line: bytes) -> Stitch:
    """Return the stitch of a line that `encode_stitch` wrote."""
    values: Json = codec.loads(line)
    action_data = cast("Json", values["action_data"])
    kind = values.get("type") or _TYPES.get(values["action_type"], values["action_type"])
    if kind == "error":
        kind = str(action_data["stitch_type"])
    usage = cast("Json", values.get("usage") or {})
    name, call_id, status = values.get("name"), values.get("call_id"), values.get("status")
    message = values.get("message")
    selected = _NONE
    if kind == "llm_call":
        selected = _OF_RESPONSE
        status, usage = action_data["stop_reason"], action_data["usage"]
        if "content" in action_data:
            message = {"role": "assistant", "content": action_data["content"]}
    elif kind == "tool_call":
        selected = _OF_TOOL
        name, call_id = action_data["tool_name"], action_data["tool_use_id"]
        if "result" in action_data:
            content = action_data["result"]
            if isinstance(content, dict):
                content = values.get("result_text") or codec.dumps(content).decode()
            message = _result(call_id, content, bool(action_data["success"]))
    elif kind in ERROR_TYPES:
        selected = _OF_ERROR
    elif kind in _OF_RUN:
        selected = _OF_RUN[kind]
    data = values.get("data")
    if data is None:
        data = {key: value for key, value in action_data.items() if key not in selected}
    fields: Json = {
        "id": UUID(values["id"]),
        "type": kind,
        "run_id": _id(values["run_id"]),
        **{name: _id(values.get(name)) if name in _IDS else values.get(name) for name in _PLACE},
        "step_number": values["step_number"],
        "name": name,
        "model": answering_model(kind, name, data),
        "call_id": call_id,
        "status": status,
        "message": message,
        "data": data,
        **{ours: usage.get(theirs) for theirs, ours in _USAGE},
        **{name: values.get(name) for name in _MEASURES},
        "at": None if values["timestamp"] is None else parse_time(values["timestamp"]),
        "thread_id": UUID(values["agent_uuid"]),
        "position": values["position"],
        "fence": values["fence"],
        "log_id": values["store_log_id"],
    }
    return Stitch.unchecked({name: fields[name] for name in _FIELDS})


def _parts(stitch: Stitch) -> tuple[Json, Json]:
    """Return the content of action_data, and the further keys of the line."""
    usage = {theirs: count for theirs, ours in _USAGE if (count := getattr(stitch, ours)) is not None}
    message = stitch.message
    if stitch.type == "llm_call":
        action: Json = {"stop_reason": stitch.status, "usage": usage}
        if _is_response(message):
            action["content"] = cast("Json", message)["content"]
            message = None
        beside = {"name": stitch.name, "call_id": stitch.call_id, "message": message}
        return _with_data(action, _OF_RESPONSE, stitch.data, beside)
    if stitch.type == "tool_call":
        action = {"tool_name": stitch.name, "tool_use_id": stitch.call_id}
        failed = bool((message or {}).get("is_error"))
        text = None
        if _is_result(message, stitch.call_id):
            action["result"], text = _result_object(cast("Json", message)["content"])
            message = None
        action |= {"success": not failed, "execution_time_ms": stitch.duration_ms}
        beside = {"status": stitch.status, "usage": usage or None, "message": message, "result_text": text}
        return _with_data(action, _OF_TOOL, stitch.data, beside)
    beside = {
        "name": stitch.name,
        "call_id": stitch.call_id,
        "status": stitch.status,
        "usage": usage or None,
        "message": message,
    }
    if stitch.type in ERROR_TYPES:
        return _with_data({"stitch_type": stitch.type}, _OF_ERROR, stitch.data, beside)
    return _with_data({}, _OF_RUN.get(stitch.type, _NONE), stitch.data, beside)


def _with_data(action: Json, selected: frozenset[str], data: Json, beside: Json) -> tuple[Json, Json]:
    if selected.isdisjoint(data):
        return action | data, beside
    return action, beside | {"data": data}


def _is_response(message: Json | None) -> bool:
    """True if `decode_stitch` can rebuild the message from its content."""
    return message is not None and list(message) == ["role", "content"] and message["role"] == "assistant"


def _is_result(block: Json | None, call_id: str | None) -> bool:
    if block is None or call_id is None or block.get("tool_use_id") != call_id:
        return False
    # An object is read as the text of a result.
    if isinstance(block.get("content"), dict):
        return False
    failed = block.get("is_error", False)
    # 1 equals True but is written differently.
    if not isinstance(failed, bool):
        return False
    return list(block.items()) == list(_result(call_id, block.get("content"), not failed).items())


def _result_object(content: Any) -> tuple[Any, str | None]:
    """Return the object that the text of a result contains, as the lens shows it, or the content.

    The second value is the text, if the object alone does not give the same text.
    """
    if not isinstance(content, str) or not content.startswith("{"):
        return content, None
    try:
        value = codec.loads(content)
        is_same = codec.dumps(value).decode() == content
    except (ValueError, TypeError, RecursionError):
        return content, None
    return value, None if is_same else content


def _result(call_id: str, content: Any, success: bool) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return block if success else {**block, "is_error": True}


def _add(line: Json, values: Json) -> None:
    line |= {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return format_time(value) if isinstance(value, datetime) else value


def _id(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)


R = TypeVar("R", bound=Record)

SEPARATE_FIELDS: Mapping[type[Record], str] = {Blob: "content", Archive: "content"}
"""Fields that are stored in separate files, because they are large and useful in their original form."""


def encode_record(record: Record) -> Json:
    """Return the document of a record, without a field that has a separate file."""
    values = record.as_json()
    kind = type(record)
    return {
        name: b64encode(value).decode() if isinstance(value := values.get(name), bytes) else value
        for name, _ in columns(kind)
        if name != SEPARATE_FIELDS.get(kind)
    }


def decode_record(kind: type[R], document: Json, **beside: Any) -> R:
    """Return the record of a document and of its separate file."""
    return kind.from_json(restored(kind, {**document, **beside}))


def restored(kind: type[Record], document: Mapping[str, Any]) -> Json:
    """Return the values of a document, with base64 decoded to bytes."""
    values = dict(document)
    for name, column in columns(kind):
        if column is ColumnKind.BYTES and isinstance(values.get(name), str):
            values[name] = b64decode(values[name])
    return values
