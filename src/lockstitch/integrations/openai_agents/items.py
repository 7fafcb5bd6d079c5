"""Items of OpenAI Agents from stitches, and entries and messages from items.

A stitch has the content of its items once, in `message`. Only what a message cannot express is in
`data["openai_agents"]`:

    "item": {…}       the item without its content, if it is not that of a plain message or result
    "items": [{…}]    the whole items, if they cannot be derived from the message
    "usage": [1, 900, 450]   requests, input tokens and output tokens of the run of the SDK so far
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

from lockstitch.agents.providers.openai_responses import (
    blocks_of_item,
    items_of_response,
    items_of_user,
    part_of_block,
)
from lockstitch.model import Entry, Json, Message, Stitch
from lockstitch.model.message import blocks, tool_result, user

ABOUT: Final = "openai_agents"
"""Key of `data` with the values that only this package reads."""

OTHER: Final = "openai_agents_item"
"""Type of a stitch whose item is no message, no call and no result of a recorded call."""

Kind = Literal["input", "response", "result", "other"]


def about(entry: Entry) -> Json:
    """Return the values of a stitch that only this package reads."""
    value: Any = entry.data.get(ABOUT)
    return cast("Json", value) if isinstance(value, dict) else {}


def kind_of(item: Json) -> Kind:
    """Return the kind of entry that an item becomes."""
    kind, role = item.get("type"), item.get("role")
    if kind in (None, "message") and isinstance(item.get("content"), str | list):
        if role in ("user", "system", "developer"):
            return "input"
        return "response" if role == "assistant" and _has_blocks(item) else "other"
    if kind == "function_call_output":
        return "result"
    if kind == "reasoning" or (isinstance(kind, str) and kind.endswith("_call")):
        return "response" if _has_blocks(item) else "other"
    return "other"


def _has_blocks(item: Json) -> bool:
    try:
        return bool(blocks_of_item(item))
    except (LookupError, TypeError, ValueError, AttributeError):
        return False


# From stitches


def items_of_stitch(stitch: Stitch) -> list[Json]:
    """Return the items of a stitch. Stitches of Lockstitch agents have items, too."""
    own = about(stitch)
    if "items" in own:
        return own["items"]
    if stitch.type == "fork":
        return items_of_messages(stitch.data.get("messages"))
    return [] if stitch.message is None else items_of_message(stitch.message, own.get("item"))


def items_of_messages(value: Any) -> list[Json]:
    """Return the items of a message, of a tool result, or of a list of messages."""
    messages = cast("list[Message]", value) if isinstance(value, list) else [value] if value else []
    return [item for message in messages for item in items_of_message(message, None)]


def items_of_message(message: Message, item: Json | None) -> list[Json]:
    """Return the items of a message or of a tool result. `item` has the rest of its only item."""
    if message.get("role") == "assistant":
        return [*items_of_response(blocks(message))]
    content: Any = message.get("content")
    if message.get("type") == "tool_result":
        if item is not None:
            return [{**item, "output": content}]
        return [*items_of_user([message])]
    if item is not None:
        return [{**item, "content": content if isinstance(content, str) else _parts(message)}]
    return [{"role": "user", "content": content}] if isinstance(content, str) else [*items_of_user(blocks(message))]


def _parts(message: Message) -> list[Json]:
    return [part for block in blocks(message) for part in part_of_block(block)]


# From items


def input_message(item: Json) -> tuple[Message, Json]:
    """Return the user message of an item, and the data that it needs."""
    content: Any = item["content"]
    message = user(content if isinstance(content, str) else [_block(part) for part in content])
    rest = {name: value for name, value in item.items() if name != "content"}
    return message, _data([item], message, None if rest == {"role": "user"} else rest)


def result_block(item: Json) -> tuple[Json, Json]:
    """Return the tool result of an item, and the data that it needs."""
    output: Any = item.get("output")
    content = [_block(part) for part in cast("list[Any]", output)] if isinstance(output, list) else output
    block = tool_result(item["call_id"], content if isinstance(content, str | list) else str(content))
    rest = {name: value for name, value in item.items() if name != "output"}
    is_plain = rest == {"type": "function_call_output", "call_id": item["call_id"]}
    return block, _data([item], block, None if is_plain else rest)


def response_message(items: Sequence[Json]) -> tuple[Message, Json]:
    """Return the message of a response, and the data that it needs."""
    message: Message = {"role": "assistant", "content": [block for item in items for block in blocks_of_item(item)]}
    return message, _data(items, message, None)


def _data(items: Sequence[Json], message: Json, item: Json | None) -> Json:
    if items_of_message(message, item) != [*items]:
        return {"items": [*items]}
    return {} if item is None else {"item": item}


def _block(part: Any) -> Json:
    """Return the block of a part of a message."""
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)} if not url.startswith("data:"):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case {"type": "input_image", "image_url": str(url)} if ";base64," in url:
            media_type, _, data = url.removeprefix("data:").partition(";base64,")
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case {"type": "input_image", "file_id": str(file_id)}:
            return {"type": "image", "source": {"type": "file", "file_id": file_id}}
        case {"type": "input_file", "file_id": str(file_id)}:
            return {"type": "document", "source": {"type": "file", "file_id": file_id}}
        case {"type": "input_file", "file_url": str(url)}:
            return {"type": "document", "source": {"type": "url", "url": url}}
        case _:
            kind = cast("Json", part).get("type") if isinstance(part, dict) else None
            return {"type": "text", "text": f"({kind or 'other content'})"}


def messages_of(items: Sequence[Json]) -> list[Message]:
    """Return the messages of items, of which some may come from one response."""
    return [*_messages(items)]


def _messages(items: Sequence[Json]) -> Iterator[Message]:
    response: list[Json] = []
    for item in items:
        kind = kind_of(item)
        if kind == "response":
            response.append(item)
            continue
        if response:
            yield response_message(response)[0]
            response = []
        if kind == "input":
            yield input_message(item)[0]
        elif kind == "result":
            yield user([result_block(item)[0]])
    if response:
        yield response_message(response)[0]
