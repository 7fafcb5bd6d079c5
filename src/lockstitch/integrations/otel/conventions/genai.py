"""`GenAI`: OpenTelemetry's own conventions for generative AI, current and earlier versions."""

from functools import lru_cache
from typing import Any, NamedTuple

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
from lockstitch.integrations.otel.messages import gather
from lockstitch.integrations.otel.usage import counted
from lockstitch.integrations.otel.values import (
    arguments,
    as_count,
    as_json,
    as_list,
    as_number,
    as_text,
    first,
    parsed,
    provider_name,
)
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json

_KINDS = {
    "chat": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "completion": "llm",
    "embeddings": "embedding",
    "embedding": "embedding",
    "retrieval": "retriever",
    "rerank": "reranker",
    "execute_tool": "tool",
    "create_agent": "agent",
    "invoke_agent": "agent",
    "invoke_workflow": "chain",
    "execute_task": "task",
}
MESSAGE_EVENTS = {
    "gen_ai.system.message",
    "gen_ai.user.message",
    "gen_ai.assistant.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
}
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_MODEL_METHODS = (".chat", ".completion", ".completions", ".messages.create", ".responses.create", ".response")
_REQUEST = "gen_ai.request."


class GenAI:
    def has_content(self, shape: Shape) -> bool:
        return True

    def take(self, content: Content) -> None:
        attributes = content.attributes
        # Some clients have the messages in attributes and, less complete, in events.
        requested, answered = self._take_events(content) if content.events else ([], [])
        shape = _shape(tuple(attributes))
        for name, side, key in shape.content:
            content.move(name, side, key)
        content.put("inputs", "messages", requested or None, "events")
        content.put("outputs", "messages", answered or None, "events")
        for prefix, side, key in shape.blobs:
            content.put(side, "messages", gather(attributes, prefix), prefix)
            content.move(prefix, side, key)
        if shape.has_functions:
            content.put("inputs", "tools", gather(attributes, "llm.request.functions"), "llm.request.functions")
        content.is_named(self._kind(content))
        user = first(attributes, *shape.user) if shape.user else None
        content.belongs(thread_id=attributes.get("gen_ai.conversation.id"), user_id=user)

    def has_facts(self, shape: Shape) -> bool:
        return True

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        get, shape = attributes.get, _shape(tuple(attributes))
        return Facts(
            model=as_text(get("gen_ai.response.model")),
            requested_model=as_text(get("gen_ai.request.model")),
            provider=provider_name(get("gen_ai.provider.name"), get("gen_ai.system")),
            response_id=as_text(get("gen_ai.response.id")),
            finish_reasons=_finish_reasons(first(attributes, *shape.finish_reason)) if shape.finish_reason else [],
            tokens=_tokens(attributes, shape) if shape.has_usage else None,
            total_tokens=as_count(first(attributes, *shape.total)) if shape.total else None,
            cost=as_number(first(attributes, *shape.cost)) if shape.cost else None,
            parameters=_parameters(attributes, shape),
            tool_name=as_text(get("gen_ai.tool.name")),
            call_id=_call_id(attributes),
        )

    def _take_events(self, content: Content) -> tuple[list[Json], list[Json]]:
        """Remove the messages from the events of the span and return those of the request and of the answer.

        Events with other content are moved to inputs, outputs or attributes.
        """
        requested: list[Json] = []
        answered: list[Json] = []
        others: list[Json] = []
        for event in content.events:
            name, attributes = event["name"], as_json(event.get("attributes"))
            if name in MESSAGE_EVENTS:
                body = as_json(parsed(attributes.get("gen_ai.event.content"))) or {
                    key: parsed(value) for key, value in attributes.items()
                }
                (answered if name == "gen_ai.choice" else requested).append({"event.name": name, **body})
            elif name == "gen_ai.content.prompt" and "gen_ai.prompt" in attributes:
                content.put("inputs", "input", parsed(attributes["gen_ai.prompt"]), "gen_ai.prompt")
            elif name == "gen_ai.content.completion" and "gen_ai.completion" in attributes:
                content.put("outputs", "output", parsed(attributes["gen_ai.completion"]), "gen_ai.completion")
            elif name == DETAILS_EVENT:
                for key, value in attributes.items():
                    content.attributes.setdefault(key, value)
            else:
                others.append(event)
        content.events = others
        if content.attributes.get("gen_ai.operation.name") == "execute_tool" and (requested or answered):
            # Strands describes a tool with the events of a model: the message has the arguments, the choice the result.
            for message in requested[-1:]:
                content.put("inputs", "arguments", message.get("content"), "events")
            for message in answered[-1:]:
                content.put("outputs", "result", message.get("message"), "events")
            return [], []
        return requested, answered

    def _kind(self, content: Content) -> str | None:
        attributes = content.attributes
        operation = as_text(first(attributes, "gen_ai.operation.name", "llm.request.type"))
        if operation:
            return _KINDS.get(operation.lower(), operation.lower())
        if attributes.get("gen_ai.tool.name"):
            return "tool"
        if attributes.get("gen_ai.agent.name") or attributes.get("agent_name"):
            return "agent"
        speaks = first(attributes, "gen_ai.request.model", "gen_ai.response.model", "gen_ai.system")
        if speaks and (attributes.get("gen_ai.response.id") or content.name.endswith(_MODEL_METHODS)):
            return "llm"
        return None


_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("gen_ai.input.messages", "inputs", "messages"),
    ("gen_ai.system_instructions", "inputs", "system"),
    ("gen_ai.tool.definitions", "inputs", "tools"),
    ("gen_ai.tool.call.arguments", "inputs", "arguments"),
    ("gen_ai.output.messages", "outputs", "messages"),
    ("gen_ai.tool.call.result", "outputs", "result"),
)

# JSON text, or numbered attributes: gen_ai.prompt.0.role.
_BLOBS: tuple[tuple[str, Side, str], ...] = (
    ("gen_ai.prompt", "inputs", "input"),
    ("gen_ai.completion", "outputs", "output"),
)


def _call_id(attributes: Json) -> str | None:
    """Return the id of a tool call. ADK invents one if the model gives none, and its model spans have another one."""
    call_id = as_text(attributes.get("gen_ai.tool.call.id"))
    invented = call_id and call_id.startswith("adk-") and "gcp.vertex.agent.event_id" in attributes
    return None if invented else call_id


def _finish_reasons(value: Any) -> list[str]:
    """Return the finish reasons: a list, JSON text as Logfire writes it, or one word in older versions."""
    value = parsed(value)
    reasons: list[Any] = [value] if isinstance(value, str) else as_list(value)
    return [reason for reason in reasons if isinstance(reason, str)]


def _tokens(attributes: Json, shape: "_Shape") -> TokenCounts | None:
    raw_usage = as_json(parsed(attributes.get("gen_ai.usage.raw")))
    if not raw_usage and "metadata.usage_object" in attributes:
        # LiteLLM writes the provider's counts as a Python literal.
        raw_usage = as_json(arguments(attributes["metadata.usage_object"]))
    return counted(
        first(attributes, *shape.input),
        first(attributes, *shape.output),
        cache_read=first(attributes, *shape.cache_read),
        cache_write=first(attributes, *shape.cache_write),
        raw=raw_usage,
        total=attributes.get("gen_ai.usage.total_tokens"),
    )


def _parameters(attributes: Json, shape: "_Shape") -> Json:
    body = {short: attributes[name] for name, short in shape.parameters}
    for name, short in shape.penalties:
        if (value := attributes[name]) is not None:
            body.setdefault(short, value)
    return body


class _Shape(NamedTuple):
    """The attributes of a span that have a meaning, of all names that each value can have."""

    content: tuple[tuple[str, Side, str], ...]
    blobs: tuple[tuple[str, Side, str], ...]
    has_functions: bool
    user: tuple[str, ...]
    finish_reason: tuple[str, ...]
    has_usage: bool
    input: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: tuple[str, ...]
    cache_write: tuple[str, ...]
    total: tuple[str, ...]
    cost: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    """Parameters of the request, with their short names."""
    penalties: tuple[tuple[str, str], ...]


_FINISH_REASONS = (
    "gen_ai.response.finish_reasons",
    "gen_ai.response.finish_reason",
    "gen_ai.response.stop_reason",
    "llm.response.finish_reason",
    "llm.response.stop_reason",
    # Anthropic's SDK reports its own calls with this attribute.
    "anthropic.message.stop_reason",
)
_CACHE_READS = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.details.cached_tokens",
)
_CACHE_WRITES = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "gen_ai.usage.details.cache_creation_input_tokens",
)


@lru_cache(maxsize=2_000)
def _shape(names: tuple[str, ...]) -> _Shape:
    """Return the shape of a span with these attributes. Cached, because many spans have the same names."""
    known = frozenset(names)

    def present(*wanted: str) -> tuple[str, ...]:
        return tuple(name for name in wanted if name in known)

    return _Shape(
        content=tuple(entry for entry in _CONTENT if entry[0] in known),
        blobs=tuple(entry for entry in _BLOBS if any(f"{name}.".startswith(f"{entry[0]}.") for name in names)),
        has_functions=any(name.startswith("llm.request.functions.") for name in names),
        user=present("user.id", "enduser.id", "gen_ai.user", "llm.user"),
        finish_reason=present(*_FINISH_REASONS),
        has_usage=any(name.startswith(("gen_ai.usage.", "metadata.usage_object")) for name in names),
        input=present("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output=present("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        cache_read=present(*_CACHE_READS),
        cache_write=present(*_CACHE_WRITES),
        total=present("gen_ai.usage.total_tokens", "llm.usage.total_tokens"),
        cost=present("gen_ai.usage.cost", "gen_ai.usage.total_cost", "gen_ai.cost.total_cost"),
        parameters=tuple(
            (name, name[len(_REQUEST) :])
            for name in names
            if name.startswith(_REQUEST) and name != "gen_ai.request.model"
        ),
        penalties=tuple(
            (name, short)
            for short in ("frequency_penalty", "presence_penalty", "top_k")
            if (name := f"llm.{short}") in known
        ),
    )
