"""The tables of ADK in a store: sessions, and the values that sessions share."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from lockstitch.extension import Extension
from lockstitch.model import Json, Record
from lockstitch.model.record import Count, Number, Text
from lockstitch.store import Store, Where


class StoredSession(Record):
    """A session, without its events. They are in the log of its thread."""

    table: ClassVar[str] = "adk_sessions"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "app_name", "user_id", "session_id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Text
    app_name: Text
    user_id: Text
    session_id: Text
    thread_id: UUID
    state: Json
    """The state of the session, without the values that sessions share."""
    update_time: Number
    """Timestamp of the last event, in seconds."""
    position: Count = 0
    """Position of the last stitch of the last event. It changes with each event."""


class SharedValue(Record):
    """A value that all sessions of an app share, or those of one user of an app."""

    table: ClassVar[str] = "adk_values"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "app_name", "user_id", "key")

    project: Text
    app_name: Text
    user_id: Text
    """Id of the user. Empty for a value of the app."""
    key: Text
    """Key in the state of a session, with its prefix `app:` or `user:`."""
    value: Json
    """The value, as {"value": …}."""


async def _purge(store: Store, _before: datetime | None, user_id: str | None) -> None:
    """Delete the values of a user."""
    if user_id is not None:
        where = (Where("project", "=", store.project), Where("user_id", "=", user_id), Where("key", ">=", "user:"))
        await store.table(SharedValue).delete(*where)


EXTENSION: Final = Extension(
    "adk", "lockstitch.integrations.adk.tables", kinds=(StoredSession, SharedValue), on_purge=_purge
)
"""The tables, for `Store.extend`."""
