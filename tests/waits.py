"""Entries of `Thread.waiting_for` as they are stored, also those that the package itself never writes."""

from datetime import datetime
from typing import Any

from lockstitch.model import Json, format_time


def waiting(kind: str, since: datetime, id: str | None = None, until: datetime | None = None, **more: Any) -> Json:
    """Return one entry of `waiting_for`."""
    return {
        "kind": kind,
        "id": id,
        "since": format_time(since),
        "until": format_time(until) if until else None,
        **more,
    }
