"""`build` and `Reply`: requests and streamed replies of the Messages API.

Stored blocks have the form of Anthropic, so messages are sent nearly unchanged. `build` removes our own keys, blocks
that the API rejects, and blocks of other providers. It sets cache breakpoints on copies of the messages.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

from anthropic import transform_schema

from lockstitch.agents.providers.http import chunk_of, join_surrogates, merged, parse_input, with_unique_ids
from lockstitch.engine.ports.provider import Chunk, ModelRequest, ProviderError, Response, StopReason, Usage
from lockstitch.model import Json, Message
from lockstitch.model.message import blocks

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
    "compaction": "pause_turn",
}


class Reply:
    """Builds a response from stream events. KeyError, TypeError and ValueError mean that the stream is not valid."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._json: dict[int, str] = {}
        self._open: set[int] = set()
        self._stop: Json = {}
        self._ended = False

    def feed(self, event: Json) -> Iterator[Chunk]:
        match event["type"]:
            case "message_start":
                self._message = dict(event["message"])
                self._count(self._message.get("usage"))
            case "content_block_start":
                self._start(int(event["index"]), event["content_block"])
            case "content_block_delta":
                yield from self._extend(int(event["index"]), event["delta"])
            case "content_block_stop":
                chunk = chunk_of(self._finish(int(event["index"])))
                if chunk:
                    yield chunk
            case "message_delta":
                self._stop = event["delta"]
                self._count(event.get("usage"))
            case "message_stop":
                self._ended = True
            case _:
                # The API may add new kinds of events, which clients must ignore.
                pass

    def response(self) -> Response:
        if not self._message or not self._ended or self._open:
            raise ValueError("the stream ended before the message was complete")
        content = [self._blocks[index] for index in sorted(self._blocks)]
        reason = self._stop.get("stop_reason") or self._message.get("stop_reason")
        container: Json | None = self._stop.get("container") or self._message.get("container")
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=_stop_reason(reason, content),
            usage=usage_of(self._usage),
            finish_reason=reason,
            response_id=self._message.get("id"),
            model=self._message.get("model"),
            container_id=container["id"] if container else None,
        )

    def _count(self, usage: Json | None) -> None:
        """Update the usage. Counts are totals: a later value replaces an earlier one, and missing values stay."""
        if usage:
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _start(self, index: int, block: Json) -> None:
        if not self._message:
            raise ValueError("a block came before the message")
        self._blocks[index] = dict(block)
        self._open.add(index)
        if block["type"] == "fallback":
            self._message["model"] = block["to"]["model"]

    def _extend(self, index: int, delta: Json) -> Iterator[Chunk]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield Chunk("text", join_surrogates(delta["text"]))
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield Chunk("thinking", join_surrogates(delta["thinking"]))
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                yield Chunk("citation", data=delta["citation"])
            case "input_json_delta":
                self._json[index] = self._json.get(index, "") + delta["partial_json"]
            case _:
                # A compaction comes as one delta, and future blocks may too.
                block.update({name: value for name, value in delta.items() if name != "type"})

    def _finish(self, index: int) -> Json:
        block = self._blocks[index]
        self._open.remove(index)
        if self._json.get(index):
            block["input"] = parse_input(self._json[index])
        for name in ("text", "thinking"):
            if isinstance(block.get(name), str):
                block[name] = join_surrogates(block[name])
        return block


def usage_of(usage: Json) -> Usage:
    """Return the usage with cached tokens and compactions included, which Anthropic counts separately."""
    iterations: list[Json] = usage.get("iterations") or []
    totals = [usage, *(iteration for iteration in iterations if iteration.get("type") == "compaction")]

    def total(name: str) -> int:
        return sum(total.get(name) or 0 for total in totals)

    read, write = total("cache_read_input_tokens"), total("cache_creation_input_tokens")
    return Usage(total("input_tokens") + read + write, total("output_tokens"), read, write)


def _stop_reason(reason: Any, content: list[Json]) -> StopReason:
    has_calls = any(block.get("type") == "tool_use" for block in content)
    return _STOP_REASONS.get(str(reason), "tool_use" if has_calls else "end_turn")


CacheTime = Literal["5m", "1h"]

# Key of a block under which another provider stores its own data.
FOREIGN: Final = "openai"
# The API rejects breakpoints on these blocks.
_UNMARKED: Final = ("thinking", "redacted_thinking", "compaction", "fallback")
_NOT_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def build(request: ModelRequest, cache: CacheTime | None) -> Json:
    """Return the request body. The cached prefix is tools, system, messages, up to each breakpoint."""
    mark = _mark(cache)
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": _with_breakpoints(with_unique_ids(_messages(request.messages)), mark),
    }
    client_tools = list(request.tools)
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **mark}]
    elif client_tools:
        client_tools[-1] = {**client_tools[-1], **mark}
    if client_tools or request.server_tools:
        body["tools"] = [*client_tools, *request.server_tools]
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    if request.thinking_tokens:
        body["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_tokens}
    if request.output_schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": _schema(request.output_schema)}}
    if request.container_id:
        body["container"] = _container(request.container_id, request.api_kwargs.get("container"))
    own = {name: value for name, value in request.api_kwargs.items() if name != "container" or not request.container_id}
    return merged(body, own, nested=("output_config",))


def _mark(cache: CacheTime | None) -> Json:
    if cache is None:
        return {}
    return {"cache_control": {"type": "ephemeral"} if cache == "5m" else {"type": "ephemeral", "ttl": cache}}


def _container(container_id: str, own: Any) -> Json | str:
    """Return the container of the previous step, with the caller's options such as skills."""
    return {"id": container_id, **cast("Json", own)} if isinstance(own, dict) else container_id


def _schema(schema: Json) -> Json:
    """Return the part of a schema that the API can enforce. The rest becomes descriptions for the model."""
    try:
        return transform_schema(schema)
    except (ValueError, TypeError, KeyError) as exc:
        raise ProviderError(f"Anthropic does not support this output schema: {exc}", "request") from exc


def _messages(messages: Sequence[Message]) -> list[Message]:
    converted = [{"role": message["role"], "content": _content(message)} for message in messages]
    return [message for message in converted if message["content"]]


def _content(message: Message) -> Any:
    if isinstance(message.get("content"), str):
        return message["content"]
    return [_block(block) for block in blocks(message) if _is_sent(block)]


def _is_sent(block: Json) -> bool:
    """True if the API accepts a block: no empty text, no unsigned thinking, no server tools of other providers."""
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return FOREIGN not in block or kind == "tool_use"


def _block(block: Json) -> Json:
    own = {name: value for name, value in block.items() if name != FOREIGN and (value is not None or name == "content")}
    for name in ("id", "tool_use_id"):
        # The API rejects some characters in ids of other providers. Call and result change in the same way.
        if name in own:
            own[name] = _NOT_IN_ID.sub("_", str(own[name]))
    return own


def _with_breakpoints(messages: list[Message], mark: Json) -> list[Message]:
    """Set breakpoints on the last two user messages: this step reads up to the older and writes up to the newer.

    If the messages already have breakpoints, leave them unchanged, because the API accepts at most four.
    """
    if not mark or any("cache_control" in block for message in messages for block in blocks(message)):
        return messages
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for place in users[-2:]:
        messages[place] = _marked(messages[place], mark)
    return messages


def _marked(message: Message, mark: Json) -> Message:
    content = list(blocks(message))
    for place in reversed(range(len(content))):
        if content[place].get("type") not in _UNMARKED:
            content[place] = {**content[place], **mark}
            return {**message, "content": content}
    return message
