"""`Formatter`: the protocol of stream formats. `items_of` returns the parts of an event for any format."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, cast

from lockstitch.engine.events import Event
from lockstitch.model import FrontendToolWait, Json, codec, parse_waits

_DATA_URL: Final = re.compile(r"data:([^,]*);base64,")
_MEDIA_KEYS: Final = ("media_type", "format", "mime_type")


def without_payloads(value: Any) -> Any:
    """Return the JSON with a size label instead of every base64 payload."""
    if isinstance(value, str):
        url = _DATA_URL.match(value)
        return f"data:{url.group(1)};base64,{_label(value[url.end() :])}" if url else value
    if isinstance(value, list):
        return [without_payloads(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    values = cast("Json", value)
    result = {key: without_payloads(item) for key, item in values.items()}
    data: Any = values.get("data")
    if isinstance(data, str) and (values.get("type") == "base64" or any(key in values for key in _MEDIA_KEYS)):
        result["data"] = _label(data)
    return result


def _label(data: str) -> str:
    return f"[base64: {len(data.rstrip('=')) * 3 // 4} bytes]"


ItemType = Literal[
    "meta_init",
    "thinking",
    "text",
    "citation",
    "tool_call",
    "server_tool_call",
    "tool_result",
    "tool_result_image",
    "server_tool_result",
    "awaiting_frontend_tools",
    "meta_files",
    "error",
    "meta_final",
]

Fields = dict[str, str | bool]

BREAKS: Final = frozenset(
    {"retry", "tool_result", "server_tool_result", "member_started", "member_finished", "paused", "finished"}
)
"""Events that end an open text even if the format does not show them, such as a retry."""

_TEXT_EVENTS: Final = frozenset({"text", "thinking", "citation"})

_SERVER_RESULT_FIELDS: Final = {"id": "tool_use_id", "name": "type"}


@dataclass(frozen=True, slots=True)
class FormatItem:
    """One part of a stream. `content` is text, or JSON as text. `open` is True if more of it may follow."""

    type: ItemType
    content: str
    fields: Fields = field(default_factory=dict[str, str | bool])
    open: bool = False


def items_of(event: Event, detail: bool) -> Iterator[FormatItem]:
    """Yield the parts of an event. History, tool results and final metadata only with `detail`."""
    data = event.data
    if event.member and event.type in _TEXT_EVENTS:
        # The text of a member is for its leader, not for the user.
        return
    match event.type:
        case "text" | "thinking":
            if data.get("text"):
                yield FormatItem(event.type, str(data["text"]), open=True)
        case "started":
            meta = {"thread_id": str(event.thread_id), "run_id": str(event.run_id), "model": data.get("model")}
            history = {name: data[name] for name in ("user_message", "messages") if name in data}
            yield FormatItem("meta_init", _json(meta | history if detail else meta))
        case "citation":
            yield FormatItem("citation", _json(data))
        case "tool_call" | "server_tool_call":
            yield FormatItem(event.type, _json(data.get("input")), _fields(data, id="id", name="name"))
        case "tool_result":
            if detail:
                yield from _results(data)
        case "server_tool_result":
            if detail:
                yield FormatItem(event.type, _json(data.get("content")), _fields(data, **_SERVER_RESULT_FIELDS))
        case "files":
            yield FormatItem("meta_files", _json(data.get("files") or []))
        case "paused":
            if _waits_for_frontend(data):
                yield FormatItem("awaiting_frontend_tools", _json(data.get("pending") or []))
            if detail:
                yield FormatItem("meta_final", _json({"status": "waiting", **data}))
        case "failed":
            yield FormatItem("error", str(data.get("error", "")), _fields(data, error_type="type"))
        case "finished":
            if detail:
                yield FormatItem("meta_final", _json(data))
        case "raw" | "retry" | "compacted" | "member_started" | "member_finished":
            return


def _results(data: Json) -> Iterator[FormatItem]:
    """Yield the parts of a result: one for its texts and other content, and one for each image."""
    fields = _fields(data, id="id", name="name")
    if data.get("is_error"):
        fields["is_error"] = True
    content: Any = data.get("content")
    if not isinstance(content, list):
        yield FormatItem("tool_result", content if isinstance(content, str) else _json(content), fields)
        return
    parts = cast("list[Any]", content)
    images = [image for part in parts if (image := _image(part)) is not None]
    texts = [_text(part) for part in parts if _image(part) is None]
    if texts or not images:
        yield FormatItem("tool_result", "".join(texts), fields)
    for encoding, media_type, source in images:
        yield FormatItem("tool_result_image", source, {**fields, "encoding": encoding, "media_type": media_type})


def _text(part: Any) -> str:
    if isinstance(part, dict):
        block = cast("Json", part)
        if block.get("type") == "text":
            return str(block.get("text", ""))
    return part if isinstance(part, str) else _json(part)


def _image(part: Any) -> tuple[str, str, str] | None:
    """Return the encoding (base64 or url), the media type and the data of an image, or None."""
    block = cast("Json", part) if isinstance(part, dict) else {}
    source: Any = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    value = cast("Json", source)
    encoding = "base64" if value.get("type") == "base64" else "url"
    return encoding, str(value.get("media_type", "")), str(value.get("data" if encoding == "base64" else "url", ""))


def _waits_for_frontend(data: Json) -> bool:
    return any(isinstance(wait, FrontendToolWait) for wait in parse_waits(data.get("waiting_for") or ()))


def _fields(data: Json, **names: str) -> Fields:
    return {name: str(data[key]) for name, key in names.items() if data.get(key) is not None}


def _json(value: Any) -> str:
    return codec.dumps(without_payloads(value)).decode()


class Formatter(Protocol):
    """Formatter of one stream. It may have state, such as an open element."""

    name: str

    def feed(self, event: Event) -> list[str]:
        """Return the frames of an event. Empty if the format does not show it."""
        ...

    def end(self) -> list[str]:
        """Return the frames that close the stream."""
        ...


FormatterMaker = Callable[[bool], Formatter]
"""Function that returns a formatter for one stream. Its argument is True to show metadata, history and results."""
