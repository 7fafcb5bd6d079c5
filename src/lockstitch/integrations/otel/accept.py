"""`screen`: check an OTLP request before it is accepted: count readable spans and redact values."""

import gzip
import io
from typing import NamedTuple

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.decode import checked
from lockstitch.integrations.otel.frames import Frame, frames
from lockstitch.integrations.otel.log_records import LogRecord
from lockstitch.integrations.otel.logs import read_records, stored_body
from lockstitch.integrations.otel.redaction import redacted
from lockstitch.integrations.spans.batch import may_hide
from lockstitch.integrations.spans.budget import Budget
from lockstitch.integrations.spans.compression import GZIP_MAGIC, ZSTD_MAGIC

_SHOWN = 5


class Screened(NamedTuple):
    """The result of `screen`."""

    body: bytes
    """The body to store. The same object if there is nothing to redact."""
    accepted: int
    rejected: int
    """Number of spans, or larger parts, that cannot be read."""
    problems: list[str]
    """The first errors."""

    @property
    def malformed(self) -> bool:
        """True if no part of the request can be read."""
        return bool(self.rejected) and not self.accepted


def screen(body: bytes, budget: Budget, *, keep_secrets: bool, hide: frozenset[str] = frozenset()) -> Screened:
    """Read all spans of a body, and redact the values that the record would not store.

    If a value is redacted, unreadable parts are omitted from the new body, because their content is unknown. Raises
    `BodyTooExpensive` if the body exceeds the budget.
    """
    accepted = rejected = 0
    problems: list[str] = []
    parts: list[bytes] = []
    hidden = False
    with budget.running():
        for frame in frames(io.BytesIO(body), "the body", budget=budget):
            result = [frame] if isinstance(frame, Unreadable) else checked(frame)
            read = unread = False
            for span in result:
                budget.item()
                if isinstance(span, Unreadable):
                    rejected, unread = rejected + 1, True
                    problems += [str(span)] if len(problems) < _SHOWN else []
                else:
                    accepted += 1
                    read = True
            if isinstance(frame, Frame) and not keep_secrets and (read or not unread):
                changed = _redacted(frame, hide, budget) if read else None
                hidden |= changed is not None
                parts.append(changed if changed is not None else _request_body(frame))
    new = b"".join(parts) if hidden else body
    if hidden and body.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        # Compress again, so that the size stays similar.
        new = gzip.compress(new, 1)
    return Screened(new, accepted, rejected, problems)


def screen_logs(body: bytes, budget: Budget, *, keep_secrets: bool, hide: frozenset[str] = frozenset()) -> Screened:
    """Read all log records of a body. The new body has only those with a meaning, redacted, and may be empty.

    Raises `BodyTooExpensive` if the body exceeds the budget.
    """
    records: list[LogRecord] = []
    problems: list[str] = []
    total = 0
    with budget.running():
        for record in read_records(body, "the body", budget):
            budget.item()
            if isinstance(record, Unreadable):
                problems.append(str(record))
                continue
            total += 1
            if record.is_meaningful:
                records.append(record if keep_secrets else record.redacted(hide))
    return Screened(stored_body(records), total, len(problems), problems[:_SHOWN])


def _redacted(frame: Frame, hide: frozenset[str], budget: Budget) -> bytes | None:
    """Return the record with redacted values, or None if there is nothing to redact."""
    if not may_hide(frame.body, hide, budget.pause):
        return None
    if frame.form == "json":
        return redacted(frame, hide, budget.pause)
    # The package that reads protobuf is an optional extra.
    from lockstitch.integrations.otel import protobuf_redaction

    return protobuf_redaction.redacted(frame, hide, budget.pause)


def _request_body(frame: Frame) -> bytes:
    """Return a record in the form of a request body."""
    if frame.form == "json":
        return frame.body if frame.body.endswith(b"\n") else frame.body + b"\n"
    if frame.form == "request":
        return frame.body
    return b"\x0a" + _varint(len(frame.body)) + frame.body


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
