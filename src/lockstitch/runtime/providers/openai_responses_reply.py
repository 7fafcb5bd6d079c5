"""The events of OpenAI's Responses API, put together into pieces and one response."""

from collections.abc import Iterator
from typing import Any, Final

from lockstitch.records import Json
from lockstitch.runtime.provider import Piece, Response, StopReason, Usage
from lockstitch.runtime.providers.content import parse_input, piece_of, whole
from lockstitch.runtime.providers.openai_client import KEPT, kept_arguments
from lockstitch.runtime.providers.openai_errors import told

_THINKING: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_SPOKEN: Final = ("response.output_text.delta", "response.refusal.delta")
_ENDS: Final = ("response.completed", "response.incomplete")


class Reply:
    """One answer as it comes. LookupError, TypeError and ValueError mean that the stream is not what it should be."""

    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._end: Json | None = None

    def feed(self, event: Json) -> Iterator[Piece]:
        kind = event["type"]
        if kind in _THINKING:
            yield Piece("thinking", whole(event["delta"]))
        elif kind in _SPOKEN:
            yield Piece("text", whole(event["delta"]))
        elif kind == "response.reasoning_summary_part.added" and event["summary_index"]:
            yield Piece("thinking", "\n\n")
        elif kind == "response.output_text.annotation.added":
            yield Piece("citation", data=event["annotation"])
        elif kind == "response.output_item.done":
            self._items[int(event["output_index"])] = event["item"]
            yield from (piece for block in _blocks(event["item"]) if (piece := piece_of(block)))
        elif kind in _ENDS:
            self._end = event["response"]
        elif kind == "response.failed":
            error: Json = event["response"].get("error") or {}
            raise told(error.get("code"), error.get("message"))
        elif kind == "error":
            raise told(event.get("code"), event.get("message"))

    def response(self) -> Response:
        if self._end is None:
            raise ValueError("the stream ended before the response did")
        items = [self._items[index] for index in sorted(self._items)] or self._end.get("output") or []
        content = [block for item in items for block in _blocks(item)]
        details: Json = self._end.get("incomplete_details") or {}
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=_stop_reason(details.get("reason"), content),
            usage=usage_of(self._end.get("usage") or {}),
            finish_reason=details.get("reason") or self._end.get("status"),
            response_id=self._end.get("id"),
            model=self._end.get("model"),
        )


def _blocks(item: Json) -> list[Json]:
    match item["type"]:
        case "message":
            return [_spoken(item, part) for part in item["content"]]
        case "function_call":
            return [_call_block(item)]
        case "reasoning":
            return [{"type": "thinking", "thinking": _thoughts(item), KEPT: item}]
        case kind:
            # Whatever the provider executed itself goes back whole.
            name = str(kind).removesuffix("_call")
            call: Json = {"type": "server_tool_use", "id": item.get("id") or "", "name": name}
            return [{**call, "input": item.get("action") or {}, KEPT: item}]


def _spoken(item: Json, part: Json) -> Json:
    """A part of a message; beside its text, it keeps what makes it the same part of the same item again."""
    key = "refusal" if part["type"] == "refusal" else "text"
    kept: Json = {
        "id": item["id"],
        "message": {name: value for name, value in item.items() if name not in ("id", "content")},
        "part": {name: value for name, value in part.items() if name != key},
    }
    return {"type": "text", "text": whole(part[key]), KEPT: kept}


def _call_block(item: Json) -> Json:
    value = parse_input(item["arguments"])
    apart = ("type", "call_id", "name", "arguments")
    kept = {name: value for name, value in item.items() if name not in apart and value is not None}
    kept |= kept_arguments(whole(item["arguments"]), value)
    block: Json = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": value}
    return {**block, KEPT: kept} if kept else block


def _thoughts(item: Json) -> str:
    parts: list[Json] = item.get("summary") or item.get("content") or []
    return "\n\n".join(whole(part["text"]) for part in parts)


def _stop_reason(incomplete: Any, content: list[Json]) -> StopReason:
    if incomplete == "content_filter":
        return "refusal"
    if incomplete is not None:
        return "max_tokens"
    if any(block["type"] == "tool_use" for block in content):
        return "tool_use"
    return "refusal" if any(_is_refusal(block) for block in content) else "end_turn"


def _is_refusal(block: Json) -> bool:
    kept: Json = block.get(KEPT) or {}
    part: Json = kept.get("part") or {}
    return part.get("type") == "refusal"


def usage_of(usage: Json) -> Usage:
    """Cached tokens are part of the input, and reasoning is part of the output, as OpenAI counts."""
    details: Json = usage.get("input_tokens_details") or {}
    return Usage(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        details.get("cached_tokens") or 0,
        details.get("cache_write_tokens") or 0,
    )
