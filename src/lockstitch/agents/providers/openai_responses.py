"""`OpenAIResponsesProvider`: provider, requests and replies of the Responses API.

OpenAI stores nothing (store=False), so each request contains the whole conversation as items. The key `openai` of a
block has the data to build the same item again: reasoning and server tools completely, messages and calls without
their text.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from lockstitch.agents.providers.http import (
    chunk_of,
    data_url,
    document_text,
    join_surrogates,
    merged,
    parse_input,
    result_parts,
    with_unique_ids,
)
from lockstitch.agents.providers.openai_client import (
    PROVIDER_DATA,
    OpenAIProvider,
    arguments_of,
    effort,
    headers_of,
    is_strict,
    raw_arguments,
    reasons,
    stream_error,
    timeout_of,
)
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response, StopReason, Usage
from lockstitch.model import Json, Message
from lockstitch.model.message import blocks


def build(request: ModelRequest) -> Json:
    """Return the request body."""
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
    """Return the definition of a tool. `strict` is False: by default the API would make all parameters required."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description") or "",
        "parameters": tool.get("input_schema") or {"type": "object"},
        "strict": False,
    }


def _items(message: Message) -> Iterator[Json]:
    return _assistant(blocks(message)) if message["role"] == "assistant" else items_of_user(blocks(message))


def _assistant(content: Sequence[Json]) -> Iterator[Json]:
    """Yield the items of a response as the API accepts them."""
    items = [*items_of_response(content)]
    # The API rejects an item with an id if its reasoning is missing.
    without_ids = any(_is_lost(item) for item in items)
    for item in items:
        if not _is_lost(item):
            drops_id = without_ids and item.get("type") in ("message", "function_call")
            yield _without_id(_set(item)) if drops_id else _set(item)


def items_of_response(content: Sequence[Json]) -> Iterator[Json]:
    """Yield the items of a response. They equal the items that `blocks_of_item` got."""
    message: Json | None = None
    for block in content:
        stored: Json = block.get(PROVIDER_DATA) or {}
        kind = block.get("type")
        is_part = kind == "text" and "part" in stored
        if message is not None and not (is_part and stored.get("id") == message.get("id")):
            yield message
            message = None
        if is_part:
            if message is None:
                own = {"id": stored["id"]} if "id" in stored else {}
                message = {**own, **stored["message"], "content": []}
            message["content"].append({**stored["part"], _text_key(stored["part"]): block["text"]})
        elif kind == "text" and "message" in stored:
            yield {**stored["message"], "content": block["text"]}
        elif kind == "text" and block.get("text"):
            yield {"type": "message", "role": "assistant", "content": block["text"]}
        elif kind == "tool_use":
            yield _call(block, stored)
        elif kind in ("thinking", "server_tool_use") and "type" in stored:
            yield stored
        # Thinking and server tools of other providers are left out.
    if message is not None:
        yield message


def _is_lost(item: Json) -> bool:
    """True if an item is reasoning without its encrypted content, which cannot be sent back."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _set(item: Json) -> Json:
    """Return an item without null values, which requests may not contain."""
    return {name: value for name, value in item.items() if value is not None}


def _without_id(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _text_key(part: Json) -> str:
    return "refusal" if part.get("type") == "refusal" else "text"


def _call(block: Json, stored: Json) -> Json:
    own = {name: value for name, value in stored.items() if name != "arguments"}
    call: Json = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
    return {**call, "arguments": arguments_of(block), **own}


def items_of_user(content: Sequence[Json]) -> Iterator[Json]:
    """Yield the items of a user message: its tool results, then the message."""
    parts: list[Json] = []
    for block in content:
        if block.get("type") == "tool_result":
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": _output(block)}
        else:
            parts.extend(part_of_block(block))
    if parts:
        yield {"type": "message", "role": "user", "content": parts}


def _output(block: Json) -> Any:
    """Return the text of a result, or its parts if it has other content."""
    parts = [part for inner in result_parts(block) for part in part_of_block(inner)]
    if block.get("is_error"):
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    if all(part["type"] == "input_text" for part in parts):
        return (" " if block.get("is_error") else "\n").join(part["text"] for part in parts)
    return parts


def part_of_block(block: Json) -> Iterator[Json]:
    """Yield the part of a message for a block of text or media."""
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


_THINKING_EVENTS: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXT_EVENTS: Final = ("response.output_text.delta", "response.refusal.delta")
_ENDS: Final = ("response.completed", "response.incomplete")


class Reply:
    """Builds a response from stream events. LookupError, TypeError and ValueError mean that the stream is not valid."""

    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._end: Json | None = None

    def feed(self, event: Json) -> Iterator[Chunk]:
        kind = event["type"]
        if kind in _THINKING_EVENTS:
            yield Chunk("thinking", join_surrogates(event["delta"]))
        elif kind in _TEXT_EVENTS:
            yield Chunk("text", join_surrogates(event["delta"]))
        elif kind == "response.reasoning_summary_part.added" and event["summary_index"]:
            yield Chunk("thinking", "\n\n")
        elif kind == "response.output_text.annotation.added":
            yield Chunk("citation", data=event["annotation"])
        elif kind == "response.output_item.done":
            self._items[int(event["output_index"])] = event["item"]
            yield from (chunk for block in blocks_of_item(event["item"]) if (chunk := chunk_of(block)))
        elif kind in _ENDS:
            self._end = event["response"]
        elif kind == "response.failed":
            error: Json = event["response"].get("error") or {}
            raise stream_error(error.get("code"), error.get("message"))
        elif kind == "error":
            raise stream_error(event.get("code"), event.get("message"))

    def response(self) -> Response:
        if self._end is None:
            raise ValueError("the stream ended before the response was complete")
        items = [self._items[index] for index in sorted(self._items)] or self._end.get("output") or []
        content = [block for item in items for block in blocks_of_item(item)]
        details: Json = self._end.get("incomplete_details") or {}
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=_stop_reason(details.get("reason"), content),
            usage=usage_of(self._end.get("usage") or {}),
            finish_reason=details.get("reason") or self._end.get("status"),
            response_id=self._end.get("id"),
            model=self._end.get("model"),
        )


def blocks_of_item(item: Json) -> list[Json]:
    """Return the content blocks of an item of a response.

    Raises `LookupError`, `TypeError` or `ValueError` if the item is not valid.
    """
    match item.get("type", "message"):
        case "message" if isinstance(item["content"], str):
            stored = {name: value for name, value in item.items() if name != "content"}
            return [{"type": "text", "text": join_surrogates(item["content"]), PROVIDER_DATA: {"message": stored}}]
        case "message":
            return [_text_block(item, part) for part in item["content"]]
        case "function_call":
            return [_call_block(item)]
        case "reasoning":
            return [{"type": "thinking", "thinking": _thinking(item), PROVIDER_DATA: item}]
        case kind:
            # Calls that the provider executed are sent back completely.
            name = str(kind).removesuffix("_call")
            call: Json = {"type": "server_tool_use", "id": item.get("id") or "", "name": name}
            return [{**call, "input": item.get("action") or {}, PROVIDER_DATA: item}]


def _text_block(item: Json, part: Json) -> Json:
    """Return the text block of a part of a message, with the data to build the same part again."""
    key = "refusal" if part["type"] == "refusal" else "text"
    stored: Json = {
        **({"id": item["id"]} if "id" in item else {}),
        "message": {name: value for name, value in item.items() if name not in ("id", "content")},
        "part": {name: value for name, value in part.items() if name != key},
    }
    return {"type": "text", "text": join_surrogates(part[key]), PROVIDER_DATA: stored}


def _call_block(item: Json) -> Json:
    value = parse_input(item["arguments"])
    separate = ("type", "call_id", "name", "arguments")
    stored = {name: value for name, value in item.items() if name not in separate}
    stored |= raw_arguments(join_surrogates(item["arguments"]), value)
    block: Json = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": value}
    return {**block, PROVIDER_DATA: stored} if stored else block


def _thinking(item: Json) -> str:
    parts: list[Json] = item.get("summary") or item.get("content") or []
    return "\n\n".join(join_surrogates(part["text"]) for part in parts)


def _stop_reason(incomplete: Any, content: list[Json]) -> StopReason:
    if incomplete == "content_filter":
        return "refusal"
    if incomplete is not None:
        return "max_tokens"
    if any(block["type"] == "tool_use" for block in content):
        return "tool_use"
    return "refusal" if any(_is_refusal(block) for block in content) else "end_turn"


def _is_refusal(block: Json) -> bool:
    stored: Json = block.get(PROVIDER_DATA) or {}
    part: Json = stored.get("part") or {}
    return part.get("type") == "refusal"


def usage_of(usage: Json) -> Usage:
    """Return the usage. OpenAI includes cached tokens in the input and reasoning in the output."""
    details: Json = usage.get("input_tokens_details") or {}
    return Usage(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        details.get("cached_tokens") or 0,
        details.get("cache_write_tokens") or 0,
    )


class OpenAIResponsesProvider(OpenAIProvider):
    """Calls the Responses API of OpenAI or of a server with the same API.

    Args:
        model: Name of the model, if the provider is the `model` of an agent.
        api_key: Key of the API. None: from the environment.
        base_url: Address of the API, typically with `/v1` at its end. None: from the environment.
        name: Prefix of the model in the record, such as `ollama` in `ollama:llama3`. None: `openai`, or host and port
            of another server.
        raw_events: True to yield the events of the API among the chunks.

    Raises:
        ProviderError: Of kind `setup`, if the key is missing, or the URL or the name is not valid.
    """

    reply_class = Reply

    def _call(self, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        """Return the call as a context manager. The SDK sends `extra_body` unchanged, so most of the body is there."""
        body = build(request)
        return self._client.get().responses.with_streaming_response.create(
            model=body.pop("model"),
            stream=True,
            extra_body=body,
            extra_headers=headers_of(request),
            timeout=timeout_of(request),
        )
