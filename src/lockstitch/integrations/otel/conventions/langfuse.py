"""`Langfuse`: the attributes of the Langfuse SDKs, in which a span is an observation of a type."""

from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
from lockstitch.integrations.otel.usage import raw_counts
from lockstitch.integrations.otel.values import (
    as_count,
    as_json,
    as_list,
    as_number,
    as_text,
    decoded,
    first,
    parsed,
)
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json

TYPE = "langfuse.observation.type"
MODEL = "langfuse.observation.model.name"
METADATA = ("langfuse.observation.metadata", "langfuse.trace.metadata")
"""Attributes with metadata: an object in JSON, or the prefix of one attribute per key."""

_CACHE_READS = ("cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
_CACHE_WRITES = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write")
_COUNTS = (("input", "promptTokens"), ("output", "completionTokens"))
_SIDES: tuple[tuple[Side, str], ...] = (("inputs", "input"), ("outputs", "output"))


class Langfuse:
    def has_content(self, shape: Shape) -> bool:
        return "langfuse" in shape.heads

    def take(self, content: Content) -> None:
        attributes = content.attributes
        kind = (as_text(attributes.get(TYPE)) or "").lower()
        # A "span" has no meaning, so another convention may name it.
        content.is_named("llm" if kind == "generation" else "" if kind == "span" else kind)
        for side, key in _SIDES:
            for name in (f"langfuse.observation.{key}", f"langfuse.trace.{key}"):
                value = attributes.get(name)
                if value is not None and not (content.inputs if side == "inputs" else content.outputs):
                    del attributes[name]
                    value = parsed(value)
                    content.put(side, key, _unwrapped(value) if side == "inputs" else value, name)
        self._take_metadata(content)
        content.tags.extend(tag for tag in as_list(attributes.pop("langfuse.trace.tags", None)) if isinstance(tag, str))
        session = first(attributes, "session.id", "langfuse.session.id")
        content.belongs(thread_id=session, session_id=session, user_id=first(attributes, "user.id", "langfuse.user.id"))
        content.trace_name = content.trace_name or as_text(attributes.get("langfuse.trace.name"))
        if attributes.get("langfuse.observation.level") == "ERROR":
            content.error = as_text(attributes.get("langfuse.observation.status_message")) or "failed"

    def has_facts(self, shape: Shape) -> bool:
        return TYPE in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        usage = as_json(parsed(attributes.get("langfuse.observation.usage_details")))
        parameters = as_json(parsed(attributes.get("langfuse.observation.model.parameters")))
        return Facts(
            model=as_text(attributes.get(MODEL)),
            tokens=_counts(usage),
            total_tokens=as_count(first(usage, "total", "total_tokens")),
            cost=_cost(as_json(parsed(attributes.get("langfuse.observation.cost_details")))),
            # The SDK writes "Infinity" if a call has no limit of tokens.
            parameters={name: value for name, value in parameters.items() if value not in (None, "Infinity")},
        )

    def _take_metadata(self, content: Content) -> None:
        attributes = content.attributes
        for prefix in METADATA:
            bag = decoded(attributes.get(prefix))
            if isinstance(bag, dict):
                del attributes[prefix]
                for key, value in as_json(bag).items():
                    content.metadata.setdefault(key, value)
            for name in [name for name in attributes if name.startswith(prefix + ".")]:
                content.metadata.setdefault(name[len(prefix) + 1 :], decoded(attributes.pop(name)))


def _unwrapped(value: Any) -> Any:
    """Return the arguments that a decorated function received without their wrapper, if that loses nothing."""
    bag = as_json(value)
    if bag.keys() != {"args", "kwargs"}:
        return value
    args, kwargs = as_list(bag["args"]), as_json(bag["kwargs"])
    if not args:
        return kwargs or None
    return args[0] if len(args) == 1 and not kwargs else value


def _counts(usage: Json) -> TokenCounts | None:
    """Return the token counts. In Langfuse's names, cached tokens are not part of `input`, unless the total says so."""
    requested, answered = (as_count(first(usage, *names)) for names in _COUNTS)
    if requested is None and answered is None:
        return raw_counts(usage)
    requested, answered = requested or 0, answered or 0
    read = as_count(first(usage, *_CACHE_READS)) or 0
    written = as_count(first(usage, *_CACHE_WRITES)) or 0
    if as_count(first(usage, "total", "totalTokens")) != requested + answered or read + written > requested:
        requested += read + written
    return TokenCounts(requested, answered, read, written)


def _cost(details: Json) -> float | None:
    total = as_number(details.get("total"))
    if total is not None:
        return total
    parts = [cost for cost in map(as_number, details.values()) if cost is not None]
    return sum(parts) if parts else None
