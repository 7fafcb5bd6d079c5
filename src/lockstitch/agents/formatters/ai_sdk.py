"""`AISDKFormatter`: the UI message stream of the AI SDK, which `useChat` reads.

One stream is one message of the assistant. The id of the message is the id of the run, so a stream that starts again
replaces the message. The stream ends when the run has ended or waits.
"""

from collections.abc import Iterator
from typing import Any, Final

from lockstitch.agents.formatters.formatter import without_payloads
from lockstitch.agents.formatters.sent_text import SentText
from lockstitch.engine.events import Event
from lockstitch.errors import Refused
from lockstitch.model import ApprovalWait, InDoubtWait, Json, QuestionWait, codec, parse_waits
from lockstitch.model.message import blocks
from lockstitch.model.wait import CallWait

_CHUNKS: Final = {"text": "text", "thinking": "reasoning"}
"""The prefix of chunks of text, by the kind of the text."""

_REASONS: Final = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content-filter",
    "content_filter": "content-filter",
}
"""`finishReason` by the stop reason of a run. All other reasons are `other`."""


class AISDKFormatter:
    """Formats one run as chunks of the AI SDK."""

    name = "ai-sdk"

    def __init__(self, detail: bool = False) -> None:
        self._detail = detail
        self._text = SentText()
        self._in_step = False
        self._called = False
        """True if the model call of this step has ended, and its tools have results."""
        self._ended = False

    def feed(self, event: Event) -> list[str]:
        if event.member or self._ended:
            # A message shows what its own agent does. The calls of the leader show its members.
            return []
        return [codec.dumps(chunk).decode() for chunk in self._chunks(event)]

    def end(self) -> list[str]:
        if self._ended:
            return []
        self._ended = True
        chunks = [*self._end_text(), *self._end_step(), {"type": "finish", "finishReason": "tool-calls"}]
        return [codec.dumps(chunk).decode() for chunk in chunks]

    def _chunks(self, event: Event) -> Iterator[Json]:
        data = event.data
        match event.type:
            case "started":
                metadata = {"threadId": str(event.thread_id), "runId": str(event.run_id)}
                yield {"type": "start", "messageId": str(event.run_id), "messageMetadata": metadata}
            case "text" | "thinking":
                yield from self._add_text(event)
            case "retry":
                self._text.retry()
            case "tool_call" | "server_tool_call":
                yield from self._end_text()
                yield from self._start_step()
                call = {"toolCallId": data.get("id"), "toolName": data.get("name"), "input": data.get("input")}
                yield {"type": "tool-input-available", **call, **_by_provider(event)}
            case "tool_result":
                self._called = True
                yield self._result(event)
            case "server_tool_result":
                yield self._result(event)
            case "paused":
                yield from self._end_text()
                yield from _waits(data)
            case "failed":
                self._ended = True
                yield {"type": "error", "errorText": str(data.get("error") or "The run failed.")}
            case "finished" if data.get("status") != "waiting":
                yield from self._finish(data)
            case _:
                return

    def _add_text(self, event: Event) -> Iterator[Json]:
        if self._text.is_next_call(event):
            yield from self._end_text()
            self._called = True
        before = self._text.open
        for part in self._text.add(event):
            yield from self._start_step()
            prefix = _CHUNKS[part.kind]
            if part.first:
                if before is not None:
                    yield {"type": f"{_CHUNKS[before.kind]}-end", "id": before.id}
                yield {"type": f"{prefix}-start", "id": part.id}
            yield {"type": f"{prefix}-delta", "id": part.id, "delta": part.text}

    def _end_text(self) -> Iterator[Json]:
        part = self._text.open
        self._text.end_call()
        if part is not None:
            yield {"type": f"{_CHUNKS[part.kind]}-end", "id": part.id}

    def _start_step(self) -> Iterator[Json]:
        if self._called:
            yield from self._end_step()
        if not self._in_step:
            self._in_step = True
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Json]:
        if self._in_step:
            self._in_step = self._called = False
            yield {"type": "finish-step"}

    def _result(self, event: Event) -> Json:
        data = event.data
        by_server = event.type == "server_tool_result"
        result: Json = {"toolCallId": data.get("tool_use_id" if by_server else "id"), **_by_provider(event)}
        if data.get("is_error"):
            text = text_of_result(data.get("content")) if self._detail else "The tool failed."
            return {"type": "tool-output-error", **result, "errorText": text}
        output = output_of(data.get("content")) if self._detail else None
        return {"type": "tool-output-available", **result, "output": output}

    def _finish(self, data: Json) -> Iterator[Json]:
        yield from self._end_text()
        yield from self._end_step()
        self._ended = True
        if data.get("status") == "cancelled":
            yield {"type": "abort", "reason": "The run was cancelled."}
            return
        reason = _REASONS.get(str(data.get("stop_reason")), "other")
        metadata = {"usage": data.get("usage"), "totalCost": data.get("total_cost")}
        yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}


def _waits(data: Json) -> Iterator[Json]:
    """Yield what a person or a browser must do. The calls for a browser are already part of the message."""
    for wait in parse_waits(data.get("waiting_for") or ()):
        match wait:
            case ApprovalWait():
                yield {"type": "tool-approval-request", "approvalId": wait.key, "toolCallId": wait.call_id}
            case QuestionWait():
                yield _data("data-question", wait, {"question": wait.question})
            case InDoubtWait():
                yield _data("data-unknown-outcome", wait, {"toolName": wait.name})
            case _:
                pass


def _data(kind: str, wait: CallWait, data: Json) -> Json:
    return {"type": kind, "id": wait.key, "data": {"toolCallId": wait.call_id, "key": wait.key, **data}}


def _by_provider(event: Event) -> Json:
    return {"providerExecuted": True} if event.type.startswith("server_") else {}


def output_of(content: Any) -> Any:
    """Return the content of a result. Text that is a JSON object or array is returned as such."""
    text = _text_of(content)
    if text is None:
        return without_payloads(content)
    if text[:1] in ("{", "["):
        try:
            return codec.loads(text)
        except (ValueError, Refused):
            return text
    return text


def text_of_result(content: Any) -> str:
    """Return the content of a result as text."""
    text = _text_of(content)
    return text if text is not None else codec.dumps(without_payloads(content)).decode()


def _text_of(content: Any) -> str | None:
    """Return the text of content that has only text, else None."""
    parts = blocks({"content": content})
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return "".join(map(str, texts)) if parts and len(texts) == len(parts) else None
