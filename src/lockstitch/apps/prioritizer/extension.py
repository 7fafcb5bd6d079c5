"""What the prioritiser adds to a store."""

from datetime import datetime
from typing import Final

from lockstitch.apps.prioritizer.records import KINDS, Document, Outcome, TaskRelationship
from lockstitch.apps.prioritizer.retention import expire
from lockstitch.backend import Find, Where
from lockstitch.extension import Extension
from lockstitch.store import Store


async def _purging(store: Store, _before: datetime | None, user_id: str | None) -> None:
    """Remove reasoning that has expired, or whatever is a user's."""
    if user_id is None:
        while await expire(store, EXTENSION):
            pass
        return
    theirs = (Where("project", "=", store.project), Where("user_id", "=", user_id))
    for kind in (TaskRelationship, Document, Outcome):
        await store.backend.delete(Find(kind, theirs))


EXTENSION: Final = Extension("prioritizer", "lockstitch.apps.prioritizer.sql", kinds=KINDS, purging=_purging)
