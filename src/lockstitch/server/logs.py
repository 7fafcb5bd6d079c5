"""Logs: one JSON object a line, with ids of threads and runs as fields, for whoever has to find something in them."""

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_FIELDS: Final = "fields"


def fields(**named: Any) -> dict[str, Any]:
    """What a log call passes as `extra` so that its line has these fields."""
    return {_FIELDS: named}


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to(stream: TextIO) -> Generator[None]:
    """Have everything that Lockstitch logs go there, a line each, for as long as this is open."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("lockstitch")
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)
