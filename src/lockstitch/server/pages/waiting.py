"""Who waits for a person: found first, longest first, with what it waits for and the act that ends it."""

from datetime import datetime
from typing import Final

from lockstitch.records import Json, Thread, parse_time
from lockstitch.records.thread import personal_waits
from lockstitch.store import Store

MOST: Final = 200
"""Threads that are shown as waiting for a person, the longest first."""


def person_waits_of(thread: Thread) -> list[Json]:
    """What a person can end of what a thread waits for, the oldest first."""
    return personal_waits(thread.waiting_for) if thread.status == "waiting" else []


def since_of(wait: Json) -> datetime | None:
    """Since when somebody waits; None where it is not told."""
    try:
        return parse_time(str(wait.get("since")))
    except ValueError:
        return None


async def needing(store: Store) -> tuple[list[Thread], bool]:
    """The threads that wait for a person, longest first; whether there are more."""
    found = await store.asking(limit=MOST + 1)
    return found[:MOST], len(found) > MOST
