"""Pydantic's logfire and pydantic-ai: GenAI with names of their own beside it, and events as one attribute."""

from typing import Any

from lockstitch.bridges.otel.dialect import Content, Facts, Side
from lockstitch.bridges.otel.usage import raw_counts
from lockstitch.bridges.otel.values import as_json, as_list, as_number, as_text, parsed
from lockstitch.bridges.span import Piece
from lockstitch.records import Json

_HEADS = frozenset({"logfire", "pydantic_ai", "all_messages_events", "events"})
_STREAMED = "streaming response from"
_TEMPLATES = {
    "Chat Completion with": "llm",
    "Message with": "llm",
    "Responses API with": "llm",
    "Completion with": "llm",
    "Embedding Creation with": "embedding",
    _STREAMED: "llm",
    "agent run": "agent",
    "running tool": "tool",
}
_LOGFIRE_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("tool_arguments", "inputs", "arguments"),
    ("tool_response", "outputs", "result"),
    ("final_result", "outputs", "result"),
    ("response_data", "outputs", "output"),
)


class Logfire:
    def take(self, content: Content) -> None:
        attributes = content.attributes
        if not content.heads & _HEADS and not _is_ours(content) and " " not in content.name:
            return
        self._take_dialogue(content)
        if _is_ours(content):
            for name, side, key in _LOGFIRE_CONTENT:
                content.move(name, side, key)
            request = attributes.get("request_data")
            asked = as_json(parsed(request) if isinstance(request, str) else request)
            # Newer versions leave only the model's name there.
            if "messages" in asked or "prompt" in asked or "input" in asked:
                content.move("request_data", "inputs", "input")
        content.tags.extend(tag for tag in as_list(attributes.pop("logfire.tags", None)) if isinstance(tag, str))
        template = as_text(attributes.get("logfire.msg_template")) or content.name
        content.is_named(next((kind for words, kind in _TEMPLATES.items() if template.startswith(words)), None))
        if _answers_elsewhere(content, template):
            # The answer of a stream is told by an entry of its own, which is the model call then.
            content.kind = "request"

    def facts(self, attributes: Json, piece: Piece) -> Facts:
        outputs = as_json(piece.get("outputs"))
        usage = as_json(as_json(outputs.get("output")).get("usage") or outputs.get("usage"))
        return Facts(
            tokens=raw_counts(usage) if _says_logfire(attributes) else None,
            cost=as_number(attributes.get("operation.cost")),
        )

    def _take_dialogue(self, content: Content) -> None:
        """A whole exchange in one attribute: what came before the answer is input, the rest is output."""
        for name in ("pydantic_ai.all_messages", "all_messages_events", "events"):
            said = content.attributes.get(name)
            messages = as_list(parsed(said) if isinstance(said, str) else said)
            if not messages or not all(isinstance(message, dict) for message in messages):
                continue
            del content.attributes[name]
            turn = _turn(messages)
            content.put("inputs", "messages", messages[:turn] or None, name)
            content.put("outputs", "messages", messages[turn:] or None, name)


def _turn(messages: list[Any]) -> int:
    """Where the answer begins: at the first choice, else after the last thing that a person said."""
    last = 0
    for place, message in enumerate(map(as_json, messages)):
        if message.get("event.name") == "gen_ai.choice":
            return place
        asks = message.get("role") in ("user", "system") and not _only_results(message)
        # Events of one model call end with its answer, so a tool's result among them came before it.
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


def _is_ours(content: Content) -> bool:
    return content.scope.startswith(("logfire", "pydantic-ai", "pydantic_ai")) or _says_logfire(content.attributes)


def _says_logfire(attributes: Json) -> bool:
    return "logfire.span_type" in attributes or "logfire.msg" in attributes
