"""`OtelMessage`: messages in any form that spans contain, and lists flattened into attributes.

The forms are GenAI's (role and parts), requests and responses of OpenAI and Anthropic, those of OpenInference and
Traceloop (the same, flattened), events, and LangChain's messages in three serialisations. The keys of a message decide
its form.
"""

from functools import lru_cache
from typing import Any, NamedTuple, cast

from lockstitch.integrations.otel.values import DEEPEST, arguments, as_json, as_list, as_text, deeper_than, first
from lockstitch.integrations.spans.span import Result
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json, codec

_ROLES = {
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "reasoning": "assistant",
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "user": "user",
    "system": "system",
    "systemmessage": "system",
    "developer": "system",
    "tool": "tool",
    "toolmessage": "tool",
    "function": "tool",
    "functionmessage": "tool",
}
_TEXTS = ("text", "output_text", "input_text", "refusal", "summary_text")
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")
_CALLS = ("tool_use", "tool_call", "function_call", "custom_tool_call", "function")
_RESULTS = ("tool_result", "tool_call_response", "function_call_output", "custom_tool_call_output")
# Amazon Bedrock and Gemini name the type of a part by its only key.
_KEYS = {
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "functionCall": "function_call",
    "function_call": "function_call",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "reasoningContent": "reasoning",
}


class OtelMessage(NamedTuple):
    """One message with its role and content."""

    role: str
    blocks: list[Json]
    """Blocks in the vocabulary of the record, without results."""
    results: list[Result]
    id: str | None = None
    finish_reason: str | None = None
    about: Json = {}
    """Metadata that LangChain stores with a message: the response's id, model and usage."""

    @property
    def text(self) -> str:
        return "".join(str(block.get("text", "")) for block in self.blocks if block.get("type") == "text")


_GENAI = frozenset({"role", "parts", "finish_reason"})


def messages(value: Any) -> list[OtelMessage]:
    """Return all messages of a value: a message, a list of messages, or a list of such lists."""
    collected: list[OtelMessage] = []
    _collect(value, 0, collected)
    return collected


def _collect(value: Any, depth: int, collected: list[OtelMessage]) -> None:
    if isinstance(value, dict):
        if otel_message := message(cast("Json", value)):
            collected.append(otel_message)
    elif isinstance(value, list) and depth < 3:
        for item in cast("list[Any]", value):
            _collect(item, depth + 1, collected)


def message(value: Json) -> OtelMessage | None:
    """Return the message that `value` represents, or None."""
    if value.keys() <= _GENAI and isinstance(parts := value.get("parts"), list) and parts:
        # The current form of GenAI, which is the most frequent one.
        role = _role(value)
        if role is not None and role != "tool":
            blocks, results = _blocks(cast("list[Any]", parts))
            return OtelMessage(role, blocks, results, finish_reason=as_text(value.get("finish_reason")))
    kind = as_text(value.get("type")) or ""
    if value.get("lc") and isinstance(value.get("kwargs"), dict):
        # LangChain's constructor form: the last element of the path is the class.
        words = [word for word in as_list(value.get("id")) if isinstance(word, str)]
        return _parse_message({"type": words[-1] if words else "", **as_json(value["kwargs"])})
    if isinstance(value.get("data"), dict) and kind.lower() in _ROLES:
        return _parse_message({"type": kind, **as_json(value["data"])})
    if isinstance(value.get("message"), dict):
        content = as_json(value["message"])
        if not content.keys() & {"role", "type", "lc"} and value.keys() & {"event.name", "finish_reason", "index"}:
            # A choice always comes from the model.
            content = {"role": "assistant", **content}
        inner = message(content)
        reason = as_text(first(value, "finish_reason", "finishReason")) or as_text(
            as_json(value.get("generation_info")).get("finish_reason")
        )
        return inner._replace(finish_reason=inner.finish_reason or reason) if inner else None
    if kind in _CALLS or kind in _RESULTS or (kind in _THOUGHTS and "role" not in value):
        # An item of OpenAI's Responses, or a separate call.
        blocks, results = _blocks([value])
        return OtelMessage("tool" if results else "assistant", blocks, results, as_text(value.get("id")))
    return _parse_message(value)


def _parse_message(value: Json) -> OtelMessage | None:
    role = _role(value)
    if role is None:
        return None
    content = first(value, "parts", "contents", "content", "message_content", "message")
    calls = [*as_list(value.get("tool_calls")), *as_list(as_json(value.get("additional_kwargs")).get("tool_calls"))]
    if name := as_text(value.get("function_call_name")):
        calls.append({"name": name, "arguments": value.get("function_call_arguments_json")})
    if role == "tool" and any(_typed(as_json(part)).get("type") in _CALLS for part in as_list(content)):
        # Koog gives the request of a tool call the role of the tool.
        role = "assistant"
    if role == "tool" and not _has_results(content):
        return OtelMessage("tool", [], [_result_of(value, content)], as_text(value.get("id")))
    blocks, results = _blocks([*_listed(value.get("reasoning")), *_listed(content), *map(_as_call, calls)])
    about = as_json(value.get("response_metadata"))
    if isinstance(value.get("usage_metadata"), dict):
        about = {**about, "usage_metadata": value["usage_metadata"]}
    reason = as_text(first(value, "finish_reason", "stop_reason")) or as_text(
        first(about, "finish_reason", "stop_reason", "done_reason")
    )
    return OtelMessage(role, blocks, results, as_text(value.get("id")), reason, about)


def _role(value: Json) -> str | None:
    role = value.get("role")
    if type(role) is str and role in _ROLES:
        return _ROLES[role]
    for word in (role, value.get("type"), str(value.get("event.name", "")).removeprefix("gen_ai.")):
        if isinstance(word, str) and (role := _ROLES.get(word.lower().removesuffix(".message"))):
            return role
    if value.get("event.name") == "gen_ai.choice" or (value.get("type") == "message" and "content" in value):
        return "assistant"
    return None


def _has_results(content: Any) -> bool:
    return any(_typed(as_json(part)).get("type") in _RESULTS for part in as_list(content))


def _typed(part: Json) -> Json:
    """Return a part with its type: in the words of GenAI, also for the parts of Bedrock, Gemini and Vercel's SDK."""
    kind = part.get("type")
    if isinstance(kind, str):
        return {**part, "type": kind.replace("-", "_")} if "-" in kind else part
    for key, name in _KEYS.items():
        if isinstance(part.get(key), dict):
            return {**as_json(part[key]), "type": name}
    return {**part, "type": "text"} if "text" in part else part


def _listed(content: Any) -> list[Any]:
    if isinstance(content, list):
        return as_list(content)
    return [] if content is None or content == "" else [content]


def _as_call(value: Any) -> Json:
    call = as_json(value)
    return {**(as_json(call.get("tool_call")) or call), "type": "tool_call"}


def _blocks(parts: list[Any]) -> tuple[list[Json], list[Result]]:
    blocks: list[Json] = []
    results: list[Result] = []
    requested: set[str] = set()
    for part in parts:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
            continue
        entry = as_json(part)
        kind = entry.get("type")
        if not isinstance(kind, str) or "-" in kind:
            entry = _typed(entry)
            kind = as_text(entry.get("type")) or ""
        if kind in _TEXTS:
            if text := as_text(first(entry, "text", "content", "refusal")):
                blocks.append({"type": "text", "text": text})
        elif kind in _THOUGHTS:
            blocks.extend(_thought(entry, kind))
        elif kind in _CALLS:
            call = _call(entry)
            # Some instrumentations repeat a call: among the parts and in a separate list.
            if not (call["id"] and call["id"] in requested):
                blocks.append(call)
                requested.add(call["id"])
        elif kind in _RESULTS:
            results.append(_result_of(entry, first(entry, "response", "result", "output", "content")))
        elif kind == "server_tool_call":
            blocks.append({**_call(entry), "type": "server_tool_use"})
        elif entry:
            blocks.append(entry)
    return blocks, results


def _thought(entry: Json, kind: str) -> list[Json]:
    entry = {**entry, **as_json(entry.get("reasoningText"))}
    text = as_text(first(entry, "thinking", "reasoning", "text", "content"))
    if text is None and (summary := as_list(entry.get("summary"))):
        text = "\n".join(str(as_json(part).get("text", "")) for part in summary)
    if text is None:
        return [entry] if kind == "redacted_thinking" else []
    signature = as_text(entry.get("signature"))
    return [{"type": "thinking", "thinking": text, **({"signature": signature} if signature else {})}]


def _call(entry: Json) -> Json:
    function = as_json(entry.get("function"))
    name = as_text(first(entry, "name", "tool_name", "toolName")) or as_text(function.get("name")) or ""
    value = first(entry, "input", "args", "arguments")
    args = arguments(value if value is not None else function.get("arguments"))
    return {
        "type": "tool_use",
        "id": as_text(first(entry, "call_id", "id", "tool_call_id", "toolCallId", "toolUseId")) or "",
        "name": name,
        "input": args if isinstance(args, dict) else {} if args is None or args == "" else {"input": args},
    }


def _result_of(entry: Json, content: Any) -> Result:
    status = entry.get("status")
    failed = entry.get("is_error")
    if not isinstance(failed, bool):
        failed = status == "error" if status in ("error", "success") else None
    kind, content = unwrapped(content)
    if kind.startswith("error"):
        failed = True
    call_id = as_text(first(entry, "tool_call_id", "tool_use_id", "call_id", "id", "toolCallId", "toolUseId"))
    return Result(call_id, as_text(first(entry, "name", "toolName")), result_content(content), failed)


_WRAPPED = ("text", "json", "content", "error-text", "error-json")


def unwrapped(content: Any) -> tuple[str, Any]:
    """Return the kind and the value of a result that Vercel's SDK wraps: {"type": "text", "value": …}."""
    wrapper = as_json(content)
    if wrapper.keys() == {"type", "value"} and wrapper["type"] in _WRAPPED:
        return str(wrapper["type"]), wrapper["value"]
    return "", content


def result_content(content: Any) -> Any:
    """Return a result as the content of a result block: text, or a list of blocks."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = as_list(content)
    if parts and all(_typed(as_json(part)).get("type") for part in parts):
        if len(parts) == 1 and as_json(parts[0]).keys() == {"text"}:
            # Bedrock's form of a plain text.
            return str(as_json(parts[0])["text"])
        blocks, _ = _blocks(parts)
        if blocks:
            return blocks
    # Stored data is neither too deep nor contains values that JSON lacks. Other data may be or do so.
    return "" if deeper_than(content, DEEPEST) else codec.dumps(storable(content)).decode()


def gather(attributes: Json, prefix: str) -> Any:
    """Remove the numbered attributes below a prefix and return them as a list, or None if there are none.

    Numbers in the names are indexes of lists. They only define the order, so a large index does not create a long list.
    """
    names = _numbered(tuple(attributes), prefix)
    if not names:
        return None
    start = prefix + "."
    tree: Json = {}
    for name in names:
        node = tree
        *way, last = name[len(start) :].split(".")[:_DEEPEST]
        for step in way:
            below: Any = node.get(step)
            if not isinstance(below, _Node):
                # A name can be a leaf and a branch at once. The leaf is then stored under "".
                node[step] = below = _Node() if below is None else _Node({"": below})
            node = below
        if isinstance(node.get(last), _Node):
            node[last][""] = attributes.pop(name)
        else:
            node[last] = attributes.pop(name)
    return _settled(tree)


_DEEPEST = 30


@lru_cache(maxsize=10_000)
def _numbered(names: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """Return the names of list entries below a prefix. Cached, because the names of many spans are equal."""
    start = prefix + "."
    return tuple(name for name in names if name.startswith(start) and _is_place(name[len(start) :]))


def _is_place(path: str) -> bool:
    place = path.split(".", 1)[0]
    return place.isascii() and place.isdigit() and len(place) < 10


class _Node(dict[str, Any]):
    """A branch, as a type to distinguish it from an object that is a value."""


def _settled(node: Json) -> Any:
    settled: Json = {
        key: _settled(cast("Json", value)) if isinstance(value, _Node) else value for key, value in node.items()
    }
    if settled and all(_is_place(key) for key in settled):
        return [settled[key] for key in sorted(settled, key=int)]
    return settled
