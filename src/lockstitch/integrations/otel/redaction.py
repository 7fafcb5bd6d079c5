"""Redaction of an OTLP body before it is stored. It replaces the values that the record would redact.

The body keeps its format. The record that is read from the redacted body is the same as without this step. A test
compares both.
"""

from collections.abc import Callable
from typing import Any, Final

from lockstitch.integrations.otel import decode
from lockstitch.integrations.otel.conventions import langfuse
from lockstitch.integrations.otel.frames import Frame
from lockstitch.integrations.otel.spans import Span, span_data
from lockstitch.integrations.otel.values import as_json, as_list, parsed
from lockstitch.integrations.spans.batch import no_pause, redact
from lockstitch.integrations.spans.span import SpanData
from lockstitch.model import Json, codec

_METADATA: Final = (
    "langsmith.metadata.",
    "traceloop.association.properties.",
    *(f"{name}." for name in langfuse.METADATA),
)
"""Prefixes of attributes that become metadata. The metadata key is the rest of the name."""

GROUP: Final = frozenset({"service.name"})
"""The resource attribute that becomes the group of a trace. It is not redacted before that."""

_CALLBACK: Final = frozenset({"inputs", "outputs", "output", "input_str"})
"""Members of Traceloop's records of LangChain callbacks that are content."""


def redacted(frame: Frame, hide: frozenset[str], pause: Callable[[], None] = no_pause) -> bytes | None:
    """Return a JSON record with redacted values, or None if there is nothing to redact.

    The caller has already read the spans of the record. `pause` is called before each span and may raise.
    """
    value = decode.document_of(frame.body)
    return codec.dumps(value) + b"\n" if _in_document(value, hide, pause) else None


def hidden_values(span: Span, hide: frozenset[str]) -> Json:
    """Return the attributes of a span that redaction changes, with their new values."""
    piece = span_data(span)
    stays: Json = as_json(as_json(piece.get("extra")).get("attributes"))
    changes = {
        name: new
        for name, value in span.attributes.items()
        if (new := _hidden(name, value, name in stays, hide)) is not value
    }
    if not changes:
        return {}
    changed = span_data(_with(span, changes))
    if _recorded(piece, hide) == _recorded(changed, hide):
        return changes
    # A redacted value decides where the span belongs, so the record needs it.
    return hidden_values(span, frozenset()) if hide else {}


def _hidden(name: str, value: Any, stays: bool, hide: frozenset[str]) -> Any:
    if stays:
        return _entry(name, value, hide)
    prefix = next((prefix for prefix in _METADATA if name.startswith(prefix)), None)
    if prefix is not None:
        return _as_text(value, lambda inner: _entry(name[len(prefix) :], inner, hide))
    if name == "metadata" or name in langfuse.METADATA:
        return _as_text(value, lambda inner: redact(inner, hide))
    if name.startswith("traceloop.entity."):
        return _as_text(value, lambda inner: _callback(inner, hide))
    return value


def _callback(value: Any, hide: frozenset[str]) -> Any:
    bag = as_json(value)
    if "kwargs" not in bag:
        return value
    other_fields = {name: item for name, item in bag.items() if name not in _CALLBACK}
    hidden = redact(other_fields, hide)
    return value if hidden is other_fields else {**bag, **hidden}


def _as_text(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change a value inside JSON text, and write it as text again."""
    inner = parsed(value) if isinstance(value, str) else value
    new = change(inner)
    if new is inner:
        return value
    return new if isinstance(new, str) or not isinstance(value, str) else codec.dumps(new).decode()


def _entry(name: str, value: Any, hide: frozenset[str]) -> Any:
    bag = {name: value}
    return redact(bag, hide)[name]


def _with(span: Span, changes: Json) -> Span:
    return Span(
        **{name: getattr(span, name) for name in Span.__dataclass_fields__ if name != "attributes"},
        attributes={**span.attributes, **changes},
    )


def _recorded(span: SpanData, hide: frozenset[str]) -> Json:
    """Return the span data that the record would store."""
    return {**span, "metadata": redact(span.get("metadata"), hide), "extra": redact(span.get("extra"), hide)}


def _in_document(value: Any, hide: frozenset[str], pause: Callable[[], None]) -> bool:
    """Redact the values of an OTLP/JSON document in place. Return True if there were any."""
    changed = False
    for request in as_list(value) if isinstance(value, list) else [value]:
        inner = as_json(as_json(request).get("trace")) or as_json(request)
        for group in map(as_json, as_list(decode.either(inner, "resourceSpans", "resource_spans", "batches"))):
            try:
                changed |= _in_group(group, hide, pause)
            except ValueError:
                # The resource cannot be read, so the record stores nothing of this group.
                group.clear()
                changed = True
    return changed


def _in_group(group: Json, hide: frozenset[str], pause: Callable[[], None]) -> bool:
    own = as_json(group.get("resource"))
    resource = decode.pairs_of(own.get("attributes"))
    changed = _replace(own.get("attributes"), _changes(resource, hide - GROUP))
    for scoped in map(as_json, as_list(decode.either(group, *decode.SCOPED))):
        about = as_json(decode.either(scoped, "scope", "instrumentationLibrary"))
        changed |= _replace(about.get("attributes"), _changes(decode.pairs_of(about.get("attributes")), hide))
        for span in map(as_json, as_list(scoped.get("spans"))):
            pause()
            for link in map(as_json, as_list(span.get("links"))):
                pairs = link.get("attributes")
                changed |= _replace(pairs, _changes(decode.pairs_of(pairs), hide))
            try:
                plain = decode.span_of(span, resource, {})
            except (ValueError, OverflowError):
                # The record stores nothing of this span, so all its attributes can be redacted.
                changed |= _replace(span.get("attributes"), _changes(_readable(span.get("attributes")), hide))
                continue
            changed |= _replace(span.get("attributes"), hidden_values(plain, hide))
    return changed


def _readable(pairs: Any) -> Json:
    try:
        return decode.pairs_of(pairs)
    except (ValueError, OverflowError):
        return {str(pair.get("key")): pair.get("value") for pair in map(as_json, as_list(pairs))}


def _changes(attributes: Json, hide: frozenset[str]) -> Json:
    new = redact(attributes, hide)
    return {} if new is attributes else {name: new[name] for name in new if new[name] is not attributes[name]}


def _replace(pairs: Any, changes: Json) -> bool:
    if not changes:
        return False
    for pair in map(as_json, as_list(pairs)):
        if pair.get("key") in changes:
            pair["value"] = _any_value(changes[pair["key"]])
    return True


def _any_value(value: Any) -> Json:
    """Return a plain value as OTLP/JSON."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, dict):
        pairs = [{"key": key, "value": _any_value(item)} for key, item in as_json(value).items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in as_list(value)]}}
    return {"stringValue": value}
