"""`ThreadsApi`: create, find, list, edit, cancel and delete threads."""

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
    """The threads of a project. A part of `Store`."""

    _backend: FullBackend
    clock: Clock
    project: str
    _writer: CommitWriter

    async def create(
        self, *, records: Sequence[Record] = (), delete_threads: Sequence[ThreadRef] = (), **fields: Any
    ) -> Thread:
        """Create a thread and return it.

        `fields` are fields of `Thread`: `id`, `key`, `user_id`, `kind`, `agent`, `version`, `goal`, `title`, `tasks`,
        `parent_id`, `branching_stitch_id`, `settings`, `state`, `extras`, `priority`, `wake_at`, `expires_at`, `status`
        and `waiting_for`. The store sets the depth of a child. A chat without a status waits for its first message.
        Other kinds are `pending`, so that a worker executes them.

        The same transaction writes `records`, which belong to an application, and deletes `delete_threads` with their
        descendants and records. Their parents get a delivery.

        Raises `KeyTaken` if the key is in use, `Conflict` if the id is in use, `ThreadBusy` if a worker holds a thread
        to delete, and `Refused` if a value is not valid. Nothing is written then.
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
        """Return a thread that is not stored yet, for `append(..., new_threads=[…])` or a `Transaction`.

        `fields` are fields of `Thread`, as in `create`.
        """
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
        """Return the current state of a thread. Raises `NotFound` if this project has no thread with this id or key.

        A `Thread` is read again, also if it belongs to another project.
        """
        wanted = ref.id if isinstance(ref, Thread) else as_id(ref)
        if wanted is not None:
            result = await self._backend.get(Thread, (wanted,))
            # A caller that has a Thread was allowed to read it. An id alone does not give access to other projects.
            if result is not None and (isinstance(ref, Thread) or result.project == self.project):
                return result
        if isinstance(ref, str):
            codec.check_text(ref, "The key")
            where = (Where("project", "=", self.project), Where("key", "=", ref))
            by_key = await self._backend.find(Find(Thread, where, limit=1))
            if by_key:
                return by_key[0]
        raise NotFound(f"Thread {wanted or ref} not found in project {self.project}.")

    async def ensure(self, key: str, *, user_id: str | None = None, **fields: Any) -> Thread:
        """Return the thread with this key or id. If there is none, create it with `user_id` and `fields`, as in
        `create`.

        Concurrent calls with the same key return the same thread. Raises `Refused` if `user_id` is set and the thread
        belongs to another user.
        """
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
        """Return threads by last activity, newest first.

        `equal` filters by fields of `Thread`, such as `status`, `agent`, `kind`, `user_id` or `parent_id`. A list
        matches any of its values; None is ignored. `since` is the earliest last activity. Page by `offset`, or by
        cursor: `after` is the last thread of the previous page. Raises `Refused` if a filter is not a field of
        `Thread`.
        """
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
        """Return the threads with these ids, by id. Ids that this project does not have are left out."""
        if not ids:
            return {}
        project = () if all_projects else (Where("project", "=", self.project),)
        threads = await self._backend.find(Find(Thread, (Where("id", "in", list(ids)), *project)))
        return {thread.id: thread for thread in threads}

    async def find_threads(self, *where: Where, order: Sequence[str] = (), limit: int | None = None) -> list[Thread]:
        """Return the threads of this project that meet all conditions. `order` lists fields; `-` means descending."""
        return await self._backend.find(
            Find(Thread, (Where("project", "=", self.project), *where), order=order, limit=limit)
        )

    async def count(self, *, since: datetime | None = None, all_projects: bool = False, **equal: Any) -> int:
        """Return the number of threads that `threads` lists with the same filters."""
        return await self._backend.count(self._threads(since, all_projects, equal))

    async def awaiting_person(self, *, limit: int | None = 50, after: Thread | None = None) -> list[Thread]:
        """Return threads that wait for a person, the longest wait first.

        `after` is the last thread of the previous page.
        """
        find = self._awaiting_person()
        order = ("awaiting_person_since", "id")
        seen = (after.awaiting_person_since, after.id) if after else None
        return await self._backend.find(Find(Thread, find.where, order=order, after=seen, limit=limit))

    async def count_awaiting_person(self) -> int:
        """Return the number of threads that wait for a person."""
        return await self._backend.count(self._awaiting_person())

    async def children(self, ref: ThreadRef) -> list[Thread]:
        """Return the children of a thread, oldest first."""
        head = await self.thread(ref)
        return await self._backend.find(Find(Thread, (Where("parent_id", "=", head.id),), order=("id",)))

    async def children_of(self, parents: Sequence[UUID], *, limit: int | None = None) -> list[Thread]:
        """Return the children of several threads, by parent and age."""
        where = (Where("parent_id", "in", parents),)
        return await self._backend.find(Find(Thread, where, order=("parent_id", "id"), limit=limit))

    async def ancestors(self, ref: ThreadRef) -> list[Thread]:
        """Return the parent of a thread, its parent, and so on up to the root."""
        chain: list[Thread] = []
        current = await self.thread(ref)
        while current.parent_id is not None:
            current = await self.thread(current.parent_id)
            chain.append(current)
        return chain

    async def tree(self, ref: ThreadRef) -> list[Thread]:
        """Return the thread and all its descendants, parents before children."""
        return await descendants_of(self._backend, [await self.thread(ref)])

    async def request_cancel(self, ref: ThreadRef) -> list[Thread]:
        """Request the cancel of a thread and of all its descendants. Return those that have not ended, parents first.

        The holder of a thread ends it; a worker claims and ends a thread without a holder. One commit marks all known
        threads. A marked thread creates no more children, so the tree is read again until it has no unmarked thread.
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
        """Request the cancel of all children of a thread, and of their descendants."""
        for child in await self.children(ref):
            if not child.ended:
                await self.request_cancel(child)

    async def _mark_cancelled(self, heads: Sequence[Thread]) -> None:
        """Set `cancel_requested` of threads, in one commit. Waiting threads become ready."""
        fields = {"cancel_requested": True, "wake_at": self.clock.now()}
        threads = sorted(heads, key=lambda head: (-head.depth, head.id))
        await self._backend.append(Commit([ThreadEdit(head.id, fields) for head in threads]))

    async def edit(self, ref: ThreadRef, **fields: Any) -> None:
        """Set fields of a thread that need no lease: `title`, `extras`, `priority`, `expires_at`, `cancel_requested`.

        Works while a worker holds the thread. The last writer wins. Raises `Refused` for other fields.
        """
        wrong = fields.keys() - EDITABLE
        if wrong:
            raise Refused(f"{', '.join(sorted(wrong))} cannot be edited; only {', '.join(sorted(EDITABLE))} can.")
        head = await self.thread(ref)
        await self._writer.edit(ThreadEdit(head.id, head.validate_fields(fields)))

    async def delete(self, ref: ThreadRef, *, force: bool = False) -> int:
        """Delete a thread, its descendants and all of their records. Return the number of deleted threads.

        An open parent gets a delivery, because it may wait for the thread. Raises `ThreadBusy` if a worker holds one of
        the threads, unless `force` is True.
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
        """Delete root threads of this project with their descendants and records, all or none. Return the number of
        roots.

        Raises `ThreadBusy` if a worker holds one of the threads, unless `force` is True.
        """
        where = (Where("id", "in", list(ids)), Where("project", "=", self.project))
        return await self._backend.delete(Find(Thread, where), force=force)

    def _awaiting_person(self) -> Find[Thread]:
        where = (
            Where("project", "=", self.project),
            Where("status", "=", "waiting"),
            Where("awaiting_person_since", "is not null"),
        )
        return Find(Thread, where)

    def _threads(self, since: datetime | None, all_projects: bool, equal: Mapping[str, Any]) -> Find[Thread]:
        where = [] if all_projects else [Where("project", "=", self.project)]
        if since is not None:
            where.append(Where("recent_at", ">=", since))
        unknown = equal.keys() - Thread.model_fields.keys()
        if unknown:
            raise Refused(f"Threads cannot be filtered by {', '.join(sorted(unknown))}. Use fields of `Thread`.")
        for field, value in equal.items():
            if value is not None:
                where.append(Where(field, "in" if isinstance(value, list | tuple | set) else "=", value))
        return Find(Thread, where)


def _deleted(child: Thread, now: datetime) -> Delivery:
    """Return the delivery to the parent of a thread that is deleted before it has ended."""
    assert child.parent_id is not None
    return child_report(child, child.parent_id, "cancelled", "It was deleted.", now)
