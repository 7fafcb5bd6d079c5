"""`SessionMethods`: the methods of Agno's databases about sessions and runs."""

# Agno is large, so it is not a development dependency, and the type checker does not know its classes.
# pyright: basic, reportMissingImports=false

import time
from collections.abc import Sequence
from typing import Any

from agno.db.base import SessionType
from agno.db.utils import (
    HISTORY_SKIP_STATUSES,
    deserialize_run,
    deserialize_session,
    deserialize_sessions,
    get_run_type,
    validate_pagination,
)
from agno.run.base import RunStatus
from agno.session import TeamSession, WorkflowSession

from lockstitch.integrations.agno.objects import history_runs, plain
from lockstitch.integrations.agno.records import StoredRun, StoredSession
from lockstitch.integrations.agno.rows import Rows
from lockstitch.integrations.agno.sessions import RunText, SessionLog, of_component, text_of
from lockstitch.model import Json, codec
from lockstitch.store import Condition, Store, Where

_SESSION_ORDERS = ("session_id", "created_at", "updated_at", "user_id", "agent_id", "team_id", "workflow_id")
_RUN_ORDERS = ("run_id", "run_index", "created_at", "updated_at", "status", "user_id", "agent_id", "team_id")


class SessionMethods:
    """Sessions and runs. The methods have the names, parameters and results of `agno.db.base.AsyncBaseDb`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = SessionLog(store)
        self._versions = Rows(store, "schema_version")

    # Tables

    async def table_exists(self, table_name: str) -> bool:
        """Return True: the tables are those of the store."""
        return True

    async def get_latest_schema_version(self, table_name: str) -> str:
        """Return the version that `upsert_schema_version` stored, or 2.0.0."""
        row = await self._versions.get(table_name)
        return "2.0.0" if row is None else row["version"]

    async def upsert_schema_version(self, table_name: str, version: str) -> None:
        """Store the version of a table."""
        await self._versions.put([(table_name, {"version": version}, {"created_at": ""})])

    # Sessions

    async def upsert_session(self, session: Any, deserialize: bool | None = True) -> Any:
        """Store a session without its runs. Return None if it belongs to another user."""
        stored = await self._log.put(_values(session))
        return None if stored is None else _returned(stored, session, deserialize)

    async def upsert_sessions(
        self, sessions: Sequence[Any], deserialize: bool | None = True, preserve_updated_at: bool = False
    ) -> list[Any]:
        """Store sessions without their runs. Return those that belong to no other user."""
        times = [_seconds(session.updated_at) if preserve_updated_at else None for session in sessions]
        stored = await self._log.put_all([*map(_values, sessions)], times)
        return [
            _returned(row, session, deserialize)
            for session, row in zip(sessions, stored, strict=True)
            if row is not None
        ]

    async def get_session(
        self,
        session_id: str,
        session_type: SessionType | None = None,
        user_id: str | None = None,
        deserialize: bool | None = True,
        runs_limit: int | None = None,
    ) -> Any:
        """Return a session with its runs: all, or the last `runs_limit` that are in the context."""
        stored = await self._log.get(session_id, user_id)
        if stored is None:
            return None
        row = _row(stored)
        runs = await self._log.runs(stored)
        if runs_limit is not None:
            runs = [run for run in runs if not run.is_nested and run.status not in HISTORY_SKIP_STATUSES]
            runs = runs[-runs_limit:] if runs_limit else []
        elif deserialize and stored.session_type == "agent" and session_type in (None, SessionType.AGENT):
            session = deserialize_session(session_type, {**row, "runs": None})
            session.runs = history_runs(runs)
            return session
        row["runs"] = _values_of(runs)
        return deserialize_session(session_type, row) if deserialize else row

    async def get_sessions(
        self,
        session_type: SessionType | None = None,
        user_id: str | None = None,
        component_id: str | None = None,
        session_name: str | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
        include_runs: bool = True,
    ) -> Any:
        """Return the sessions that meet all conditions. Without `deserialize`, also their number."""
        validate_pagination(limit, page)
        kind = None if session_type is None else SessionType(session_type).value
        where: list[Condition] = [] if kind is None else [Where("session_type", "=", kind)]
        where += [] if user_id is None else [Where("user_id", "=", user_id)]
        where += [] if start_timestamp is None else [Where("created_at", ">=", start_timestamp)]
        where += [] if end_timestamp is None else [Where("created_at", "<=", end_timestamp)]
        if component_id is not None:
            where.append(of_component(component_id, kind))
        stored, total = await self._log.find(
            *where,
            accept=None if session_name is None else lambda row: session_name.lower() in _name(row).lower(),
            order=_order(sort_by, sort_order, _SESSION_ORDERS, ("created_at", "session_id")),
            limit=limit,
            page=page,
        )
        rows = [_row(session) for session in stored]
        for session, row in zip(stored, rows, strict=True):
            row["runs"] = _values_of(await self._log.runs(session)) if include_runs else None
        return deserialize_sessions(session_type, rows) if deserialize else (rows, total)

    async def rename_session(
        self,
        session_id: str,
        session_type: SessionType | None,
        session_name: str,
        user_id: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """Set the name of a session. It is the title of the thread, too."""
        session = await self.get_session(session_id, session_type, user_id)
        if session is None:
            return None
        session.session_data = {**(session.session_data or {}), "session_name": session_name}
        return await self.upsert_session(session, deserialize=deserialize)

    async def delete_session(self, session_id: str, user_id: str | None = None) -> bool:
        """Delete a session with its thread."""
        return await self._log.delete(session_id, user_id)

    async def delete_sessions(self, session_ids: Sequence[str], user_id: str | None = None) -> None:
        """Delete sessions with their threads, one commit each."""
        for session_id in session_ids:
            await self._log.delete(session_id, user_id)

    async def reassign_session_owner(self, session_id: str, *, previous_user_id: str, user_id: str | None) -> bool:
        """Give a session without an open run to another user."""
        return await self._log.reassign(session_id, previous_user_id, user_id)

    # Runs

    async def get_run(self, run_id: str, deserialize: bool | None = True) -> Any:
        """Return a run, or None."""
        run = await self._log.run(run_id)
        if run is None:
            return None
        return deserialize_run(run.run_type, codec.loads(text_of(run))) if deserialize else _run_row(run)

    async def get_runs(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        status: RunStatus | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """Return the runs that meet all conditions. Without `deserialize`, also their number."""
        validate_pagination(limit, page)
        values = {
            "session_id": session_id,
            "user_id": user_id,
            "agent_id": agent_id,
            "team_id": team_id,
            "workflow_id": workflow_id,
            "status": None if status is None else RunStatus(status).value,
        }
        where = [Where(field, "=", value) for field, value in values.items() if value is not None]
        order = _order(sort_by, sort_order, _RUN_ORDERS, ("run_index", "created_at", "run_id"))
        runs, total = await self._log.find_runs(*where, order=order, limit=limit, page=page)
        if not deserialize:
            return [_run_row(run) for run in runs], total
        return [deserialize_run(run.run_type, codec.loads(text_of(run))) for run in runs]

    async def upsert_run(
        self, run: Any, session_id: str, user_id: str | None = None, run_index: int | None = None
    ) -> None:
        """Store a run and record its new messages in the thread of its session, in one commit."""
        values: Json = run if isinstance(run, dict) else run.to_dict()
        if values.get("run_id") is None:
            raise ValueError("Run must have a run_id")
        run_type = get_run_type(run)
        await self._log.put_run(plain(values), session_id, run_type=run_type, user_id=user_id, run_index=run_index)

    async def cancel_pending_run(
        self,
        run_id: str,
        *,
        session_id: str,
        reason: str,
        user_id: str | None = None,
        expected_status: str = "PENDING",
    ) -> bool:
        """Cancel a run that has the expected status. Return True if it had it."""
        if expected_status not in ("PENDING", "RUNNING"):
            raise ValueError("Only Pending or Running runs can be cancelled by recovery")

        def cancelled(run: StoredRun, values: Json) -> Json | None:
            if run.status != expected_status or run.user_id not in (None, user_id):
                return None
            return {**values, "status": "CANCELLED", "content": values.get("content") or reason}

        return await self._log.patch_run(run_id, session_id, cancelled) is not None

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run. The log keeps its messages, the context does not."""
        return await self._log.delete_runs([run_id]) > 0

    async def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs. The log keeps their messages, the context does not."""
        await self._log.delete_runs(run_ids)


def _values(session: Any) -> Json:
    """Return the fields of a session for `SessionLog.put`."""
    values: Json = plain(session.to_dict(include_runs=False))
    kind = "team" if isinstance(session, TeamSession) else "agent"
    kind = "workflow" if isinstance(session, WorkflowSession) else kind
    content = {name: values.get(name) for name in (f"{kind}_data", "session_data", "summary", "metadata")}
    return {
        "session_id": values["session_id"],
        "session_type": kind,
        f"{kind}_id": values.get(f"{kind}_id"),
        "user_id": values.get("user_id"),
        "created_at": _seconds(values.get("created_at")),
        "content": content,
    }


def _row(stored: StoredSession) -> Json:
    """Return a session as a row of Agno's table, with all of its columns."""
    row = {name: stored.content.get(name) for name in ("agent_data", "team_data", "workflow_data")}
    row |= {name: stored.content.get(name) for name in ("session_data", "metadata", "summary")}
    own = ("session_id", "session_type", "agent_id", "team_id", "workflow_id", "user_id", "created_at", "updated_at")
    return {**{name: getattr(stored, name) for name in own}, **plain(row)}


def _returned(stored: StoredSession, session: Any, deserialize: bool | None) -> Any:
    """Return the session that was written, with the runs of the caller's object."""
    row = _row(stored)
    if not deserialize:
        return {**row, "runs": [run if isinstance(run, dict) else run.to_dict() for run in session.runs or []]}
    result = deserialize_session(None, row)
    result.runs = session.runs
    return result


def _run_row(run: StoredRun) -> Json:
    """Return a run as a row of Agno's table."""
    own = ("run_id", "session_id", "run_type", "agent_id", "team_id", "workflow_id", "user_id", "parent_run_id")
    own += ("status", "run_index", "created_at", "updated_at")
    return {**{name: getattr(run, name) for name in own}, "run_data": codec.loads(text_of(run))}


def _values_of(runs: Sequence[RunText]) -> list[Json]:
    return [codec.loads(run.text) for run in runs]


def _name(stored: StoredSession) -> str:
    return str((stored.content.get("session_data") or {}).get("session_name") or "")


def _order(sort_by: str | None, sort_order: str | None, known: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """Return the fields to sort by. Without `asc`, a chosen field is descending; an unknown one is ignored."""
    if sort_by is None or sort_by not in known:
        return default
    fields = (sort_by, *(field for field in default[-1:] if field != sort_by))
    return fields if sort_order == "asc" else tuple(f"-{field}" for field in fields)


def _seconds(value: Any) -> int | None:
    return None if value is None else max(0, int(value)) if isinstance(value, int | float) else int(time.time())
