"""Traceloop's OpenLLMetry: GenAI, and around it workflows, tasks and tools with whatever went in and came out."""

from typing import Any

from lockstitch.bridges.otel.dialect import Content, Facts, Side
from lockstitch.bridges.otel.providers import provider_name
from lockstitch.bridges.otel.values import as_json, as_list, as_text, first, parsed
from lockstitch.bridges.span import Piece
from lockstitch.records import Json

_PROPERTIES = "traceloop.association.properties."
_CALLBACK = frozenset({"inputs", "outputs", "output", "input_str", "tags", "metadata", "kwargs"})
_TRACELOOP_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("traceloop.entity.input", "inputs", "input"),
    ("gen_ai.task.input", "inputs", "input"),
    ("traceloop.entity.output", "outputs", "output"),
    ("gen_ai.task.output", "outputs", "output"),
)


class Traceloop:
    def take(self, content: Content) -> None:
        attributes = content.attributes
        if "traceloop" not in content.heads and "gen_ai.task.input" not in attributes:
            return
        for name in [name for name in attributes if name.startswith(_PROPERTIES)]:
            value = attributes.pop(name)
            content.metadata.setdefault(name[len(_PROPERTIES) :], parsed(value) if isinstance(value, str) else value)
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

    def facts(self, attributes: Json, piece: Piece) -> Facts:
        if "traceloop.entity.path" not in attributes and "traceloop.entity.name" not in attributes:
            return Facts()
        metadata = as_json(piece.get("metadata"))
        callback = as_json(as_json(piece.get("extra")).get("callback"))
        return Facts(
            asked_model=as_text(metadata.get("ls_model_name")),
            provider=provider_name(metadata.get("ls_provider")),
            tool_name=as_text(attributes.get("traceloop.entity.name")),
            call_id=as_text(as_json(callback.get("kwargs")).get("tool_call_id")),
        )

    def _unwrap(self, content: Content, side: Side, keys: tuple[str, ...], inner: tuple[str, ...]) -> None:
        """What LangChain's callback got, without the callback's own arguments around it; those go to the extras."""
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
