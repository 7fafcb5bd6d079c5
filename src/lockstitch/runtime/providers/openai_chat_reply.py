"""The chunks of a chat completion, put together into pieces and one response."""

from collections.abc import Iterator
from typing import Final

from lockstitch.records import Json
from lockstitch.runtime.provider import Piece, Response, StopReason, Usage
from lockstitch.runtime.providers.content import parse_input, piece_of, whole
from lockstitch.runtime.providers.openai_client import KEPT, kept_arguments

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
# OpenAI's own chat tells no thoughts; other servers tell them under one of these names.
_THOUGHTS: Final = ("reasoning_content", "reasoning")


class Reply:
    """One answer as it comes. LookupError, TypeError and ValueError mean that the stream is not what it should be."""

    def __init__(self) -> None:
        self._first: Json = {}
        self._texts: dict[str, str] = {}
        self._calls: list[Json] = []
        self._finish: str | None = None
        self._usage: Json = {}

    def feed(self, event: Json) -> Iterator[Piece]:
        self._first = self._first or event
        self._usage = event.get("usage") or self._usage
        for choice in event["choices"]:
            if not choice.get("index"):
                yield from self._extend(choice.get("delta") or {})
                yield from self._end(choice.get("finish_reason"))

    def response(self) -> Response:
        if self._finish is None:
            raise ValueError("the stream ended before the message did")
        content = [*self._spoken(), *(self._block(place) for place in range(len(self._calls)))]
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=self._stop_reason(self._finish),
            usage=usage_of(self._usage),
            finish_reason=self._finish,
            response_id=self._first.get("id"),
            model=self._first.get("model"),
        )

    def _extend(self, delta: Json) -> Iterator[Piece]:
        for name in (*_THOUGHTS, "content", "refusal"):
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._texts[name] = self._texts.get(name, "") + text
                yield Piece("thinking" if name in _THOUGHTS else "text", whole(text))
        for part in delta.get("tool_calls") or ():
            self._extend_call(part)

    def _extend_call(self, part: Json) -> None:
        """Parts of a call share its index; some servers give none, or the same to all, and then a new id begins one."""
        index, id = part.get("index"), part.get("id")
        call = next((one for one in reversed(self._calls) if index is None or one["index"] == index), None)
        if call is None or (id and call["id"] and id != call["id"]):
            call = {"index": index, "id": id or "", "name": "", "arguments": ""}
            self._calls.append(call)
        function: Json = part.get("function") or {}
        call["id"] = call["id"] or id or ""
        for name in ("name", "arguments"):
            call[name] = f"{call[name]}{function.get(name) or ''}"

    def _end(self, finish: str | None) -> Iterator[Piece]:
        if finish is None or self._finish is not None:
            return
        self._finish = finish
        for place in range(len(self._calls)):
            piece = piece_of(self._block(place))
            if piece:
                yield piece

    def _spoken(self) -> Iterator[Json]:
        for name in _THOUGHTS:
            if name in self._texts:
                yield {"type": "thinking", "thinking": whole(self._texts[name]), KEPT: {"field": name}}
        if "content" in self._texts:
            yield {"type": "text", "text": whole(self._texts["content"])}
        if "refusal" in self._texts:
            yield {"type": "text", "text": whole(self._texts["refusal"]), KEPT: {"refusal": True}}

    def _block(self, place: int) -> Json:
        call = self._calls[place]
        if not call["name"]:
            raise ValueError("a call names no function")
        value = parse_input(call["arguments"])
        kept = kept_arguments(whole(call["arguments"]), value)
        id = call["id"] or f"call_{self._first.get('id') or 'chat'}_{place}"
        block: Json = {"type": "tool_use", "id": id, "name": call["name"], "input": value}
        return {**block, KEPT: kept} if kept else block

    def _stop_reason(self, finish: str) -> StopReason:
        if "refusal" in self._texts:
            return "refusal"
        if self._calls and finish == "stop":
            # Not every server tells a stop from a call.
            return "tool_use"
        return _STOP_REASONS.get(finish, "tool_use" if self._calls else "end_turn")


def usage_of(usage: Json) -> Usage:
    """Cached tokens are part of the prompt, and thinking is part of the completion, as OpenAI counts."""
    details: Json = usage.get("prompt_tokens_details") or {}
    return Usage(
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        details.get("cached_tokens") or 0,
        details.get("cache_write_tokens") or 0,
    )
