"""`SessionLog`: creates, reads, lists and deletes the sessions and runs of Agno in a project.

A session is a thread with a record. A run is a record, too, and its messages are stitches, in one commit. Each write to
a run appends at least one stitch, so the position of the thread shows all changes: commits compare it, and a process
reads only the runs that were written after the position that it knows.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import zstandard

from lockstitch.errors import Conflict, NotFound, Refused, ThreadBusy, ThreadEnded
from lockstitch.integrations.agno.conversation import FRAMEWORK, new_messages, open_calls, plan_run
from lockstitch.integrations.agno.records import EXTENSION, StoredRun, StoredSession
from lockstitch.model import Entry, Json, Run, Stitch, Thread, codec
from lockstitch.model.context import position_ranges
from lockstitch.store import AnyOf, Condition, Fields, Store, Transaction, Where

ATTEMPTS: Final = 20
"""Attempts of a commit while other processes write to the same thread."""

MOST_SESSIONS: Final = 64
"""Sessions whose runs stay in memory."""

_ACTIVE: Final = ("PENDING", "RUNNING", "PAUSED")

_pack = zstandard.ZstdCompressor(level=3).compress
_unpack = zstandard.ZstdDecompressor().decompress


class RunText(NamedTuple):
    """A run as JSON text, and the columns that select the runs of a context."""

    run_id: str
    text: str
    is_nested: bool
    status: str | None


class _Known:
    """The runs of a session that this process has read."""

    def __init__(self, stored: StoredSession) -> None:
        self.thread_id = stored.thread_id
        self.deletions = stored.deletions
        self.position = 0
        self.runs: dict[str, tuple[int, RunText]] = {}


class SessionLog:
    """The sessions and runs of one project. Safe to use from many tasks of the store's loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()

    # Sessions

    async def put(self, values: Json, *, updated_at: int | None = None) -> StoredSession | None:
        """Create or update a session. Return None if it belongs to another user; nothing was written then.

        Args:
            values: Fields of the session.
            updated_at: Time of the change. None: now.
        """
        await self._store.extend(EXTENSION)
        for attempt in range(ATTEMPTS):
            try:
                stored = await self._stored(values["session_id"])
                if stored is None:
                    head, stored = self._new(values, updated_at)
                    await self._store.commit(Transaction(new_threads=[head], new_records=[stored]))
                    return stored
                if stored.user_id is not None and stored.user_id != values.get("user_id"):
                    return None
                return await self._update(stored, values, updated_at)
            except (Conflict, NotFound) as exc:
                self._raise_if_final(exc, attempt)
        raise AssertionError

    async def put_all(self, sessions: Sequence[Json], times: Sequence[int | None]) -> list[StoredSession | None]:
        """Create or update sessions. If all of them are new, they are one commit.

        Args:
            sessions: Fields of the sessions.
            times: Times of the changes. None: now.

        Returns:
            The written sessions. None for a session that belongs to another user.
        """
        await self._store.extend(EXTENSION)
        ids = {values["session_id"] for values in sessions}
        stored = await self._store.table(StoredSession).count(
            Where("project", "=", self._store.project), Where("session_id", "in", [*ids])
        )
        if sessions and not stored and len(ids) == len(sessions):
            created = [self._new(values, at) for values, at in zip(sessions, times, strict=True)]
            rows = [row for _, row in created]
            try:
                await self._store.commit(Transaction(new_threads=[head for head, _ in created], new_records=[*rows]))
            except Conflict:
                # Another process has just created one of them.
                pass
            else:
                return [*rows]
        return [await self.put(values, updated_at=at) for values, at in zip(sessions, times, strict=True)]

    def _new(self, values: Json, updated_at: int | None) -> tuple[Thread, StoredSession]:
        """Return the thread and the record of a new session."""
        head = self._store.new_thread(
            key=values["session_id"],
            user_id=values.get("user_id"),
            agent=_component(values),
            title=_title(values),
            extras=FRAMEWORK,
        )
        created_at: int = values.get("created_at") or self._now()
        fields: Fields = {**values, "project": self._store.project, "thread_id": head.id, "created_at": created_at}
        fields["updated_at"] = updated_at or created_at
        return head, StoredSession(**fields)

    async def _update(self, stored: StoredSession, values: Json, updated_at: int | None) -> StoredSession | None:
        """Write the new values. A change of the owner or of the title is a change of the thread, too."""
        changed, fields = self._changed(stored, values, updated_at)
        if not fields:
            await self._store.commit(Transaction(records=[changed]))
            return changed
        stored, head = await self._with_head(stored)
        if stored.user_id is not None and stored.user_id != values.get("user_id"):
            return None
        changed, fields = self._changed(stored, values, updated_at)
        transaction = Transaction(records=[changed])
        update = transaction.update(head)
        update.fields = head.validate_fields(fields)
        # The entry raises the position, so that one of two concurrent changes of the owner fails.
        update.entries.append(Entry(type="agno_session", data=fields))
        await self._store.commit(transaction)
        return changed

    def _changed(self, stored: StoredSession, values: Json, updated_at: int | None) -> tuple[StoredSession, Fields]:
        """Return a session with new values, and the changed fields of its thread."""
        own = {name: value for name, value in values.items() if name not in ("created_at", "session_type")}
        changed = stored.changed(**stored.validate_fields({**own, "updated_at": updated_at or self._now()}))
        fields: Fields = {} if changed.user_id == stored.user_id else {"user_id": changed.user_id}
        if (title := _title(values)) != _title({"content": stored.content}):
            fields["title"] = title
        return changed, fields

    async def _with_head(self, stored: StoredSession) -> tuple[StoredSession, Thread]:
        """Return a session and its thread. The session is not older than the thread.

        So a commit that compares the position of the thread fails if the session or a run has changed since.
        """
        head = await self._store.thread(stored.thread_id)
        current = await self._stored(stored.session_id)
        if current is None or current.thread_id != head.id:
            raise NotFound(f"Session {stored.session_id} not found.")
        return current, head

    async def get(self, session_id: str, user_id: str | None = None) -> StoredSession | None:
        """Return a session, or None if there is none or if it belongs to another user."""
        await self._store.extend(EXTENSION)
        stored = await self._stored(session_id)
        return stored if stored is None or user_id is None or stored.user_id == user_id else None

    async def find(
        self,
        *where: Condition,
        accept: Callable[[StoredSession], bool] | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
        page: int | None = None,
    ) -> tuple[list[StoredSession], int]:
        """Return a page of sessions and the number of all that match.

        Args:
            where: Conditions on fields of sessions.
            accept: Function that selects sessions, too. All sessions that meet the conditions are read then.
            order: Fields to sort by.
            limit: Maximum number of sessions. None: all.
            page: Number of the page, from 1.
        """
        await self._store.extend(EXTENSION)
        table = self._store.table(StoredSession)
        of_project = Where("project", "=", self._store.project)
        offset = ((page or 1) - 1) * (limit or 0)
        if accept is None:
            rows = await table.find(of_project, *where, order=order, limit=limit, offset=offset)
            return rows, await table.count(of_project, *where) if limit is not None else len(rows)
        rows = [row for row in await table.find(of_project, *where, order=order) if accept(row)]
        return rows[offset:] if limit is None else rows[offset : offset + limit], len(rows)

    async def delete(self, session_id: str, user_id: str | None = None) -> bool:
        """Delete a session with its thread. Return False if there is none or if it belongs to another user."""
        stored = await self.get(session_id, user_id)
        if stored is None:
            return False
        self._known.pop(session_id, None)
        try:
            return await self._store.delete(stored.thread_id) > 0
        except NotFound:
            return False

    async def reassign(self, session_id: str, previous_user_id: str, user_id: str | None) -> bool:
        """Give a session without an open run to another user, if it belongs to `previous_user_id`."""
        for attempt in range(ATTEMPTS):
            try:
                stored = await self.get(session_id, previous_user_id)
                if stored is None:
                    return False
                stored, head = await self._with_head(stored)
                if stored.user_id != previous_user_id:
                    return False
                active = (Where("thread_id", "=", head.id), Where("status", "in", _ACTIVE))
                if await self._store.table(StoredRun).count(*active):
                    return False
                transaction = Transaction(records=[stored.changed(user_id=user_id)])
                update = transaction.update(head)
                update.fields = head.validate_fields({"user_id": user_id})
                update.entries.append(Entry(type="agno_session", data={"user_id": user_id}))
                await self._store.commit(transaction)
                return True
            except (Conflict, NotFound) as exc:
                self._raise_if_final(exc, attempt)
        raise AssertionError

    # Runs

    async def runs(self, stored: StoredSession) -> list[RunText]:
        """Return the runs of a session in their order."""
        known = self._known.pop(stored.session_id, None)
        if known is None or (known.thread_id, known.deletions) != (stored.thread_id, stored.deletions):
            known = _Known(stored)
        where = (Where("thread_id", "=", stored.thread_id), Where("position", ">", known.position))
        for row in await self._store.table(StoredRun).find(*where, order=("position",)):
            text = RunText(row.run_id, text_of(row), row.parent_run_id is not None, row.status)
            known.runs[row.run_id] = (row.run_index, text)
            known.position = row.position
        self._known[stored.session_id] = known
        if len(self._known) > MOST_SESSIONS:
            self._known.popitem(last=False)
        return [text for _, text in sorted(known.runs.values(), key=lambda run: run[0])]

    async def put_run(
        self, values: Json, session_id: str, *, run_type: str, user_id: str | None = None, run_index: int | None = None
    ) -> None:
        """Store a run and record its new messages, in one commit. An equal run changes nothing.

        Args:
            values: The run as JSON.
            session_id: Id of the session.
            run_type: `agent`, `team` or `workflow`.
            user_id: Id of the user.
            run_index: Number of a new run in the session. None: the next one.

        Raises:
            Refused: If the session does not exist.
        """
        content = codec.dumps(values)

        async def changed(known: StoredRun | None, head: Thread) -> StoredRun | None:
            if known is not None and known.user_id == user_id and _unpack(known.content) == content:
                return None
            created_at = _seconds(values.get("created_at")) or self._now()
            index = run_index if run_index is not None else _seconds(values.get("run_index"))
            if known is not None:
                index, created_at = known.run_index, known.created_at
            elif index is None:
                index = await self._next_index(head)
            return StoredRun(
                project=self._store.project,
                run_id=values["run_id"],
                thread_id=head.id,
                session_id=session_id,
                run_index=index,
                run_type=run_type if known is None else known.run_type,
                agent_id=values.get("agent_id"),
                team_id=values.get("team_id"),
                workflow_id=values.get("workflow_id"),
                user_id=user_id,
                parent_run_id=values.get("parent_run_id"),
                status=values.get("status"),
                model=values.get("model"),
                model_provider=values.get("model_provider"),
                created_at=created_at,
                updated_at=self._now(),
                position=head.position,
                record_id=head.id if known is None else known.record_id,
                recorded={"messages": []} if known is None else known.recorded,
                content=_pack(content),
            )

        await self.get(session_id)
        await self._write_run(values["run_id"], session_id, changed)

    async def patch_run(
        self, run_id: str, session_id: str, patch: Callable[[StoredRun, Json], Json | None]
    ) -> StoredRun | None:
        """Change a stored run. Return it, or None if there is none or if `patch` returns None.

        Args:
            run_id: Id of the run.
            session_id: Id of its session.
            patch: Function that returns the new values of a run.
        """
        await self._store.extend(EXTENSION)

        async def changed(known: StoredRun | None, head: Thread) -> StoredRun | None:
            values = None if known is None else patch(known, codec.loads(text_of(known)))
            if known is None or values is None:
                return None
            fields: Fields = {"status": values.get("status"), "updated_at": self._now()}
            return known.changed(**fields, content=_pack(codec.dumps(values)))

        return await self._write_run(run_id, session_id, changed)

    async def _write_run(self, run_id: str, session_id: str, change: Any) -> StoredRun | None:
        """Commit the run that `change` returns with its new messages. If another writer was first, try again."""
        for attempt in range(ATTEMPTS):
            try:
                stored = await self._stored(session_id)
                if stored is None:
                    raise Refused(f"Session {session_id} not found. Store it before its runs. Nothing was written.")
                # The run is read after the thread, whose position the commit compares.
                head = await self._store.thread(stored.thread_id)
                known = await self._run(run_id)
                if known is not None and known.thread_id != head.id:
                    raise Refused(f"Run {run_id} belongs to another session. Nothing was written.")
                row: StoredRun | None = await change(known, head)
                if row is None:
                    return None
                run = None if known is None else await self._store.run(known.record_id)
                values = codec.loads(text_of(row))
                recorded: list[str] = row.recorded["messages"]
                plan = plan_run(
                    self._store,
                    head,
                    values,
                    run=run,
                    parent=await self._parent(row, head),
                    recorded=recorded,
                    calls=await self._calls(head, run, values, recorded),
                    before=None if known is None else known.status,
                )
                row = row.changed(
                    record_id=plan.run.id,
                    recorded={"messages": plan.recorded},
                    position=head.position + len(plan.update.entries),
                )
                await self._store.commit(Transaction([plan.update], records=[row]))
                return row
            except (Conflict, NotFound) as exc:
                self._raise_if_final(exc, attempt)
        raise AssertionError

    async def _parent(self, row: StoredRun, head: Thread) -> Run | None:
        parent = None if row.parent_run_id is None else await self._run(row.parent_run_id)
        if parent is None or parent.thread_id != head.id:
            return None
        return await self._store.run(parent.record_id)

    async def _calls(self, head: Thread, run: Run | None, values: Json, recorded: Sequence[str]) -> Any:
        """Return the open calls of a run, if new messages may answer them."""
        if run is None or all(message.get("role") != "tool" for _, message in new_messages(values, recorded)):
            return {}
        stitches = await self._store.stitches(head, run.first_position)
        return open_calls([stitch for stitch in stitches if stitch.run_id == run.id])

    async def _next_index(self, head: Thread) -> int:
        of_thread = Where("thread_id", "=", head.id)
        last = await self._store.table(StoredRun).first(of_thread, order=("-run_index",))
        return 0 if last is None else last.run_index + 1

    async def run(self, run_id: str) -> StoredRun | None:
        """Return a run, or None."""
        await self._store.extend(EXTENSION)
        return await self._run(run_id)

    async def find_runs(
        self, *where: Condition, order: Sequence[str] = (), limit: int | None = None, page: int | None = None
    ) -> tuple[list[StoredRun], int]:
        """Return a page of runs and the number of all that match."""
        await self._store.extend(EXTENSION)
        table = self._store.table(StoredRun)
        of_project = Where("project", "=", self._store.project)
        offset = ((page or 1) - 1) * (limit or 0)
        rows = await table.find(of_project, *where, order=order, limit=limit, offset=offset)
        return rows, await table.count(of_project, *where) if limit is not None else len(rows)

    async def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs and hide their messages from the context, one commit per session. Return the number of runs.

        The log keeps the messages.
        """
        await self._store.extend(EXTENSION)
        deleted = 0
        wanted = Where("run_id", "in", [*run_ids])
        rows, _ = await self.find_runs(wanted)
        for session_id in dict.fromkeys(row.session_id for row in rows):
            deleted += await self._delete_runs(session_id, wanted)
        return deleted

    async def _delete_runs(self, session_id: str, wanted: Where) -> int:
        for attempt in range(ATTEMPTS):
            try:
                stored = await self._stored(session_id)
                if stored is None:
                    return 0
                stored, head = await self._with_head(stored)
                of_thread = Where("thread_id", "=", head.id)
                rows = await self._store.table(StoredRun).find(of_thread)
                deleted = [row for row in rows if row.run_id in wanted.value]
                if not deleted:
                    return 0
                remaining = {row.record_id for row in rows} - {row.record_id for row in deleted}
                runs = [run for run in await self._store.runs(head) if run.id in remaining]
                transaction = Transaction(records=[stored.changed(deletions=stored.deletions + 1)])
                transaction.delete(StoredRun, of_thread, wanted)
                update = transaction.update(head)
                update.entries.append(_removal(runs, await self._store.stitches(head)))
                await self._store.commit(transaction)
                return len(deleted)
            except (Conflict, NotFound) as exc:
                self._raise_if_final(exc, attempt)
        raise AssertionError

    # Common

    async def _stored(self, session_id: str) -> StoredSession | None:
        return await self._store.table(StoredSession).get_or_none(self._store.project, session_id)

    async def _run(self, run_id: str) -> StoredRun | None:
        return await self._store.table(StoredRun).get_or_none(self._store.project, run_id)

    def _now(self) -> int:
        return int(self._store.clock.now().timestamp())

    @staticmethod
    def _raise_if_final(exc: Exception, attempt: int) -> None:
        """Raise the error unless another attempt may succeed."""
        if isinstance(exc, ThreadBusy | ThreadEnded) or attempt == ATTEMPTS - 1:
            raise exc


def text_of(row: StoredRun) -> str:
    """Return a run as JSON text."""
    return _unpack(row.content).decode()


def of_component(component_id: str, session_type: str | None) -> Condition:
    """Return the condition on the agent, team or workflow of a session."""
    if session_type is not None:
        return Where(f"{session_type}_id", "=", component_id)
    return AnyOf([Where(f"{kind}_id", "=", component_id) for kind in ("agent", "team", "workflow")])


def _removal(runs: Sequence[Run], stitches: Sequence[Stitch]) -> Entry:
    """Return the compaction after which the context has only the messages of these runs."""
    ids = {run.id for run in runs}
    positions = [stitch.position for stitch in stitches if stitch.run_id in ids and stitch.message is not None]
    keep = position_ranges(positions)
    return Entry(type="compaction", data={"applied": True, "reason": "agno", "keep": keep, "replace": {}})


def _component(values: Json) -> str | None:
    return values.get("agent_id") or values.get("team_id") or values.get("workflow_id")


def _title(values: Json) -> str | None:
    content: Json = values.get("content") or {}
    data: Json = content.get("session_data") or {}
    name = data.get("session_name")
    return name.replace("\x00", "")[:255] if isinstance(name, str) else None


def _seconds(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None
