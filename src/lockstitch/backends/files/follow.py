"""Following the journal: which threads move, in whichever process."""

import os
import time
from dataclasses import dataclass
from uuid import UUID

from lockstitch.backend import Sighting
from lockstitch.backends.files import layout, tables
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.guard import Guard
from lockstitch.backends.files.operations import Put
from lockstitch.records import as_id, codec

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


def look(guard: Guard, place: Place) -> tuple[list[Sighting], Place]:
    """The threads that have moved since, and the new place. Costs next to nothing when none has."""
    if guard.journal.raw_mark() == place.mark:
        return [], place
    return guard.read(lambda folder: _follow(guard, folder, place))


def _follow(guard: Guard, folder: Folder, place: Place) -> tuple[list[Sighting], Place]:
    now = here(guard)
    moved: dict[UUID, int] = {}
    emptied = now.generation != place.generation or now.end < place.end
    if emptied:
        # What stood behind our place is gone from the journal, but all of it changed a head since we looked.
        moved |= _changed_since(folder, place.looked_at - _SLACK)
    for entry in guard.journal.entries(0 if emptied else place.end):
        for operation in entry.operations:
            if isinstance(operation, Put) and operation.path.startswith(f"{layout.HEADS}/"):
                head = codec.loads(operation.text)
                moved[UUID(head["id"])] = head["position"]
    return [Sighting(thread_id, position) for thread_id, position in moved.items()], now


def _changed_since(folder: Folder, moment: float) -> dict[UUID, int]:
    moved: dict[UUID, int] = {}
    for name in folder.names(layout.HEADS):
        path = f"{layout.HEADS}/{name}"
        thread_id = as_id(name.removesuffix(".json"))
        if thread_id is not None and os.stat(folder.root / path).st_mtime >= moment:
            head = tables.head(folder, thread_id)
            if head is not None:
                moved[thread_id] = head.position
    return moved
