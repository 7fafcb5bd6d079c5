"""JSON envelopes, small enough for any transport and each understandable alone.

A frame is one JSON object of at most 2048 bytes:

    type      meta_init, thinking, text, citation, tool_call, server_tool_call, tool_result, tool_result_image,
              server_tool_result, awaiting_frontend_tools, meta_files, error or meta_final
    agent     the name of the agent it comes from
    run_id    the run, since members of a team may speak at the same time
    step      the step of that run
    final     whether this is the last frame of its item; a long item has several
    delta     the next part of the item's content, never cut inside a character

The deltas of an item, put together, are

    meta_init                     {"thread_id", "run_id", "model"} and, on demand, "user_message" and "messages"
    thinking, text, error         plain text
    citation                      the citation as the provider gives it
    tool_call, server_tool_call   the input of the call; each frame has the call's `id` and `name`
    tool_result                   plain text, or JSON where the result is no text; `id`, `name`, `is_error`
    tool_result_image             base64 or a URL, as `encoding` says; `id`, `name`, `media_type`
    server_tool_result            the content of the block; `id` of the call, `name` is the block's type
    awaiting_frontend_tools       [{"tool_use_id", "name", "input"}]: what the browser must execute
    meta_files                    [{"file_id", "filename", "storage_path", "size", "mime_type", "step"}]
    meta_final                    the result of the run, or {"status": "waiting", "waiting_for"} of one that pauses

where everything but plain text is JSON as text. An `error` has `error_type`. Text and thinking grow frame by frame; the
frame that ends them may have an empty delta. Tool results, the history in meta_init and meta_final are there on demand
only (stream_meta_history_and_tool_results); in all JSON a label with their size stands for base64 payloads.
"""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from lockstitch.records import Json, codec
from lockstitch.runtime.event import Event
from lockstitch.runtime.formatters.item import BREAKS, Fields, Item, items_of

MOST_BYTES: Final = 2048
_LONGEST_FIELD: Final = 64
"""Characters of a field where the fields alone would fill a frame."""


class JsonFormatter:
    """One stream of envelopes."""

    name = "json"

    def __init__(self, detail: bool = False) -> None:
        self._detail = detail
        self._open: dict[UUID, Json] = {}
        """By run, the envelope of a text that may go on."""

    def feed(self, event: Event) -> list[str]:
        frames = self._close(event.run_id) if event.type in BREAKS else []
        for item in items_of(event, self._detail):
            envelope = _envelope(event, item)
            if self._open.get(event.run_id) != envelope:
                frames += self._close(event.run_id)
            if item.open:
                self._open[event.run_id] = envelope
            frames += _split(envelope, _clean(item.content), final=not item.open)
        return frames

    def end(self) -> list[str]:
        return [frame for run_id in list(self._open) for frame in self._close(run_id)]

    def _close(self, run_id: UUID) -> list[str]:
        envelope = self._open.pop(run_id, None)
        return list(_split(envelope, "", final=True)) if envelope else []


def _envelope(event: Event, item: Item) -> Json:
    """All but `final` and `delta`."""
    fields: Fields = {"agent": event.agent, **item.fields}
    fields = {name: _clean(value) if isinstance(value, str) else value for name, value in fields.items()}
    if len(codec.dumps(fields)) > MOST_BYTES // 2:
        fields = {name: value[:_LONGEST_FIELD] if isinstance(value, str) else value for name, value in fields.items()}
    agent = fields.pop("agent")
    return {"type": item.type, "agent": agent, "run_id": str(event.run_id), "step": event.step, **fields}


def _split(envelope: Json, content: str, *, final: bool) -> Iterator[str]:
    room = MOST_BYTES - len(codec.dumps({**envelope, "final": False, "delta": ""}))
    place = 0
    while True:
        part = content[place : place + room]
        while (size := len(codec.dumps(part)) - 2) > room:
            part = part[: max(1, len(part) * room // size)]
        place += len(part)
        last = place >= len(content)
        yield codec.dumps({**envelope, "final": final and last, "delta": part}).decode()
        if last:
            return


def _clean(text: str) -> str:
    """Text that can be written: a lone surrogate, as a stream may cut one, is none."""
    return text if text.isascii() else text.encode(errors="replace").decode()
