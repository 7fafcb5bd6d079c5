"""`LangSmith`, `Traceloop` and `Logfire` (with pydantic-ai): the conventions of vendors."""

from collections.abc import Container
from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
from lockstitch.integrations.otel.usage import raw_counts
from lockstitch.integrations.otel.values import as_json, as_list, as_number, as_text, first, parsed, provider_name
from lockstitch.integrations.spans.span import SpanData
from lockstitch.model import Json

_HEADS = frozenset({"logfire", "pydantic_ai", "all_messages_events", "events"})
_STREAMED = "streaming response from"
# The start of a message template, in lower case.
_TEMPLATES = {
    "chat completion with": "llm",
    "message with": "llm",
    "responses api with": "llm",
    "completion with": "llm",
    "embedding creation with": "embedding",
    _STREAMED: "llm",
    "agent run": "agent",
    "running tool": "tool",
    "function: {name}": "tool",
}
_STARTS = tuple(_TEMPLATES)
_AGENTS_SCOPE = "logfire.openai_agents"
_LOGFIRE_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("tool_arguments", "inputs", "arguments"),
    ("tool_response", "outputs", "result"),
    ("final_result", "outputs", "result"),
    ("response_data", "outputs", "output"),
)


class Logfire:
    def has_content(self, shape: Shape) -> bool:
        return not shape.heads.isdisjoint(_HEADS) or shape.name.lower().startswith(_STARTS) or _is_logfire(shape)

    def take(self, content: Content) -> None:
        attributes, is_logfire = content.attributes, _is_logfire(content.shape)
        self._take_dialogue(content)
        if is_logfire:
            for name, side, key in _LOGFIRE_CONTENT:
                content.move(name, side, key)
            request = attributes.get("request_data")
            requested = as_json(parsed(request))
            # Newer versions store only the name of the model here.
            if content.scope != _AGENTS_SCOPE and requested.keys() & {"messages", "prompt", "input"}:
                content.move("request_data", "inputs", "input")
        content.tags.extend(tag for tag in as_list(attributes.pop("logfire.tags", None)) if isinstance(tag, str))
        template = as_text(attributes.get("logfire.msg_template")) or content.name
        words = template.lower()
        content.is_named(next((kind for start, kind in _TEMPLATES.items() if words.startswith(start)), None))
        if "{" in content.name and content.name == template:
            # The span has the name of its template. The message has the values.
            content.name = as_text(attributes.get("logfire.msg")) or content.name
        if content.scope == _AGENTS_SCOPE:
            self._take_agents(content)
        if _answers_elsewhere(content, template):
            # The answer of a stream is a separate entry, which is the model call then.
            content.kind = "request"

    def has_facts(self, shape: Shape) -> bool:
        return _has_logfire_attributes(shape.attributes) or "operation.cost" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        outputs = as_json(span.get("outputs"))
        if not _has_logfire_attributes(attributes):
            return Facts(cost=as_number(attributes.get("operation.cost")))
        usage = as_json(as_json(outputs.get("output")).get("usage") or outputs.get("usage"))
        if not usage and "usage" in attributes:
            value = attributes["usage"]
            usage = as_json(parsed(value))
        return Facts(
            tokens=raw_counts(usage),
            cost=as_number(attributes.get("operation.cost")),
            response_id=as_text(attributes.get("response_id")) if attributes.get("response_id") != "null" else None,
            tool_name=as_text(attributes.get("name")),
        )

    def _take_agents(self, content: Content) -> None:
        """Take the content of OpenAI's Agents SDK: the input and output of functions and chat completions."""
        if content.kind == "tool":
            content.move("input", "inputs", "arguments")
            content.move("output", "outputs", "result")
        elif content.kind == "llm" and "input" in content.attributes:
            content.move("input", "inputs", "messages")
            content.move("output", "outputs", "messages")
        content.belongs(thread_id=content.attributes.get("group_id"))

    def _take_dialogue(self, content: Content) -> None:
        """Split a conversation in one attribute: messages before the answer are input, the rest is output."""
        for name in ("pydantic_ai.all_messages", "all_messages_events", "events"):
            value = content.attributes.get(name)
            messages = as_list(parsed(value))
            if not messages or not all(isinstance(message, dict) for message in messages):
                continue
            del content.attributes[name]
            turn = _turn(messages)
            content.put("inputs", "messages", messages[:turn] or None, name)
            content.put("outputs", "messages", messages[turn:] or None, name)


def _turn(messages: list[Any]) -> int:
    """Return the index where the answer starts: at the first choice, else after the last user message."""
    last = 0
    for place, message in enumerate(map(as_json, messages)):
        if message.get("event.name") == "gen_ai.choice":
            return place
        asks = message.get("role") in ("user", "system") and not _only_results(message)
        # The events of one model call end with its answer, so a tool result among them came before it.
        answered = message.get("event.name") == "gen_ai.tool.message" and "gen_ai.message.index" not in message
        if asks or answered:
            last = place + 1
    return last


def _only_results(message: Json) -> bool:
    parts = as_list(message.get("parts"))
    return bool(parts) and all(as_json(part).get("type") == "tool_call_response" for part in parts)


def _answers_elsewhere(content: Content, template: str) -> bool:
    return (
        content.kind == "llm"
        and content.scope.startswith("logfire.")
        and not template.startswith(_STREAMED)
        and not content.outputs
        and "gen_ai.response.id" not in content.attributes
        and "error.type" not in content.attributes
        and content.attributes.get("logfire.span_type") == "span"
        and content.extra.get("code") != "error"
    )


def _is_logfire(shape: Shape) -> bool:
    return shape.scope.startswith(("logfire", "pydantic-ai", "pydantic_ai")) or _has_logfire_attributes(
        shape.attributes
    )


def _has_logfire_attributes(attributes: Container[str]) -> bool:
    return "logfire.span_type" in attributes or "logfire.msg" in attributes


_PROPERTIES = "traceloop.association.properties."
_CALLBACK = frozenset({"inputs", "outputs", "output", "input_str", "tags", "metadata", "kwargs"})
_TRACELOOP_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("traceloop.entity.input", "inputs", "input"),
    ("gen_ai.task.input", "inputs", "input"),
    ("traceloop.entity.output", "outputs", "output"),
    ("gen_ai.task.output", "outputs", "output"),
)


class Traceloop:
    def has_content(self, shape: Shape) -> bool:
        return "traceloop" in shape.heads or "gen_ai.task.input" in shape.attributes

    def take(self, content: Content) -> None:
        attributes = content.attributes
        for name in [name for name in attributes if name.startswith(_PROPERTIES)]:
            value = attributes.pop(name)
            content.metadata.setdefault(name[len(_PROPERTIES) :], parsed(value))
        for name, side, key in _TRACELOOP_CONTENT:
            content.move(name, side, key)
        self._unwrap(content, "inputs", ("arguments", "input"), ("inputs",))
        self._unwrap(content, "outputs", ("result", "output"), ("outputs", "output"))
        content.is_named((as_text(attributes.get("traceloop.span.kind")) or "").lower())
        content.belongs(
            thread_id=first(content.metadata, "thread_id", "session_id", "conversation_id", "chat_id"),
            session_id=content.metadata.get("session_id"),
            user_id=content.metadata.get("user_id"),
        )

    def has_facts(self, shape: Shape) -> bool:
        return "traceloop.entity.path" in shape.attributes or "traceloop.entity.name" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        metadata = as_json(span.get("metadata"))
        callback = as_json(as_json(span.get("extra")).get("callback"))
        return Facts(
            requested_model=as_text(metadata.get("ls_model_name")),
            provider=provider_name(metadata.get("ls_provider")),
            tool_name=as_text(attributes.get("traceloop.entity.name")),
            call_id=as_text(as_json(callback.get("kwargs")).get("tool_call_id")),
        )

    def _unwrap(self, content: Content, side: Side, keys: tuple[str, ...], inner: tuple[str, ...]) -> None:
        """Unwrap the value that LangChain's callback received. The other arguments of the callback go to `extra`."""
        bag = content.inputs if side == "inputs" else content.outputs
        for key in keys:
            wrapper = as_json(bag.get(key))
            within = next((name for name in inner if name in wrapper), None)
            if within is None or "kwargs" not in wrapper or not wrapper.keys() <= _CALLBACK:
                continue
            value: Any = wrapper.pop(within)
            del bag[key]
            bag["input" if side == "inputs" else "output"] = value
            content.tags.extend(
                tag for tag in as_list(wrapper.pop("tags", None)) if isinstance(tag, str) and tag not in content.tags
            )
            for name, item in as_json(wrapper.pop("metadata", None)).items():
                content.metadata.setdefault(name, item)
            callback = content.extra.setdefault("callback", {})
            for name, item in wrapper.items():
                if isinstance(item, dict):
                    callback[name] = {**as_json(item), **as_json(callback.get(name))}
                else:
                    callback.setdefault(name, item)


_METADATA = "langsmith.metadata."


class LangSmith:
    def has_content(self, shape: Shape) -> bool:
        return "langsmith" in shape.heads

    def take(self, content: Content) -> None:
        attributes = content.attributes
        for name in [name for name in attributes if name.startswith(_METADATA)]:
            value = attributes.pop(name)
            content.metadata.setdefault(name[len(_METADATA) :], parsed(value))
        tags: Any = attributes.pop("langsmith.span.tags", None)
        if isinstance(tags, str):
            content.tags.extend(tag.strip() for tag in tags.split(",") if tag.strip())
        elif isinstance(tags, list):
            content.tags.extend(tag for tag in tags if isinstance(tag, str))  # pyright: ignore[reportUnknownVariableType]
        content.is_named((as_text(attributes.get("langsmith.span.kind")) or "").lower())
        # A "session" of LangSmith is a project. Only the metadata names the conversation.
        content.belongs(
            thread_id=first(content.metadata, "thread_id", "session_id", "conversation_id"),
            session_id=content.metadata.get("session_id"),
            user_id=content.metadata.get("user_id"),
            group=attributes.get("langsmith.trace.session_name"),
        )

    def has_facts(self, shape: Shape) -> bool:
        return "langsmith.span.kind" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        metadata = as_json(span.get("metadata"))
        # LangChain includes the cache in the input.
        return Facts(
            requested_model=as_text(metadata.get("ls_model_name")),
            provider=provider_name(metadata.get("ls_provider")),
            tokens=raw_counts(as_json(metadata.get("usage_metadata"))),
            parameters={
                name.removeprefix("ls_"): metadata[name]
                for name in ("ls_temperature", "ls_max_tokens", "ls_stop")
                if metadata.get(name) is not None
            },
        )
