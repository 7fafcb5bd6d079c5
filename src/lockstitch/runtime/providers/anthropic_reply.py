"""Anthropic's stream of events, put together into pieces and one response."""

from collections.abc import Iterator
from typing import Any, Final

from lockstitch.records import Json
from lockstitch.runtime.provider import Piece, Response, StopReason, Usage
from lockstitch.runtime.providers.content import parse_input, piece_of, whole

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
    "compaction": "pause_turn",
}


class Reply:
    """One answer as it comes. KeyError, TypeError and ValueError mean that the stream is not what it should be."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._json: dict[int, str] = {}
        self._open: set[int] = set()
        self._stop: Json = {}
        self._ended = False

    def feed(self, event: Json) -> Iterator[Piece]:
        match event["type"]:
            case "message_start":
                self._message = dict(event["message"])
                self._count(self._message.get("usage"))
            case "content_block_start":
                self._start(int(event["index"]), event["content_block"])
            case "content_block_delta":
                yield from self._extend(int(event["index"]), event["delta"])
            case "content_block_stop":
                piece = piece_of(self._finish(int(event["index"])))
                if piece:
                    yield piece
            case "message_delta":
                self._stop = event["delta"]
                self._count(event.get("usage"))
            case "message_stop":
                self._ended = True
            case _:
                # The API announces that events of new kinds may come, and asks to pass over them.
                pass

    def response(self) -> Response:
        if not self._message or not self._ended or self._open:
            raise ValueError("the stream ended before the message did")
        content = [self._blocks[index] for index in sorted(self._blocks)]
        reason = self._stop.get("stop_reason") or self._message.get("stop_reason")
        container: Json | None = self._stop.get("container") or self._message.get("container")
        return Response(
            message={"role": "assistant", "content": content},
            stop_reason=_stop_reason(reason, content),
            usage=usage_of(self._usage),
            finish_reason=reason,
            response_id=self._message.get("id"),
            model=self._message.get("model"),
            container_id=container["id"] if container else None,
        )

    def _count(self, usage: Json | None) -> None:
        """Counts are totals so far: a later one replaces an earlier one, and what is not told stays."""
        if usage:
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _start(self, index: int, block: Json) -> None:
        if not self._message:
            raise ValueError("a block came before the message")
        self._blocks[index] = dict(block)
        self._open.add(index)
        if block["type"] == "fallback":
            self._message["model"] = block["to"]["model"]

    def _extend(self, index: int, delta: Json) -> Iterator[Piece]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield Piece("text", whole(delta["text"]))
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield Piece("thinking", whole(delta["thinking"]))
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                yield Piece("citation", data=delta["citation"])
            case "input_json_delta":
                self._json[index] = self._json.get(index, "") + delta["partial_json"]
            case _:
                # A compaction comes as one delta, and so may blocks to come.
                block.update({name: value for name, value in delta.items() if name != "type"})

    def _finish(self, index: int) -> Json:
        block = self._blocks[index]
        self._open.remove(index)
        if self._json.get(index):
            block["input"] = parse_input(self._json[index])
        for name in ("text", "thinking"):
            if isinstance(block.get(name), str):
                block[name] = whole(block[name])
        return block


def usage_of(usage: Json) -> Usage:
    """Anthropic counts cached tokens apart from the others, and compactions apart from all; we count all together."""
    iterations: list[Json] = usage.get("iterations") or []
    totals = [usage, *(one for one in iterations if one.get("type") == "compaction")]

    def total(name: str) -> int:
        return sum(one.get(name) or 0 for one in totals)

    read, write = total("cache_read_input_tokens"), total("cache_creation_input_tokens")
    return Usage(total("input_tokens") + read + write, total("output_tokens"), read, write)


def _stop_reason(reason: Any, content: list[Json]) -> StopReason:
    asks = any(block.get("type") == "tool_use" for block in content)
    return _STOP_REASONS.get(str(reason), "tool_use" if asks else "end_turn")
