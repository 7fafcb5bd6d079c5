"""`Formatter` contract; events as format-neutral items."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, cast

from lockstitch.engine.events import Event
from lockstitch.model import FrontendToolWait, Json, codec, parse_waits

_DATA_URL: Final = re.compile(r"data:([^,]*);base64,")
_MEDIA_KEYS: Final = ("media_type", "format", "mime_type")


def without_payloads(value: Any) -> Any:
    """The same JSON, with a size label in place of every base64 payload."""
    if isinstance(value, str):
        url = _DATA_URL.match(value)
        return f"data:{url.group(1)};base64,{_label(value[url.end() :])}" if url else value
    if isinstance(value, list):
        return [without_payloads(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    bag = cast("Json", value)
    lighter = {key: without_payloads(item) for key, item in bag.items()}
    data: Any = bag.get("data")
    if isinstance(data, str) and (bag.get("type") == "base64" or any(key in bag for key in _MEDIA_KEYS)):
        lighter["data"] = _label(data)
    return lighter


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
"""Events that end a text also where nothing is shown of them: what follows a retry, say, is no more of the same."""

_SPOKEN: Final = frozenset({"text", "thinking", "citation"})

_SERVER_RESULT_FIELDS: Final = {"id": "tool_use_id", "name": "type"}


@dataclass(frozen=True, slots=True)
class FormatItem:
    """One thing to show. `content` is text, or JSON as text; `open`: more of the same may follow."""

    type: ItemType
    content: str
    fields: Fields = field(default_factory=dict[str, str | bool])
    open: bool = False


def items_of(event: Event, detail: bool) -> Iterator[FormatItem]:
    """What a format tells of `event`. Message history, tool results and final metadata only with `detail`."""
    data = event.data
    if event.member and event.type in _SPOKEN:
        # What a member says is for its leader, who tells the user.
        return
    match event.type:
        case "text" | "thinking":
            if data.get("text"):
                yield FormatItem(event.type, str(data["text"]), open=True)
        case "started":
            shown = {"thread_id": str(event.thread_id), "run_id": str(event.run_id), "model": data.get("model")}
            history = {name: data[name] for name in ("user_message", "messages") if name in data}
            yield FormatItem("meta_init", _json(shown | history if detail else shown))
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
            if _waits_for_browser(data):
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
    """A result in parts: its texts and whatever else as one, its images each for themselves."""
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
    for form, media_type, source in images:
        yield FormatItem("tool_result_image", source, {**fields, "encoding": form, "media_type": media_type})


def _text(part: Any) -> str:
    if isinstance(part, dict):
        block = cast("Json", part)
        if block.get("type") == "text":
            return str(block.get("text", ""))
    return part if isinstance(part, str) else _json(part)


def _image(part: Any) -> tuple[str, str, str] | None:
    """How an image comes (base64 or url), of what type, and it itself."""
    block = cast("Json", part) if isinstance(part, dict) else {}
    source: Any = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    value = cast("Json", source)
    form = "base64" if value.get("type") == "base64" else "url"
    return form, str(value.get("media_type", "")), str(value.get("data" if form == "base64" else "url", ""))


def _waits_for_browser(data: Json) -> bool:
    return any(isinstance(wait, FrontendToolWait) for wait in parse_waits(data.get("waiting_for") or ()))


def _fields(data: Json, **names: str) -> Fields:
    return {name: str(data[key]) for name, key in names.items() if data.get(key) is not None}


def _json(value: Any) -> str:
    return codec.dumps(without_payloads(value)).decode()


class Formatter(Protocol):
    """One stream's formatter. It may remember what it opened, so that it can close it."""

    name: str

    def feed(self, event: Event) -> list[str]:
        """The frames that tell of `event`; none where this format leaves it out."""
        ...

    def end(self) -> list[str]:
        """What closes the stream."""
        ...


FormatterMaker = Callable[[bool], Formatter]
"""Makes a formatter for one stream; whether it shows metadata, history and tool results."""
