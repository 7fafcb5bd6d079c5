"""Our request as the body of OpenAI's Responses API.

Nothing is stored there (store=False): each request brings the whole conversation, as items. What an item needs to be
the same item again rides in the block under `openai`: reasoning and server tools whole, messages and calls without
their text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.records import Json, Message
from lockstitch.records.message import blocks
from lockstitch.runtime.provider import ModelRequest
from lockstitch.runtime.providers.content import data_url, document_text, result_parts, with_unique_ids
from lockstitch.runtime.providers.openai_client import KEPT, arguments_of, effort, is_strict, reasons
from lockstitch.runtime.providers.transport import merged


def build(request: ModelRequest) -> Json:
    body: Json = {
        "model": request.model,
        "input": [item for message in with_unique_ids(request.messages) for item in _items(message)],
        "max_output_tokens": request.max_tokens,
        "store": False,
    }
    if request.system:
        body["instructions"] = request.system
    tools = [*(_tool(tool) for tool in request.tools), *request.server_tools]
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if reasons(request.model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.thinking_tokens:
        body["reasoning"] = {"effort": effort(request.thinking_tokens), "summary": "auto"}
    if schema := request.output_schema:
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
        body["text"] = {"format": form}
    return merged(body, request.api_kwargs, nested=("text", "reasoning"))


def _tool(tool: Json) -> Json:
    """Not strict unless it is said: left out, the API would rewrite the schema and require all that is optional."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description") or "",
        "parameters": tool.get("input_schema") or {"type": "object"},
        "strict": False,
    }


def _items(message: Message) -> Iterator[Json]:
    return _assistant(blocks(message)) if message["role"] == "assistant" else _user(blocks(message))


def _assistant(content: Sequence[Json]) -> Iterator[Json]:
    # An item without the reasoning it followed is refused if it bears its id.
    bare = any(_is_lost(block) for block in content)
    spoken: Json | None = None
    for block in content:
        kept: Json = block.get(KEPT) or {}
        item_id = kept.get("id") if block.get("type") == "text" else None
        if spoken is not None and (item_id is None or item_id != spoken.get("id")):
            yield _without_id(spoken) if bare else spoken
            spoken = None
        match block.get("type"):
            case "text" if item_id is not None:
                spoken = spoken or {"id": item_id, **_set(kept["message"]), "content": []}
                spoken["content"].append({**kept["part"], _text_key(kept["part"]): block["text"]})
            case "text" if block.get("text"):
                yield {"type": "message", "role": "assistant", "content": block["text"]}
            case "tool_use":
                item = _call(block, kept)
                yield _without_id(item) if bare else item
            case "thinking" | "server_tool_use" if "type" in kept and not _is_lost(block):
                yield _set(kept)
            case _:
                # Thinking of others, and what their servers executed, means nothing here.
                pass
    if spoken is not None:
        yield _without_id(spoken) if bare else spoken


def _is_lost(block: Json) -> bool:
    """Whether it is reasoning that cannot go back: the API keeps nothing, and we were given nothing to keep."""
    kept: Json = block.get(KEPT) or {}
    return kept.get("type") == "reasoning" and not kept.get("encrypted_content")


def _set(item: Json) -> Json:
    """An item without what is null: answers hold such keys, requests may not."""
    return {name: value for name, value in item.items() if value is not None}


def _without_id(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _text_key(part: Json) -> str:
    return "refusal" if part.get("type") == "refusal" else "text"


def _call(block: Json, kept: Json) -> Json:
    own = {name: value for name, value in kept.items() if name != "arguments"}
    call: Json = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
    return {**call, "arguments": arguments_of(block), **own}


def _user(content: Sequence[Json]) -> Iterator[Json]:
    parts: list[Json] = []
    for block in content:
        if block.get("type") == "tool_result":
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": _output(block)}
        else:
            parts.extend(_part(block))
    if parts:
        yield {"type": "message", "role": "user", "content": parts}


def _output(block: Json) -> Any:
    """A result's text, or its parts if there is more than text in it."""
    parts = [part for inner in result_parts(block) for part in _part(inner)]
    if block.get("is_error"):
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    if all(part["type"] == "input_text" for part in parts):
        return (" " if block.get("is_error") else "\n").join(part["text"] for part in parts)
    return parts


def _part(block: Json) -> Iterator[Json]:
    source: Json = block.get("source") or {}
    match block.get("type"):
        case "text" if block.get("text"):
            yield {"type": "input_text", "text": block["text"]}
        case "image" if source.get("type") == "file":
            yield {"type": "input_image", "detail": "auto", "file_id": source["file_id"]}
        case "image":
            yield {"type": "input_image", "detail": "auto", "image_url": source.get("url") or data_url(source)}
        case "document":
            yield _document(block, source)
        case _:
            pass


def _document(block: Json, source: Json) -> Json:
    text = document_text(block)
    if text is not None:
        return {"type": "input_text", "text": text}
    match source.get("type"):
        case "file":
            return {"type": "input_file", "file_id": source["file_id"]}
        case "url":
            return {"type": "input_file", "file_url": source["url"]}
        case _:
            name = block.get("title") or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(source)}
