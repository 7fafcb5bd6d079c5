"""The tables of Agno in a store: sessions, runs, and rows of other kinds."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from lockstitch.extension import Extension
from lockstitch.model import Json, Record
from lockstitch.model.record import Count, Text
from lockstitch.store import Store, Where


class StoredSession(Record):
    """A session of an agent, a team or a workflow, without its runs."""

    table: ClassVar[str] = "agno_db_sessions"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "session_id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Text
    session_id: Text
    thread_id: UUID
    session_type: Text
    """`agent`, `team` or `workflow`."""
    agent_id: Text | None = None
    team_id: Text | None = None
    workflow_id: Text | None = None
    user_id: Text | None = None
    created_at: Count
    """Creation time in seconds since 1970, as in Agno."""
    updated_at: Count
    content: Json
    """The data of the session and of its component, its metadata and its summary."""
    deletions: Count = 0
    """Number of times that runs of the session were deleted."""


class StoredRun(Record):
    """A run of a session. Its messages are also in the log of the thread."""

    table: ClassVar[str] = "agno_db_runs"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "run_id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Text
    run_id: Text
    thread_id: UUID
    session_id: Text
    run_index: Count
    """Number of the run in its session."""
    run_type: Text
    agent_id: Text | None = None
    team_id: Text | None = None
    workflow_id: Text | None = None
    user_id: Text | None = None
    parent_run_id: Text | None = None
    """Id of the run of the team or workflow that started this one."""
    status: Text | None = None
    model: Text | None = None
    model_provider: Text | None = None
    created_at: Count
    updated_at: Count
    position: Count
    """Position of the last stitch of the last write. It rises with each write to a run of the session."""
    record_id: UUID
    """Id of the run in the thread."""
    recorded: Json
    """Ids of the messages that the log contains, as {"messages": […]}."""
    content: bytes
    """The run as JSON, compressed."""


class StoredRow(Record):
    """A row of another table of Agno, such as a trace or a learning."""

    table: ClassVar[str] = "agno_db_rows"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "kind", "id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Text
    kind: Text
    """Table of Agno, in the singular."""
    id: Text
    thread_id: UUID | None = None
    """Thread of the session with which the row is deleted."""
    parent_id: Text | None = None
    """Id of the row or of the session that this row belongs to."""
    user_id: Text | None = None
    created_at: Text
    """Time by which the rows of this kind are sorted: an ISO time, or seconds with leading zeros."""
    version: Count = 1
    """Number of the last write, which `Rows.change` compares."""
    content: Json
    """The row."""


async def _purge(store: Store, _before: datetime | None, user_id: str | None) -> None:
    """Delete the rows of a user."""
    if user_id is not None:
        where = (Where("project", "=", store.project), Where("user_id", "=", user_id))
        await store.table(StoredRow).delete(*where)


EXTENSION: Final = Extension(
    "agno", "lockstitch.integrations.agno.tables", kinds=(StoredSession, StoredRun, StoredRow), on_purge=_purge
)
"""The tables, for `Store.extend`."""
