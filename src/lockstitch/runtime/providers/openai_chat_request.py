"""Our request as the body of OpenAI's Chat Completions, which many other servers speak too.

One of our user messages may become several of theirs: results of tools are messages of their own there, hold text only
and come first; their images and documents follow in the user message.
"""

from collections.abc import Iterator
from typing import Any

from lockstitch.records import Json, Message
from lockstitch.records.message import blocks
from lockstitch.runtime.provider import ModelRequest
from lockstitch.runtime.providers.content import data_url, document_text, result_parts, with_unique_ids
from lockstitch.runtime.providers.openai_client import KEPT, arguments_of, effort, is_strict
from lockstitch.runtime.providers.transport import merged


def build(request: ModelRequest, *, custom: bool) -> Json:
    """The whole body; `custom` servers know max_tokens rather than max_completion_tokens."""
    messages = [each for message in with_unique_ids(request.messages) for each in _messages(message)]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: Json = {
        "model": request.model,
        "messages": messages,
        "max_tokens" if custom else "max_completion_tokens": request.max_tokens,
        "stream_options": {"include_usage": True},
    }
    tools = [*(_tool(tool) for tool in request.tools), *request.server_tools]
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.thinking_tokens:
        body["reasoning_effort"] = effort(request.thinking_tokens)
    if schema := request.output_schema:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": is_strict(schema)},
        }
    return merged(body, request.api_kwargs, nested=("stream_options",))


def _tool(tool: Json) -> Json:
    function: Json = {"name": tool["name"], "description": tool.get("description") or ""}
    return {"type": "function", "function": {**function, "parameters": tool.get("input_schema") or {"type": "object"}}}


def _messages(message: Message) -> Iterator[Message]:
    if message["role"] == "assistant":
        said = _assistant(message)
        return iter([said] if said else [])
    return _user(message)


def _assistant(message: Message) -> Message | None:
    said: Message = {"role": "assistant"}
    texts: list[str] = []
    for block in blocks(message):
        kept: Json = block.get(KEPT) or {}
        match block.get("type"):
            case "text" if kept.get("refusal"):
                said["refusal"] = block["text"]
            case "text" if block.get("text"):
                texts.append(block["text"])
            case "thinking" if "field" in kept:
                said[kept["field"]] = block["thinking"]
            case "tool_use":
                call: Json = {"name": block["name"], "arguments": arguments_of(block)}
                said.setdefault("tool_calls", []).append({"id": block["id"], "type": "function", "function": call})
            case _:
                # Thinking of others, and what their servers executed, means nothing here.
                pass
    if texts:
        said["content"] = "\n\n".join(texts)
    return said if texts or "tool_calls" in said or "refusal" in said else None


def _user(message: Message) -> Iterator[Message]:
    parts: list[Json] = []
    for block in blocks(message):
        if block.get("type") != "tool_result":
            parts.extend(_part(block))
            continue
        seen = [part for inner in result_parts(block) for part in _part(inner)]
        texts = [part["text"] for part in seen if part["type"] == "text"]
        media = [part for part in seen if part["type"] != "text"]
        if media:
            texts.append(f"(What is to be seen of this result follows below, as that of {block['tool_use_id']}.)")
            parts += [{"type": "text", "text": f"Result of {block['tool_use_id']}:"}, *media]
        text = "\n".join(texts)
        yield {
            "role": "tool",
            "tool_call_id": block["tool_use_id"],
            "content": f"Error: {text}" if block.get("is_error") else text,
        }
    if parts:
        yield {"role": "user", "content": _plain(parts)}


def _plain(parts: list[Json]) -> Any:
    """A lone text as a string, which every server takes."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(block: Json) -> Iterator[Json]:
    source: Json = block.get("source") or {}
    match block.get("type"):
        case "text" if block.get("text"):
            yield {"type": "text", "text": block["text"]}
        case "image":
            url = source.get("url") or data_url(source)
            yield {"type": "image_url", "image_url": {"url": url}}
        case "document":
            yield _document(block, source)
        case _:
            pass


def _document(block: Json, source: Json) -> Json:
    text = document_text(block)
    if text is not None:
        return {"type": "text", "text": text}
    if source.get("type") == "file":
        return {"type": "file", "file": {"file_id": source["file_id"]}}
    if source.get("type") == "url":
        return {"type": "text", "text": f"(A document is at {source['url']}.)"}
    return {"type": "file", "file": {"filename": block.get("title") or "document.pdf", "file_data": data_url(source)}}
