"""Our request as the body of Anthropic's Messages API.

Our blocks are Anthropic's, so that messages go out nearly as they are. What changes: our own keys, and blocks which the
API would refuse or which another provider wrote for itself, are left out; and breakpoints for the prompt cache are set
on copies, never on the given messages.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from anthropic import transform_schema

from lockstitch.records import Json, Message
from lockstitch.records.message import blocks
from lockstitch.runtime.provider import ModelRequest, ProviderError
from lockstitch.runtime.providers.content import with_unique_ids
from lockstitch.runtime.providers.transport import merged

CacheTime = Literal["5m", "1h"]

# A key of ours that holds what another provider needs back.
FOREIGN: Final = "openai"
# The API takes no breakpoint on these.
_UNMARKED: Final = ("thinking", "redacted_thinking", "compaction", "fallback")
_NOT_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def build(request: ModelRequest, cache: CacheTime | None) -> Json:
    """The whole body. Prefix order is tools, system, messages; each breakpoint makes all before it readable."""
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
    """The container of the step before; with what the caller asks of it (skills), if anything."""
    return {"id": container_id, **cast("Json", own)} if isinstance(own, dict) else container_id


def _schema(schema: Json) -> Json:
    """What the API can enforce of a schema; the rest it turns into descriptions for the model to read."""
    try:
        return transform_schema(schema)
    except (ValueError, TypeError, KeyError) as exc:
        raise ProviderError(f"Anthropic cannot follow this output schema: {exc}", "request") from exc


def _messages(messages: Sequence[Message]) -> list[Message]:
    kept = [{"role": message["role"], "content": _content(message)} for message in messages]
    return [message for message in kept if message["content"]]


def _content(message: Message) -> Any:
    if isinstance(message.get("content"), str):
        return message["content"]
    return [_block(block) for block in blocks(message) if _goes_out(block)]


def _goes_out(block: Json) -> bool:
    """Whether the API takes a block: no empty text, no thinking that it has not signed, nobody else's server tools."""
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return FOREIGN not in block or kind == "tool_use"


def _block(block: Json) -> Json:
    own = {name: value for name, value in block.items() if name != FOREIGN and (value is not None or name == "content")}
    for name in ("id", "tool_use_id"):
        # Other providers' ids may hold characters that are refused here; call and result change alike.
        if name in own:
            own[name] = _NOT_IN_ID.sub("_", str(own[name]))
    return own


def _with_breakpoints(messages: list[Message], mark: Json) -> list[Message]:
    """Breakpoints on the last two user messages: this step reads up to the older one and writes up to the newer one.

    Whoever set breakpoints in the messages knows better; then ours are left out, as the API takes four at most.
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
