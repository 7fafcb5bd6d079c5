"""Following the journal: which threads move, in whichever process."""

import os
import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lockstitch.backend import WORK, Sighting
from lockstitch.backends.files import heads, layout
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.guard import Guard
from lockstitch.backends.files.operations import Put
from lockstitch.records import Json, as_id, codec, format_time

POLL = 0.05
"""Seconds between two looks at whether another process has committed."""

_SLACK = 1.0
"""Seconds by which the times of files may differ from the clock."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far somebody has followed the journal."""

    mark: bytes
    generation: int
    end: int
    looked_at: float


def here(guard: Guard) -> Place:
    """The place from which to follow what happens from now on."""
    raw, mark = guard.journal.raw_mark(), guard.journal.mark()
    return Place(raw, mark.generation, mark.applied, time.time())


def look(guard: Guard, place: Place, now: datetime) -> tuple[list[Sighting], Place]:
    """The threads that have moved since, WORK if one of them is ready now, and the new place.

    Costs next to nothing when none has moved.
    """
    if guard.journal.raw_mark() == place.mark:
        return [], place
    return guard.read(lambda folder: _follow(guard, folder, place, format_time(now)))


def _follow(guard: Guard, folder: Folder, place: Place, now: str) -> tuple[list[Sighting], Place]:
    end = here(guard)
    moved: dict[str, Json] = {}
    emptied = end.generation != place.generation or end.end < place.end
    if emptied:
        # What stood behind our place is gone from the journal, but all of it changed a head since we looked.
        moved |= _changed_since(folder, place.looked_at - _SLACK)
    for entry in guard.journal.entries(0 if emptied else place.end):
        for operation in entry.operations:
            if isinstance(operation, Put) and operation.path.startswith(f"{layout.HEADS}/"):
                head = codec.loads(operation.text)
                moved[head["id"]] = head
    sightings = [Sighting(UUID(head["id"]), head["position"]) for head in moved.values()]
    if any(heads.is_ready(head, now) for head in moved.values()):
        sightings.append(WORK)
    return sightings, end


def _changed_since(folder: Folder, moment: float) -> dict[str, Json]:
    moved: dict[str, Json] = {}
    for name in folder.names(layout.HEADS):
        path = f"{layout.HEADS}/{name}"
        thread_id = as_id(name.removesuffix(".json"))
        if thread_id is not None and os.stat(folder.root / path).st_mtime >= moment:
            head = folder.document(path)
            if head is not None:
                moved[head["id"]] = head
    return moved
