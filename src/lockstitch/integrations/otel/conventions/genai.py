"""`GenAI`: OpenTelemetry's own conventions for generative AI, current and earlier versions."""

from functools import lru_cache
from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Side, heads_of
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
    def take(self, content: Content) -> None:
        attributes = content.attributes
        # Some clients have the messages in attributes and, less complete, in events.
        requested, answered = self._take_events(content) if content.events else ([], [])
        if "gen_ai" in content.heads:
            for name, side, key in _CONTENT:
                if name in attributes:
                    content.move(name, side, key)
        content.put("inputs", "messages", requested or None, "events")
        content.put("outputs", "messages", answered or None, "events")
        if "gen_ai" in content.heads:
            for prefix, side, key in _BLOBS:
                content.put(side, "messages", gather(attributes, prefix), prefix)
                content.move(prefix, side, key)
        if "llm" in content.heads:
            content.put("inputs", "tools", gather(attributes, "llm.request.functions"), "llm.request.functions")
        content.is_named(self._kind(content))
        user = first(attributes, "user.id", "enduser.id", "gen_ai.user", "llm.user")
        content.belongs(thread_id=attributes.get("gen_ai.conversation.id"), user_id=user)

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        return Facts(
            model=as_text(attributes.get("gen_ai.response.model")),
            requested_model=as_text(attributes.get("gen_ai.request.model")),
            provider=provider_name(attributes.get("gen_ai.provider.name"), attributes.get("gen_ai.system")),
            response_id=as_text(attributes.get("gen_ai.response.id")),
            finish_reasons=_finish_reasons(attributes),
            tokens=_tokens(attributes),
            total_tokens=as_count(first(attributes, "gen_ai.usage.total_tokens", "llm.usage.total_tokens")),
            cost=as_number(first(attributes, "gen_ai.usage.cost", "gen_ai.usage.total_cost", "gen_ai.cost.total_cost")),
            parameters=_parameters(attributes),
            tool_name=as_text(attributes.get("gen_ai.tool.name")),
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
                content.heads |= heads_of(attributes)
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


def _finish_reasons(attributes: Json) -> list[str]:
    """Return the finish reasons: a list, JSON text as Logfire writes it, or one word in older versions."""
    value = parsed(
        first(
            attributes,
            "gen_ai.response.finish_reasons",
            "gen_ai.response.finish_reason",
            "gen_ai.response.stop_reason",
            "llm.response.finish_reason",
            "llm.response.stop_reason",
            # Anthropic's SDK reports its own calls with this attribute.
            "anthropic.message.stop_reason",
        )
    )
    reasons: list[Any] = [value] if isinstance(value, str) else as_list(value)
    return [reason for reason in reasons if isinstance(reason, str)]


def _tokens(attributes: Json) -> TokenCounts | None:
    if not _has_usage(tuple(attributes)):
        return None
    raw_usage = as_json(parsed(attributes.get("gen_ai.usage.raw")))
    if not raw_usage and "metadata.usage_object" in attributes:
        # LiteLLM writes the provider's counts as a Python literal.
        raw_usage = as_json(arguments(attributes["metadata.usage_object"]))
    return counted(
        first(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        first(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        cache_read=first(
            attributes,
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.details.cache_read_input_tokens",
            "gen_ai.usage.details.cached_tokens",
        ),
        cache_write=first(
            attributes,
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "gen_ai.usage.details.cache_write_tokens",
            "gen_ai.usage.details.cache_creation_input_tokens",
        ),
        raw=raw_usage,
        total=attributes.get("gen_ai.usage.total_tokens"),
    )


def _parameters(attributes: Json) -> Json:
    body = {short: attributes[name] for name, short in _parameter_names(tuple(attributes))}
    for name in ("frequency_penalty", "presence_penalty", "top_k"):
        if (value := attributes.get(f"llm.{name}")) is not None:
            body.setdefault(name, value)
    return body


@lru_cache(maxsize=1_000)
def _parameter_names(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the attributes that are parameters of the request, with their short names."""
    return [
        (name, name[len(_REQUEST) :]) for name in names if name.startswith(_REQUEST) and name != "gen_ai.request.model"
    ]


@lru_cache(maxsize=1_000)
def _has_usage(names: tuple[str, ...]) -> bool:
    return any(name.startswith(("gen_ai.usage.", "metadata.usage_object")) for name in names)
