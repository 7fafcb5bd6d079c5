"""What a long-running process complains of, on stderr: a line each, and the same not again and again."""

import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from lockstitch.cli import streams
from lockstitch.cli.failure import DEBUG
from lockstitch.cli.text import one_line
from lockstitch.records import codec

SILENT: Final = 60.0
"""Seconds in which nothing is said twice: a store that is away is asked again every second."""


@contextmanager
def complaints(*, as_json: bool) -> Generator[None, None, None]:
    """Show the warnings of Lockstitch while this lasts."""
    log, handler = logging.getLogger("lockstitch"), _Lines(as_json)
    propagated = log.propagate
    log.addHandler(handler)
    # The root's handlers are the app's own; what they would print is on stderr already.
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagated


class _Lines(logging.Handler):
    def __init__(self, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        said = one_line(record.getMessage())
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None:
            said = f"{said}: {type(problem).__name__}: {one_line(str(problem))}"
        now = time.monotonic()
        if now - self._said.get(said, -SILENT) < SILENT:
            return
        self._said = {text: at for text, at in self._said.items() if now - at < SILENT} | {said: now}
        if self._as_json:
            streams.say(codec.dumps({"level": record.levelname.lower(), "message": said}).decode())
        else:
            streams.say(f"lockstitch: {said}")
        if problem is not None and os.environ.get(DEBUG):
            streams.say(logging.Formatter().formatException((type(problem), problem, problem.__traceback__)))
