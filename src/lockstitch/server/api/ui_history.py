"""`ui_messages`: the turns of a chat as UI messages of the AI SDK, from the chunks of their streams."""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from lockstitch.agents.formatters.ai_sdk import AISDKFormatter
from lockstitch.engine.replay import EventReplay
from lockstitch.model import Json, Run, Stitch, Thread, codec
from lockstitch.model.message import blocks
from lockstitch.server.streams.thread import StreamItem
from lockstitch.store import Store


async def ui_messages(store: Store, head: Thread, limit: int) -> list[Json]:
    """Return the messages of the last turns, oldest first.

    Args:
        store: Open store with the thread.
        head: The thread.
        limit: Maximum number of turns.
    """
    page = await store.history(head, limit=limit)
    runs = [turn.run for turn in reversed(page.turns)]
    open_run = await store.execution.open_run(head)
    if open_run is not None:
        runs = [*runs, open_run][-limit:]
    messages: list[Json] = []
    for run in runs:
        stitches = await store.log(run.id)
        messages += [_user_message(stitch) for stitch in stitches if stitch.type == "input" and stitch.run_id == run.id]
        messages.append(await _assistant_message(store, head, run, stitches))
    return messages


def _user_message(stitch: Stitch) -> Json:
    parts: list[Json] = []
    for block in blocks(stitch.message or {}):
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append({"type": "text", "text": text})
            case {"source": {"type": "url", "url": str(url)} as source}:
                parts.append(
                    {"type": "file", "mediaType": source.get("media_type") or f"{block['type']}/*", "url": url}
                )
            case {"source": {"type": "base64", "media_type": str(media_type), "data": str(data)}}:
                parts.append({"type": "file", "mediaType": media_type, "url": f"data:{media_type};base64,{data}"})
            case _:
                pass
    return {"id": str(stitch.id), "role": "user", "parts": parts}


async def _assistant_message(store: Store, head: Thread, run: Run, stitches: Iterable[Stitch]) -> Json:
    async def items() -> AsyncGenerator[StreamItem]:
        for stitch in stitches:
            yield StreamItem("stitch", {}, stitch)

    formatter = AISDKFormatter(detail=True)
    message = _Message(str(run.id))
    async for event in EventReplay(store, head).events(items()):
        if event is not None:
            message.add(formatter.feed(event))
    return message.as_json()


class _Message:
    """Builds a message from its chunks, as the client does."""

    def __init__(self, message_id: str) -> None:
        self._id = message_id
        self._parts: list[Json] = []
        self._texts: dict[str, Json] = {}
        self._calls: dict[str, Json] = {}
        self._metadata: Json = {}

    def as_json(self) -> Json:
        return {"id": self._id, "role": "assistant", "metadata": self._metadata, "parts": self._parts}

    def add(self, frames: Iterable[str]) -> None:
        for frame in frames:
            self._add(codec.loads(frame))

    def _add(self, chunk: Any) -> None:
        match chunk:
            case {"type": "start-step"}:
                self._parts.append({"type": "step-start"})
            case {"type": "text-start" | "reasoning-start" as kind, "id": str(part_id)}:
                self._texts[part_id] = {"type": kind.partition("-")[0], "text": "", "state": "done"}
                self._parts.append(self._texts[part_id])
            case {"type": "text-delta" | "reasoning-delta", "id": str(part_id), "delta": str(text)}:
                self._texts[part_id]["text"] += text
            case {"type": "tool-input-available", "toolCallId": str(call_id), "toolName": name, "input": call_input}:
                call = {"type": f"tool-{name}", "toolCallId": call_id, "state": "input-available", "input": call_input}
                self._calls[call_id] = call
                self._parts.append(call)
            case {"type": "tool-output-available", "toolCallId": str(call_id), "output": output}:
                self._change(call_id, {"state": "output-available", "output": output})
            case {"type": "tool-output-error", "toolCallId": str(call_id), "errorText": text}:
                self._change(call_id, {"state": "output-error", "errorText": text})
            case {"type": "tool-approval-request", "toolCallId": str(call_id), "approvalId": key}:
                self._change(call_id, {"state": "approval-requested", "approval": {"id": key}})
            case {"type": str(kind)} if kind.startswith("data-"):
                self._parts.append(chunk)
            case {"type": "start" | "finish", "messageMetadata": metadata}:
                self._metadata = {**self._metadata, **metadata}
            case _:
                pass

    def _change(self, call_id: str, fields: Json) -> None:
        if call_id in self._calls:
            self._calls[call_id].update(fields)
