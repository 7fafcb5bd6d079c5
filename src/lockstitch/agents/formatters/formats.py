"""`JsonFormatter`, `XmlFormatter` and `RawFormatter`. `stream` sends frames as server-sent events.

A frame of `JsonFormatter` is one JSON object of at most 2048 bytes:

    type      meta_init, thinking, text, citation, tool_call, server_tool_call, tool_result, tool_result_image,
              server_tool_result, awaiting_frontend_tools, meta_files, error or meta_final
    agent     the name of the agent
    run_id    the run; members of a team may stream at the same time
    step      the step of that run
    final     true in the last frame of an item; a long item has several frames
    delta     the next part of the content, never cut inside a character

The joined deltas of an item are

    meta_init                     {"thread_id", "run_id", "model"} and, on demand, "user_message" and "messages"
    thinking, text, error         plain text
    citation                      the citation of the provider
    tool_call, server_tool_call   the input of the call; each frame has the call's `id` and `name`
    tool_result                   plain text, or JSON if the result is not text; `id`, `name`, `is_error`
    tool_result_image             base64 or a URL, see `encoding`; `id`, `name`, `media_type`
    server_tool_result            the content of the block; `id` of the call, `name` is the block's type
    awaiting_frontend_tools       [{"tool_use_id", "name", "input"}], the calls that the browser must execute
    meta_files                    [{"file_id", "filename", "storage_path", "size", "mime_type", "step"}]
    meta_final                    the result of the run; {"status": "waiting", "waiting_for"} if it pauses

Everything except plain text is JSON as text. An `error` has `error_type`. Text and thinking grow frame by frame; their
last frame may have an empty delta. Tool results, and the history in meta_init and meta_final, are sent only with
stream_meta_history_and_tool_results. In all JSON, a label with the size replaces a base64 payload.

`XmlFormatter` writes one element per item:

    <meta_init agent="…" run_id="…" step="0">…</meta_init>
    <content-block-text …>…</content-block-text>
    <awaiting_frontend_tools …>…</awaiting_frontend_tools>
    <meta_files …>…</meta_files>
    <meta_final …>…</meta_final>

The elements of thinking, citation, tool_call, server_tool_call, tool_result, tool_result_image, server_tool_result and
error also have the prefix content-block-.

Every element has agent, run_id and step, and the other fields of its JSON frame (id, name, …). The content is the same
as in JSON, in CDATA sections. U+FFFD replaces characters that XML does not allow. The same items are left out without
stream_meta_history_and_tool_results.
"""

import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from dataclasses import replace
from typing import Final
from uuid import UUID

from lockstitch.agents.formatters.ag_ui import AGUIFormatter
from lockstitch.agents.formatters.formatter import BREAKS, Fields, FormatItem, Formatter, items_of
from lockstitch.engine.events import Event
from lockstitch.errors import LockstitchError
from lockstitch.model import Json, codec

MAX_BYTES: Final = 2048
_MAX_FIELD: Final = 64
"""Maximum characters of a field if the fields alone would fill a frame."""


class JsonFormatter:
    """Formats one stream as JSON objects."""

    name = "json"

    def __init__(self, detail: bool = False) -> None:
        self._detail = detail
        self._open: dict[UUID, Json] = {}
        """Envelopes of open texts, by run."""

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


def _envelope(event: Event, item: FormatItem) -> Json:
    """Return the fields of a frame except `final` and `delta`."""
    fields: Fields = {"agent": event.agent, **item.fields}
    fields = {name: _clean(value) if isinstance(value, str) else value for name, value in fields.items()}
    if len(codec.dumps(fields)) > MAX_BYTES // 2:
        fields = {name: value[:_MAX_FIELD] if isinstance(value, str) else value for name, value in fields.items()}
    agent = fields.pop("agent")
    return {"type": item.type, "agent": agent, "run_id": str(event.run_id), "step": event.step, **fields}


def _split(envelope: Json, content: str, *, final: bool) -> Iterator[str]:
    room = MAX_BYTES - len(codec.dumps({**envelope, "final": False, "delta": ""}))
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
    """Return the text without single surrogates, which a stream may contain and UTF-8 cannot encode."""
    return text if text.isascii() else text.encode(errors="replace").decode()


_ILLEGAL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)
"""Characters that the value of an attribute cannot contain, and those that a parser would replace by blanks."""
_PLAIN: Final = frozenset({"meta_init", "awaiting_frontend_tools", "meta_files", "meta_final"})


class XmlFormatter:
    """Formats one stream as XML elements. Elements of two parallel runs alternate."""

    name = "xml"

    def __init__(self, detail: bool = False) -> None:
        self._detail = detail
        self._open = ""
        """Start tag of the open text, or empty."""

    def feed(self, event: Event) -> list[str]:
        frames: list[str] = self.end() if event.type in BREAKS else []
        for item in items_of(event, self._detail):
            start = _start(event, item)
            if self._open == start:
                frames.append(_cdata(item.content))
                continue
            frames += self.end()
            if item.open:
                self._open = start
                frames.append(start + _cdata(item.content))
            else:
                frames.append(start + _cdata(item.content) + _end(start))
        return frames

    def end(self) -> list[str]:
        start, self._open = self._open, ""
        return [_end(start)] if start else []


def _start(event: Event, item: FormatItem) -> str:
    tag = item.type if item.type in _PLAIN else f"content-block-{item.type}"
    attributes: Fields = {"agent": event.agent, "run_id": str(event.run_id), "step": str(event.step), **item.fields}
    written = "".join(f" {name}={_quoted(value)}" for name, value in attributes.items())
    return f"<{tag}{written}>"


def _quoted(value: str | bool) -> str:
    text = _legal(value).translate(_ESCAPES) if isinstance(value, str) else str(value).lower()
    return f'"{text}"'


def _end(start: str) -> str:
    return f"</{start[1:].partition(' ')[0]}>"


def _cdata(text: str) -> str:
    # A parser reads a carriage return as a newline, and ]]> as the end of the section.
    safe = _legal(text).replace("]]>", "]]]]><![CDATA[>").replace("\r", "]]>&#13;<![CDATA[")
    return f"<![CDATA[{safe}]]>"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


DONE: Final = "data: [DONE]\n\n"

_log = logging.getLogger("lockstitch.sse")
_NO_ID: Final = UUID(int=0)
_LINE: Final = re.compile(r"\r\n|\r|\n")


def encode(frame: str) -> str:
    """Return a frame as one server-sent event. The reader joins its data lines with newlines."""
    return "".join(f"data: {line}\n" for line in _LINE.split(frame)) + "\n"


async def stream(events: AsyncIterable[Event], formatter: Formatter) -> AsyncIterator[str]:
    """Yield the events in this format, then [DONE]. A failed run or an exception yields one error frame.

    AG-UI has no [DONE].
    """
    last = Event("started", _NO_ID, _NO_ID, "")
    failed = False
    try:
        async for last in events:
            for frame in _frames(last, formatter):
                yield encode(frame)
            failed = failed or last.type == "failed"
    except Exception as exc:  # report any error to the reader and end the stream properly
        problem = {"error": "The stream was interrupted.", "type": "error"}
        if isinstance(exc, LockstitchError):
            problem = {"error": str(exc), "type": exc.wire_name}
        else:
            # The message may contain internal details, so log it instead of sending it.
            _log.exception("Stream failed")
        if not failed:
            for frame in _frames(replace(last, type="failed", data=problem), formatter):
                yield encode(frame)
    for frame in formatter.end():
        yield encode(frame)
    if formatter.name != AGUIFormatter.name:
        yield DONE


def _frames(event: Event, formatter: Formatter) -> list[str]:
    frames = formatter.feed(event)
    if event.type != "failed" or frames:
        return frames
    # A format without error frames must not look successful.
    return JsonFormatter().feed(event)


class RawFormatter:
    """Passes the raw events of the provider through unchanged, and nothing else."""

    name = "raw"

    def __init__(self, detail: bool = False) -> None:
        # Raw events have no details to show or hide.
        del detail

    def feed(self, event: Event) -> list[str]:
        return [codec.dumps(event.data).decode()] if event.type == "raw" else []

    def end(self) -> list[str]:
        return []
