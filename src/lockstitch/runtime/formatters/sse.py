"""Server-sent events: a stream of frames as `data:` lines, with exactly one [DONE] at its end."""

import logging
import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import replace
from typing import Final
from uuid import UUID

from lockstitch.errors import LockstitchError
from lockstitch.runtime.event import Event
from lockstitch.runtime.formatter import Formatter
from lockstitch.runtime.formatters.json import JsonFormatter

DONE: Final = "data: [DONE]\n\n"

_log = logging.getLogger("lockstitch.sse")
_NOBODY: Final = UUID(int=0)
_LINE: Final = re.compile(r"\r\n|\r|\n")


def encode(frame: str) -> str:
    """One event of the transport; a reader puts the lines of its data together again with newlines."""
    return "".join(f"data: {line}\n" for line in _LINE.split(frame)) + "\n"


async def stream(events: AsyncIterable[Event], formatter: Formatter) -> AsyncIterator[str]:
    """`events` in this format, then [DONE]. A run that fails, or a stream that breaks, gives one frame of an error."""
    last = Event("started", _NOBODY, _NOBODY, "")
    failed = False
    try:
        async for last in events:
            for frame in _frames(last, formatter):
                yield encode(frame)
            failed = failed or last.type == "failed"
    except Exception as exc:  # the edge of a request: the reader is told, and the stream ends in order
        problem = {"error": "The stream broke off.", "type": "error"}
        if isinstance(exc, LockstitchError):
            problem = {"error": str(exc), "type": type(exc).__name__}
        else:
            # What broke may tell more than a reader should know.
            _log.exception("A stream broke off")
        if not failed:
            for frame in _frames(replace(last, type="failed", data=problem), formatter):
                yield encode(frame)
    for frame in formatter.end():
        yield encode(frame)
    yield DONE


def _frames(event: Event, formatter: Formatter) -> list[str]:
    frames = formatter.feed(event)
    if event.type != "failed" or frames:
        return frames
    # A format that has no word for it still must not end as if all were well.
    return JsonFormatter().feed(event)
