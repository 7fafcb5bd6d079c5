"""`OpenAIChatProvider`: provider, requests and replies of the Chat Completions API.

A stored user message may become several messages. Tool results are separate messages with text only and come first.
Their images and documents follow in the user message.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

from openai.types.chat import ChatCompletionMessageParam

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
    is_custom,
    is_strict,
    raw_arguments,
    timeout_of,
)
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response, StopReason, Usage
from lockstitch.model import Json, Message
from lockstitch.model.message import blocks


def build(request: ModelRequest, *, custom: bool) -> Json:
    """Return the request body. `custom` servers use max_tokens instead of max_completion_tokens."""
    messages = [item for message in with_unique_ids(request.messages) for item in _messages(message)]
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
        value = _assistant(message)
        return iter([value] if value else [])
    return _user(message)


def _assistant(message: Message) -> Message | None:
    value: Message = {"role": "assistant"}
    texts: list[str] = []
    for block in blocks(message):
        stored: Json = block.get(PROVIDER_DATA) or {}
        match block.get("type"):
            case "text" if stored.get("refusal"):
                value["refusal"] = block["text"]
            case "text" if block.get("text"):
                texts.append(block["text"])
            case "thinking" if "field" in stored:
                value[stored["field"]] = block["thinking"]
            case "tool_use":
                call: Json = {"name": block["name"], "arguments": arguments_of(block)}
                value.setdefault("tool_calls", []).append({"id": block["id"], "type": "function", "function": call})
            case _:
                # Skip thinking and server tools of other providers.
                pass
    if texts:
        value["content"] = "\n\n".join(texts)
    return value if texts or "tool_calls" in value or "refusal" in value else None


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
            texts.append(f"(The media of this result follow in the next message as result of {block['tool_use_id']}.)")
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
    """Return a single text as a string, which every server accepts."""
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


_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
# OpenAI does not send thinking in this API. Other servers use one of these fields.
_THINKING_FIELDS: Final = ("reasoning_content", "reasoning")


class Reply:
    """Builds a response from stream events. LookupError, TypeError and ValueError mean that the stream is not valid."""

    def __init__(self) -> None:
        self._first: Json = {}
        self._texts: dict[str, str] = {}
        self._calls: list[Json] = []
        self._finish: str | None = None
        self._usage: Json = {}

    def feed(self, event: Json) -> Iterator[Chunk]:
        self._first = self._first or event
        self._usage = event.get("usage") or self._usage
        for choice in event["choices"]:
            if not choice.get("index"):
                yield from self._extend(choice.get("delta") or {})
                yield from self._end(choice.get("finish_reason"))

    def response(self) -> Response:
        if self._finish is None:
            raise ValueError("the stream ended before the message was complete")
        content = [*self._text_blocks(), *(self._block(place) for place in range(len(self._calls)))]
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=self._stop_reason(self._finish),
            usage=usage_of(self._usage),
            finish_reason=self._finish,
            response_id=self._first.get("id"),
            model=self._first.get("model"),
        )

    def _extend(self, delta: Json) -> Iterator[Chunk]:
        for name in (*_THINKING_FIELDS, "content", "refusal"):
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._texts[name] = self._texts.get(name, "") + text
                yield Chunk("thinking" if name in _THINKING_FIELDS else "text", join_surrogates(text))
        for part in delta.get("tool_calls") or ():
            self._extend_call(part)

    def _extend_call(self, part: Json) -> None:
        """Add a part to its call. Parts share an index. If a server repeats or omits it, a new id starts a new call."""
        index, id = part.get("index"), part.get("id")
        call = next((call for call in reversed(self._calls) if index is None or call["index"] == index), None)
        if call is None or (id and call["id"] and id != call["id"]):
            call = {"index": index, "id": id or "", "name": "", "arguments": ""}
            self._calls.append(call)
        function: Json = part.get("function") or {}
        call["id"] = call["id"] or id or ""
        for name in ("name", "arguments"):
            call[name] = f"{call[name]}{function.get(name) or ''}"

    def _end(self, finish: str | None) -> Iterator[Chunk]:
        if finish is None or self._finish is not None:
            return
        self._finish = finish
        for place in range(len(self._calls)):
            chunk = chunk_of(self._block(place))
            if chunk:
                yield chunk

    def _text_blocks(self) -> Iterator[Json]:
        for name in _THINKING_FIELDS:
            if name in self._texts:
                yield {
                    "type": "thinking",
                    "thinking": join_surrogates(self._texts[name]),
                    PROVIDER_DATA: {"field": name},
                }
        if "content" in self._texts:
            yield {"type": "text", "text": join_surrogates(self._texts["content"])}
        if "refusal" in self._texts:
            yield {"type": "text", "text": join_surrogates(self._texts["refusal"]), PROVIDER_DATA: {"refusal": True}}

    def _block(self, place: int) -> Json:
        call = self._calls[place]
        if not call["name"]:
            raise ValueError("a call has no function name")
        value = parse_input(call["arguments"])
        stored = raw_arguments(join_surrogates(call["arguments"]), value)
        id = call["id"] or f"call_{self._first.get('id') or 'chat'}_{place}"
        block: Json = {"type": "tool_use", "id": id, "name": call["name"], "input": value}
        return {**block, PROVIDER_DATA: stored} if stored else block

    def _stop_reason(self, finish: str) -> StopReason:
        if "refusal" in self._texts:
            return "refusal"
        if self._calls and finish == "stop":
            # Some servers report stop for a call.
            return "tool_use"
        return _STOP_REASONS.get(finish, "tool_use" if self._calls else "end_turn")


def usage_of(usage: Json) -> Usage:
    """Return the usage. OpenAI includes cached tokens in the prompt and thinking in the completion."""
    details: Json = usage.get("prompt_tokens_details") or {}
    return Usage(
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        details.get("cached_tokens") or 0,
        details.get("cache_write_tokens") or 0,
    )


class OpenAIChatProvider(OpenAIProvider):
    """Calls the Chat Completions API of OpenAI or of a server with the same API.

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
        body = build(request, custom=is_custom(self._client.base_url))
        model, messages = body.pop("model"), cast("list[ChatCompletionMessageParam]", body.pop("messages"))
        return self._client.get().chat.completions.with_streaming_response.create(
            model=model,
            messages=messages,
            stream=True,
            extra_body=body,
            extra_headers=headers_of(request),
            timeout=timeout_of(request),
        )
