"""`OpenInference`: the conventions of Arize and Phoenix, with flattened lists and the raw request and response."""

from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
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

_LISTS: tuple[tuple[str, str, Side, str], ...] = (
    ("llm.input_messages", "llm", "inputs", "messages"),
    ("llm.output_messages", "llm", "outputs", "messages"),
    ("llm.prompts", "llm", "inputs", "prompts"),
    ("llm.choices", "llm", "outputs", "choices"),
    ("retrieval.documents", "retrieval", "outputs", "documents"),
    ("reranker.input_documents", "reranker", "inputs", "documents"),
    ("reranker.output_documents", "reranker", "outputs", "documents"),
    ("embedding.embeddings", "embedding", "outputs", "embeddings"),
)
_VALUES: tuple[tuple[Side, str], ...] = (("inputs", "input"), ("outputs", "output"))
_HEADS = frozenset({"openinference", "llm", "input", "output", "metadata", "tag", "session"}) | {
    head for _, head, _, _ in _LISTS
}
_WRAPPERS = frozenset(
    {"message", "message_content", "tool_call", "document", "embedding", "prompt", "completion", "image"}
)


# These create a span of the kind LLM for each method of the model object, or for each streamed token.
_CALLBACK_SCOPES = frozenset({"openinference.instrumentation.llama_index", "openinference.instrumentation.beeai"})


def _is_call(content: Content) -> bool:
    """True if a span has the messages or the counts of a model call."""
    return bool(
        content.inputs.keys() & {"messages", "prompts"}
        or content.outputs.keys() & {"messages", "choices"}
        or "llm.token_count.total" in content.attributes
    )


class OpenInference:
    def has_content(self, shape: Shape) -> bool:
        return not shape.heads.isdisjoint(_HEADS)

    def take(self, content: Content) -> None:
        attributes, heads = content.attributes, content.shape.heads
        content.is_named((as_text(attributes.get("openinference.span.kind")) or "").lower())
        for prefix, head, side, key in _LISTS:
            if head in heads and (value := gather(attributes, prefix)) is not None:
                content.put(side, key, _unwrapped(value), prefix)
        if "llm" in heads and (tools := gather(attributes, "llm.tools")) is not None:
            content.put("inputs", "tools", _tools(tools), "llm.tools")
        if content.kind == "llm" and content.scope in _CALLBACK_SCOPES and not _is_call(content):
            content.kind = "chain"
        for side, key in _VALUES:
            if key not in heads:
                continue
            if attributes.get(f"{key}.mime_type") == "text/plain":
                content.put(side, key, attributes.pop(f"{key}.value", None), f"{key}.value")
            else:
                content.move(f"{key}.value", side, key)
        if isinstance(attributes.get("metadata"), str):
            metadata = parsed(attributes["metadata"])
            if isinstance(metadata, dict):
                content.metadata.update(as_json(metadata))
                del attributes["metadata"]
        content.tags.extend(tag for tag in as_list(attributes.pop("tag.tags", None)) if isinstance(tag, str))
        content.belongs(
            thread_id=attributes.get("session.id"),
            session_id=attributes.get("session.id"),
            user_id=attributes.get("user.id"),
        )

    def has_facts(self, shape: Shape) -> bool:
        return "openinference.span.kind" in shape.attributes or "llm.model_name" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        parameters = as_json(parsed(attributes.get("llm.invocation_parameters")))
        raw = as_json(as_json(as_json(span.get("outputs")).get("output")).get("usage"))
        finish_reason = as_text(attributes.get("llm.finish_reason"))
        return Facts(
            model=as_text(first(attributes, "llm.response.model_name", "llm.model_name", "embedding.model_name")),
            requested_model=as_text(
                first({**parameters, **attributes}, "llm.request.model_name", "model", "model_name")
            ),
            provider=provider_name(attributes.get("llm.provider"), attributes.get("llm.system")),
            finish_reasons=[finish_reason] if finish_reason else [],
            tokens=counted(
                attributes.get("llm.token_count.prompt"),
                attributes.get("llm.token_count.completion"),
                cache_read=first(
                    attributes,
                    "llm.token_count.prompt_details.cache_read",
                    "llm.token_count.prompt_details.cache_input",
                ),
                cache_write=attributes.get("llm.token_count.prompt_details.cache_write"),
                raw=raw,
                total=attributes.get("llm.token_count.total"),
            ),
            total_tokens=as_count(attributes.get("llm.token_count.total")),
            cost=as_number(attributes.get("llm.cost.total")),
            parameters={
                key: value
                for key, value in parameters.items()
                if key not in ("model", "model_name", "tools", "messages", "_type") and value is not None
            },
            tool_name=as_text(attributes.get("tool.name")),
            call_id=as_text(first(attributes, "tool.id", "tool_call.id")),
            args=parsed(attributes.get("tool.parameters")),
        )


def _unwrapped(value: Any) -> Any:
    """Return entries without their wrapper names: {"message": {"role": …}} becomes {"role": …}."""
    if isinstance(value, list):
        return [_unwrapped(item) for item in as_list(value)]
    if not isinstance(value, dict):
        return value
    entry: Json = {}
    for key, item in as_json(value).items():
        item = _unwrapped(item)
        if key in _WRAPPERS and isinstance(item, dict):
            for name, inner in as_json(item).items():
                entry.setdefault(name, inner)
        else:
            entry[key] = item
    return entry


def _tools(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [parsed(as_json(as_json(tool).get("tool")).get("json_schema")) or tool for tool in as_list(value)]
