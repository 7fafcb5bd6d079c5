"""`ClaudeCode`: the spans of Claude Code and of the Claude Agent SDK, and the attributes that its log events share.

Its counts exclude the cache, as Anthropic's API does. A request is identified by the id of its HTTP response
(`request_id`), which its spans and its log events contain.
"""

from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape
from lockstitch.integrations.otel.values import as_count, as_json, as_number, as_text, first, parsed, provider_name
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json

SCOPES = ("com.anthropic.claude_code.tracing", "com.anthropic.claude_code.events")
HIDDEN = "<REDACTED>"
"""The client writes this in place of content, unless an option enables the content."""

_KINDS = {"interaction": "agent", "llm_request": "llm", "tool": "tool"}
_ARGUMENTS = {
    "full_command": "command",
    "file_path": "file_path",
    "skill_name": "skill",
    "subagent_type": "subagent_type",
}
"""Attributes with an argument of a tool, and the names of the arguments."""
_PROVIDERS = {"firstparty": "anthropic", "vertex": "google"}


class ClaudeCode:
    def has_content(self, shape: Shape) -> bool:
        return shape.scope == SCOPES[0]

    def take(self, content: Content) -> None:
        attributes = content.attributes
        kind = (as_text(attributes.get("span.type")) or content.name).removeprefix("claude_code.")
        content.is_named(_KINDS.get(kind))
        if kind == "interaction" and attributes.get("user_prompt") not in (None, HIDDEN):
            content.move("user_prompt", "inputs", "input")
        elif kind == "tool":
            self._take_tool(content)
        session = attributes.get("session.id")
        content.belongs(thread_id=session, session_id=session, user_id=attributes.get("user.id"))

    def has_facts(self, shape: Shape) -> bool:
        return shape.scope in SCOPES

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        return Facts(
            model=as_text(attributes.get("model")),
            provider=provider_of(attributes),
            response_id=as_text(attributes.get("request_id")),
            tokens=_counts(attributes),
            cost=as_number(attributes.get("cost_usd")),
            parameters={name: attributes[name] for name in ("speed", "effort") if name in attributes},
        )

    def _take_tool(self, content: Content) -> None:
        attributes = content.attributes
        arguments = parsed(attributes["tool_input"]) if isinstance(attributes.get("tool_input"), str) else None
        if not isinstance(arguments, dict):
            arguments = {
                argument: attributes[name]
                for name, argument in _ARGUMENTS.items()
                if attributes.get(name) not in (None, HIDDEN)
            }
        content.put("inputs", "arguments", arguments or None, "tool_input")
        others: list[Json] = []
        for event in content.events:
            output: Any = first(as_json(event.get("attributes")), "output", "content", "diff")
            if event["name"] == "tool.output" and output is not None and not content.outputs:
                content.put("outputs", "result", output, "tool.output")
            else:
                others.append(event)
        content.events = others


def provider_of(attributes: Json) -> str | None:
    """Return the provider of a request."""
    value = as_text(attributes.get("anthropic.provider"))
    return provider_name(_PROVIDERS.get((value or "").lower(), value))


def _counts(attributes: Json) -> TokenCounts | None:
    requested, answered = (as_count(attributes.get(f"{side}_tokens")) for side in ("input", "output"))
    if requested is None and answered is None:
        return None
    read = as_count(attributes.get("cache_read_tokens")) or 0
    written = as_count(attributes.get("cache_creation_tokens")) or 0
    return TokenCounts((requested or 0) + read + written, answered or 0, read, written)
