"""Identifiers: UUIDv7 for new records, UUIDv5 for records that another system named."""

import os
import threading
import time
from hashlib import sha1
from typing import Final
from uuid import UUID, SafeUUID

_NAMESPACE = UUID("6f1d3c52-6c6f-5b73-9e2a-1c0c57a7c400")
_VERSION_5 = 5 << 76 | 2 << 62
_FREE = ~(0xF << 76 | 0x3 << 62)
# Python 3.11 looks up a member of an enumeration with a function in Python.
_SAFETY: Final = SafeUUID.unknown


class _Ticks:
    """Counter in units of 244 ns. No value repeats within a process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        # Also called after a fork: a child must neither inherit a locked lock nor continue its parent's count.
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        now = time.time_ns() * 4096 // 1_000_000
        with self._lock:
            self._last = now = max(now, self._last + 1)
        return now


_ticks = _Ticks()
os.register_at_fork(after_in_child=_ticks.renew)


def new_id() -> UUID:
    """Return a new UUIDv7: ordered by time within a process, unique across threads, processes and forks.

    The 12 bits after the millisecond are its fraction, raised where two ids would be equal. The other 62 bits come from
    the system's random source at every call, so a forked process cannot repeat an id of its parent.
    """
    now = _ticks.next()
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return _uuid((now >> 12) << 80 | 7 << 76 | (now & 0xFFF) << 64 | 2 << 62 | random)


def _uuid(number: int) -> UUID:
    """Return the UUID of a number. The constructor checks its arguments, which takes longer than the rest."""
    value = object.__new__(UUID)
    object.__setattr__(value, "int", number)
    object.__setattr__(value, "is_safe", _SAFETY)
    return value


def foreign_id(project: str, source: str, name: str) -> UUID:
    """Return the UUIDv5 of a record that another system named.

    The same project, source and name always give the same id.

    Args:
        project: Project of the record.
        source: Name of the other system.
        name: Id of the record in that system.
    """
    # The same as uuid.uuid5, without hashing the namespace each time: one trace can name thousands of spans.
    text = "\x1f".join((project, source, name)).encode()
    digest = int.from_bytes(sha1(_NAMESPACE.bytes + text, usedforsecurity=False).digest()[:16], "big")
    return _uuid(digest & _FREE | _VERSION_5)


SHORT_ID: Final = 8
"""Length of a short id."""


def short_id(value: UUID | str) -> str:
    """Return the short form of an id for people: its last characters, which are random.

    The first characters of a UUIDv7 are its time, so ids that were created together start with the same characters.

    Args:
        value: Id.
    """
    return str(value)[-SHORT_ID:]


def as_id(text: str | UUID) -> UUID | None:
    """Return the UUID if a text is one in canonical form, else None. The text is then a key of the caller.

    Args:
        text: Id or key.
    """
    if isinstance(text, UUID):
        return text
    if len(text) != 36 or text[8] != "-" or text[23] != "-":
        return None
    try:
        match_id = UUID(text)
    except ValueError:
        return None
    return match_id if str(match_id) == text.lower() else None
