"""`ThreadsApi`: create, find, list, edit and delete threads; their trees; cancel requests."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import EDITABLE, Commit, Fields, Find, FullBackend, ThreadEdit, Where
from lockstitch.errors import Conflict, KeyTaken, NotFound, Refused
from lockstitch.model import Clock, Delivery, NextMessageWait, Record, Thread, as_id, codec
from lockstitch.model.delivery import child_report
from lockstitch.store.queries.overview import descendants_of
from lockstitch.store.transaction import Transaction
from lockstitch.store.writes.writer import CommitWriter

ThreadRef = Thread | UUID | str
"""A thread, its id, or its key in the store's project."""


class ThreadsApi:
    """The threads of a project."""

    _backend: FullBackend
    clock: Clock
    project: str
    _writer: CommitWriter

    async def create(
        self, *, records: Sequence[Record] = (), delete_threads: Sequence[ThreadRef] = (), **fields: Any
    ) -> Thread:
        """Create a thread. Raises `KeyTaken` if its key is in use.

        The same transaction puts `records`, which belong to an application, and deletes `delete_threads` with all of
        their records. Their parents get a delivery. Raises `ThreadBusy` while a worker holds one of them.
        """
        if fields.get("parent_id") is not None:
            fields["depth"] = (await self.thread(fields["parent_id"])).depth + 1
        thread = self.new_thread(**fields)
        deleted = [await self.thread(ref) for ref in delete_threads]
        transaction = Transaction(
            new_threads=[thread], delete_threads=[head.id for head in deleted], records=list(records)
        )
        await self._report_deleted(transaction, deleted)
        await self._writer.commit(transaction)
        return thread

    async def _report_deleted(self, transaction: Transaction, deleted: Sequence[Thread]) -> None:
        """Add deliveries to the parents of deleted threads. A parent may wait for a thread that has not ended."""
        open_threads = [head for head in deleted if head.parent_id is not None and not head.ended]
        if not open_threads:
            return
        deleted_ids = {thread.id for head in deleted for thread in await self.tree(head)}
        for head in open_threads:
            if head.parent_id is not None and head.parent_id not in deleted_ids:
                transaction.deliveries.append(_deleted(head, self.clock.now()))
                transaction.depths[head.parent_id] = head.depth - 1

    def new_thread(self, **fields: Any) -> Thread:
        """Return a thread that is not stored yet, for `append(..., new_threads=[…])` or a `Transaction`."""
        now = self.clock.now()
        values: dict[str, Any] = {
            "project": self.project,
            "wake_at": now,
            "created_at": now,
            "updated_at": now,
            **fields,
        }
        if values.get("kind") == "chat" or "kind" not in values:
            values.setdefault("status", "waiting")
            values.setdefault("waiting_for", [NextMessageWait(now).as_json()])
            if values["status"] == "waiting":
                values["wake_at"] = fields.get("wake_at")
        return Thread(**values)

    async def thread(self, ref: ThreadRef) -> Thread:
        """The thread as it is now, by id or key. NotFound when this project has none."""
        wanted = ref.id if isinstance(ref, Thread) else as_id(ref)
        if wanted is not None:
            result = await self._backend.get(Thread, (wanted,))
            # Who holds a Thread has been let in already; an id alone does not cross projects.
            if result is not None and (isinstance(ref, Thread) or result.project == self.project):
                return result
        if isinstance(ref, str):
            codec.check_text(ref, "The key")
            where = (Where("project", "=", self.project), Where("key", "=", ref))
            by_key = await self._backend.find(Find(Thread, where, limit=1))
            if by_key:
                return by_key[0]
        raise NotFound(f"There is no thread {wanted or ref} in project {self.project} of this store.")

    async def ensure(self, key: str, *, user_id: str | None = None, **fields: Any) -> Thread:
        """The thread with this key or id, made if it is unknown. A thread belongs to the user who opened it."""
        try:
            thread = await self.thread(key)
        except NotFound:
            wanted = as_id(key)
            name: Fields = {"id": wanted} if wanted else {"key": key}
            try:
                return await self.create(**name, user_id=user_id, **fields)
            except Conflict as exc:
                if not isinstance(exc, KeyTaken) and wanted is None:
                    raise
                thread = await self.thread(key)
        if user_id is not None and thread.user_id != user_id:
            raise Refused(f"Thread {key} belongs to another user.")
        return thread

    async def threads(
        self,
        *,
        limit: int | None = 50,
        offset: int = 0,
        after: Thread | None = None,
        since: datetime | None = None,
        all_projects: bool = False,
        **equal: Any,
    ) -> list[Thread]:
        """Threads by last activity, newest first. `after` is the last one of the page before; others are equal."""
        find = self._threads(since, all_projects, equal)
        return await self._backend.find(
            Find(
                Thread,
                find.where,
                order=("-recent_at", "-id"),
                after=(after.recent_at, after.id) if after else None,
                limit=limit,
                offset=offset,
            )
        )

    async def threads_by_id(self, ids: Collection[UUID], *, all_projects: bool = False) -> dict[UUID, Thread]:
        """The threads with these ids, as far as this project has them."""
        if not ids:
            return {}
        project = () if all_projects else (Where("project", "=", self.project),)
        threads = await self._backend.find(Find(Thread, (Where("id", "in", list(ids)), *project)))
        return {thread.id: thread for thread in threads}

    async def find_threads(self, *where: Where, order: Sequence[str] = (), limit: int | None = None) -> list[Thread]:
        """The threads of this project that meet all conditions."""
        return await self._backend.find(
            Find(Thread, (Where("project", "=", self.project), *where), order=order, limit=limit)
        )

    async def count(self, *, since: datetime | None = None, all_projects: bool = False, **equal: Any) -> int:
        """How many threads `threads` would list."""
        return await self._backend.count(self._threads(since, all_projects, equal))

    async def awaiting_person(self, *, limit: int | None = 50, after: Thread | None = None) -> list[Thread]:
        """Threads that wait for a person, the longest first. `after` is the last one of the page before."""
        find = self._asking()
        order = ("asks_since", "id")
        seen = (after.asks_since, after.id) if after else None
        return await self._backend.find(Find(Thread, find.where, order=order, after=seen, limit=limit))

    async def count_awaiting_person(self) -> int:
        """How many threads wait for a person."""
        return await self._backend.count(self._asking())

    async def children(self, ref: ThreadRef) -> list[Thread]:
        head = await self.thread(ref)
        return await self._backend.find(Find(Thread, (Where("parent_id", "=", head.id),), order=("id",)))

    async def children_of(self, parents: Sequence[UUID], *, limit: int | None = None) -> list[Thread]:
        """The children of several threads, by parent and age."""
        where = (Where("parent_id", "in", parents),)
        return await self._backend.find(Find(Thread, where, order=("parent_id", "id"), limit=limit))

    async def ancestors(self, ref: ThreadRef) -> list[Thread]:
        """Parent, grandparent and so on up to the root."""
        chain: list[Thread] = []
        current = await self.thread(ref)
        while current.parent_id is not None:
            current = await self.thread(current.parent_id)
            chain.append(current)
        return chain

    async def tree(self, ref: ThreadRef) -> list[Thread]:
        """The thread and all its descendants, parents before children."""
        return await descendants_of(self._backend, [await self.thread(ref)])

    async def request_cancel(self, ref: ThreadRef) -> list[Thread]:
        """Request the end of a thread and of all its descendants. Returns those that have not ended, parents first.

        One commit marks all threads that are known. A marked thread creates no more children, so the tree is read
        again until it has no unmarked thread.
        """
        root = await self.thread(ref)
        marked: set[UUID] = set()
        while True:
            tree = [thread for thread in await self.tree(root) if not thread.ended]
            unmarked = [thread for thread in tree if thread.id not in marked]
            if not unmarked:
                return tree
            await self._mark_cancelled(unmarked)
            marked.update(thread.id for thread in unmarked)

    async def request_cancel_of_children(self, ref: ThreadRef) -> None:
        """Request the end of all children of a thread, and of their descendants."""
        for child in await self.children(ref):
            if not child.ended:
                await self.request_cancel(child)

    async def _mark_cancelled(self, heads: Sequence[Thread]) -> None:
        """Mark threads as to be cancelled, in one commit. Waiting threads are woken."""
        fields = {"cancel_requested": True, "wake_at": self.clock.now()}
        threads = sorted(heads, key=lambda head: (-head.depth, head.id))
        await self._backend.append(Commit([ThreadEdit(head.id, fields) for head in threads]))

    async def edit(self, ref: ThreadRef, **fields: Any) -> None:
        """Set fields that anybody may write at any time: title, extras, priority, expires_at, cancel_requested."""
        wrong = fields.keys() - EDITABLE
        if wrong:
            raise Refused(f"{', '.join(sorted(wrong))} cannot be edited; only {', '.join(sorted(EDITABLE))} can.")
        head = await self.thread(ref)
        await self._writer.edit(ThreadEdit(head.id, head.validate_fields(fields)))

    async def delete(self, ref: ThreadRef, *, force: bool = False) -> int:
        """Delete a thread, its descendants and all of their records. Return the number of threads.

        An open parent gets a delivery, because it may wait for the thread. Raises `ThreadBusy` while a worker holds one
        of the threads.
        """
        root, *below = await self.tree(ref)
        ids = [root.id, *(thread.id for thread in below)]
        deleted = await self._backend.delete(Find(Thread, (Where("id", "in", ids),)), force=force)
        if deleted and root.parent_id is not None and not root.ended:
            report = Transaction(deliveries=[_deleted(root, self.clock.now())], depths={root.parent_id: root.depth - 1})
            with suppress(NotFound):
                await self._writer.deliver(report)
        return deleted

    async def delete_threads(self, ids: Collection[UUID], *, force: bool = False) -> int:
        """Delete roots of this project with everything of theirs, all or none; how many roots. ThreadBusy if held."""
        where = (Where("id", "in", list(ids)), Where("project", "=", self.project))
        return await self._backend.delete(Find(Thread, where), force=force)

    def _asking(self) -> Find[Thread]:
        where = (
            Where("project", "=", self.project),
            Where("status", "=", "waiting"),
            Where("asks_since", "is not null"),
        )
        return Find(Thread, where)

    def _threads(self, since: datetime | None, all_projects: bool, equal: Mapping[str, Any]) -> Find[Thread]:
        where = [] if all_projects else [Where("project", "=", self.project)]
        if since is not None:
            where.append(Where("recent_at", ">=", since))
        unknown = equal.keys() - Thread.model_fields.keys()
        if unknown:
            raise Refused(f"A thread has no {', '.join(sorted(unknown))} to be found by.")
        for field, value in equal.items():
            if value is not None:
                where.append(Where(field, "in" if isinstance(value, list | tuple | set) else "=", value))
        return Find(Thread, where)


def _deleted(child: Thread, now: datetime) -> Delivery:
    """Return the delivery to the parent of a thread that is deleted before it has ended."""
    assert child.parent_id is not None
    return child_report(child, child.parent_id, "cancelled", "It was deleted.", now)
