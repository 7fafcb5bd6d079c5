"""`Vercel`: the `ai.*` attributes of Vercel's AI SDK, versions 4 to 6. Version 7 uses the GenAI conventions."""

from typing import Any

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
from lockstitch.integrations.otel.usage import counted
from lockstitch.integrations.otel.values import as_json, as_list, as_text, first, parsed, provider_name
from lockstitch.integrations.spans.span import SpanData
from lockstitch.model import Json

# The outer span of an operation repeats the content and the counts of the calls below it.
_KINDS = {
    "ai.generateText": "chain",
    "ai.streamText": "chain",
    "ai.generateObject": "chain",
    "ai.streamObject": "chain",
    "ai.embed": "chain",
    "ai.embedMany": "chain",
    "ai.rerank": "chain",
    "ai.generateText.doGenerate": "llm",
    "ai.streamText.doStream": "llm",
    "ai.generateObject.doGenerate": "llm",
    "ai.streamObject.doStream": "llm",
    "ai.embed.doEmbed": "embedding",
    "ai.embedMany.doEmbed": "embedding",
    "ai.rerank.doRerank": "reranker",
    "ai.toolCall": "tool",
}
_CONTENT: tuple[tuple[str, Side, str], ...] = (
    ("ai.prompt.messages", "inputs", "messages"),
    ("ai.prompt.tools", "inputs", "tools"),
    ("ai.prompt", "inputs", "input"),
    ("ai.value", "inputs", "input"),
    ("ai.values", "inputs", "input"),
    ("ai.toolCall.args", "inputs", "arguments"),
    ("ai.toolCall.result", "outputs", "result"),
    ("ai.embedding", "outputs", "embeddings"),
    ("ai.embeddings", "outputs", "embeddings"),
)
_ANSWER = ("ai.response.reasoning", "ai.response.text", "ai.response.object", "ai.response.toolCalls")
# The second one is the runtime context of version 7, whose other attributes are GenAI's.
_METADATA = ("ai.telemetry.metadata.", "ai.settings.context.")
_CONVERSATION = ("sessionId", "session_id", "threadId", "thread_id", "conversationId", "conversation_id", "chatId")


class Vercel:
    def has_content(self, shape: Shape) -> bool:
        return "ai" in shape.heads

    def take(self, content: Content) -> None:
        attributes = content.attributes
        if "ai.operationId" in attributes:
            self._take_content(content)
        for prefix in _METADATA:
            for name in [name for name in attributes if name.startswith(prefix)]:
                content.metadata.setdefault(name[len(prefix) :], attributes.pop(name))
        content.belongs(
            thread_id=first(content.metadata, *_CONVERSATION),
            session_id=first(content.metadata, "sessionId", "session_id"),
            user_id=first(content.metadata, "userId", "user_id"),
        )

    def _take_content(self, content: Content) -> None:
        attributes = content.attributes
        content.is_named(_KINDS.get(as_text(attributes["ai.operationId"]) or ""))
        for name, side, key in _CONTENT:
            content.move(name, side, key)
        if isinstance(tools := content.inputs.get("tools"), list):
            # Each tool is JSON text.
            content.inputs["tools"] = [parsed(tool) for tool in as_list(tools)]
        content.put("outputs", "messages", _answer(attributes), "ai.response")

    def has_facts(self, shape: Shape) -> bool:
        return "ai.operationId" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        details = as_json(parsed(attributes.get("ai.response.providerMetadata")))
        anthropic, openai = as_json(details.get("anthropic")), as_json(details.get("openai"))
        finish_reason = as_text(attributes.get("ai.response.finishReason"))
        return Facts(
            model=as_text(attributes.get("ai.response.model")),
            requested_model=as_text(attributes.get("ai.model.id")),
            provider=provider_name(attributes.get("ai.model.provider")),
            response_id=as_text(attributes.get("ai.response.id")),
            finish_reasons=[finish_reason] if finish_reason else [],
            tokens=counted(
                first(attributes, "ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
                first(attributes, "ai.usage.outputTokens", "ai.usage.completionTokens"),
                cache_read=first(attributes, "ai.usage.inputTokenDetails.cacheReadTokens", "ai.usage.cachedInputTokens")
                or first(anthropic, "cacheReadInputTokens")
                or first(openai, "cachedPromptTokens"),
                cache_write=attributes.get("ai.usage.inputTokenDetails.cacheWriteTokens")
                or first(anthropic, "cacheCreationInputTokens"),
                raw=as_json(anthropic.get("usage")),
            ),
            tool_name=as_text(attributes.get("ai.toolCall.name")),
            call_id=as_text(attributes.get("ai.toolCall.id")),
        )


def _answer(attributes: Json) -> list[Json] | None:
    """Return the answer as one message. Its parts are in separate attributes."""
    reasoning, text, value, calls = (attributes.pop(name, None) for name in _ANSWER)
    parts: list[Any] = []
    if reasoning:
        parts.append({"type": "reasoning", "text": reasoning})
    if spoken := as_text(text) or as_text(value):
        parts.append({"type": "text", "text": spoken})
    parts += [{"type": "tool-call", **as_json(call)} for call in as_list(parsed(calls))]
    return [{"role": "assistant", "content": parts}] if parts else None
