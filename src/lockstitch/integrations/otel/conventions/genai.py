"""`GenAI`: OpenTelemetry's own conventions for generative AI, current and earlier versions."""

from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Side
from lockstitch.integrations.otel.messages import gather
from lockstitch.integrations.otel.usage import counted
from lockstitch.integrations.otel.values import (
    as_count,
    as_json,
    as_list,
    as_number,
    as_text,
    first,
    parsed,
    provider_name,
)
from lockstitch.integrations.spans.span import SpanData
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
_MESSAGE_EVENTS = {
    "gen_ai.system.message",
    "gen_ai.user.message",
    "gen_ai.assistant.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
}
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_MODEL_METHODS = (".chat", ".completion", ".completions", ".messages.create", ".responses.create", ".response")
_REQUEST = "gen_ai.request."


class GenAI:
    def take(self, content: Content) -> None:
        attributes = content.attributes
        self._take_events(content)
        for name, side, key in _CONTENT:
            content.move(name, side, key)
        for prefix, side, key in _BLOBS:
            content.put(side, "messages", gather(attributes, prefix), prefix)
            content.move(prefix, side, key)
        if "llm" in content.heads:
            content.put("inputs", "tools", gather(attributes, "llm.request.functions"), "llm.request.functions")
        content.is_named(self._kind(content))
        user = first(attributes, "user.id", "enduser.id", "gen_ai.user", "llm.user")
        content.belongs(thread_id=attributes.get("gen_ai.conversation.id"), user_id=user)

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        anthropic_usage = as_json(_read(attributes.get("gen_ai.usage.raw")))
        return Facts(
            model=as_text(attributes.get("gen_ai.response.model")),
            requested_model=as_text(attributes.get("gen_ai.request.model")),
            provider=provider_name(attributes.get("gen_ai.provider.name"), attributes.get("gen_ai.system")),
            response_id=as_text(attributes.get("gen_ai.response.id")),
            finish_reasons=_finish_reasons(attributes),
            tokens=counted(
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
                raw=anthropic_usage,
                total=attributes.get("gen_ai.usage.total_tokens"),
            ),
            total_tokens=as_count(first(attributes, "gen_ai.usage.total_tokens", "llm.usage.total_tokens")),
            cost=as_number(first(attributes, "gen_ai.usage.cost", "gen_ai.usage.total_cost")),
            parameters=_parameters(attributes),
            tool_name=as_text(attributes.get("gen_ai.tool.name")),
            call_id=as_text(attributes.get("gen_ai.tool.call.id")),
        )

    def _take_events(self, content: Content) -> None:
        """Move messages from the events of the span to inputs and outputs. Other events stay."""
        requested: list[Any] = []
        answered: list[Any] = []
        others: list[Json] = []
        for event in content.events:
            name, attributes = event["name"], as_json(event.get("attributes"))
            if name in _MESSAGE_EVENTS:
                body = as_json(_read(attributes.get("gen_ai.event.content"))) or {
                    key: _read(value) for key, value in attributes.items()
                }
                (answered if name == "gen_ai.choice" else requested).append({"event.name": name, **body})
            elif name == "gen_ai.content.prompt" and "gen_ai.prompt" in attributes:
                content.put("inputs", "input", _read(attributes["gen_ai.prompt"]), "gen_ai.prompt")
            elif name == "gen_ai.content.completion" and "gen_ai.completion" in attributes:
                content.put("outputs", "output", _read(attributes["gen_ai.completion"]), "gen_ai.completion")
            elif name == _DETAILS_EVENT:
                for key, value in attributes.items():
                    content.attributes.setdefault(key, value)
            else:
                others.append(event)
        content.events = others
        content.put("inputs", "messages", requested or None, "events")
        content.put("outputs", "messages", answered or None, "events")

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


def _finish_reasons(attributes: Json) -> list[str]:
    """Return the finish reasons: a list, JSON text as Logfire writes it, or one word in older versions."""
    value = _read(
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


def _parameters(attributes: Json) -> Json:
    body = {
        name[len(_REQUEST) :]: value
        for name, value in attributes.items()
        if name.startswith(_REQUEST) and name != "gen_ai.request.model"
    }
    for name in ("frequency_penalty", "presence_penalty", "top_k"):
        if (value := attributes.get(f"llm.{name}")) is not None:
            body.setdefault(name, value)
    return body


def _read(value: Any) -> Any:
    return parsed(value) if isinstance(value, str) else value
