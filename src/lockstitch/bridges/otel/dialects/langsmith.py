"""What the LangSmith SDK says when it exports through OpenTelemetry, and LangSmith's attributes in anybody's spans."""

from typing import Any

from lockstitch.bridges.otel.dialect import Content, Facts
from lockstitch.bridges.otel.providers import provider_name
from lockstitch.bridges.otel.usage import raw_counts
from lockstitch.bridges.otel.values import as_json, as_text, first, parsed
from lockstitch.bridges.span import Piece
from lockstitch.records import Json

_METADATA = "langsmith.metadata."


class LangSmith:
    def take(self, content: Content) -> None:
        attributes = content.attributes
        if "langsmith" not in content.heads:
            return
        for name in [name for name in attributes if name.startswith(_METADATA)]:
            value = attributes.pop(name)
            content.metadata.setdefault(name[len(_METADATA) :], parsed(value) if isinstance(value, str) else value)
        tags: Any = attributes.pop("langsmith.span.tags", None)
        if isinstance(tags, str):
            content.tags.extend(tag.strip() for tag in tags.split(",") if tag.strip())
        elif isinstance(tags, list):
            content.tags.extend(tag for tag in tags if isinstance(tag, str))  # pyright: ignore[reportUnknownVariableType]
        content.is_named((as_text(attributes.get("langsmith.span.kind")) or "").lower())
        # A "session" of LangSmith is a project of it; conversations are told by the metadata alone.
        content.belongs(
            thread_id=first(content.metadata, "thread_id", "session_id", "conversation_id"),
            session_id=content.metadata.get("session_id"),
            user_id=content.metadata.get("user_id"),
            group=attributes.get("langsmith.trace.session_name"),
        )

    def facts(self, attributes: Json, piece: Piece) -> Facts:
        if "langsmith.span.kind" not in attributes:
            return Facts()
        metadata = as_json(piece.get("metadata"))
        # LangChain counts the cache as part of the input.
        return Facts(
            asked_model=as_text(metadata.get("ls_model_name")),
            provider=provider_name(metadata.get("ls_provider")),
            tokens=raw_counts(as_json(metadata.get("usage_metadata"))),
            parameters={
                name.removeprefix("ls_"): metadata[name]
                for name in ("ls_temperature", "ls_max_tokens", "ls_stop")
                if metadata.get(name) is not None
            },
        )
