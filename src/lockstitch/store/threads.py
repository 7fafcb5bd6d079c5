"""`ThreadsApi`: create, find, list, edit, cancel and delete threads."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from types import EllipsisType
from typing import Any, Final, TypeVar
from uuid import UUID

from lockstitch.backend import Commit, Condition, Fields, Find, FullBackend, ThreadEdit, Where
from lockstitch.errors import Conflict, KeyTaken, NotFound, Refused
from lockstitch.model import (
    TERMINAL_STATUSES,
    Clock,
    Delivery,
    Json,
    NextMessageWait,
    Record,
    Run,
    Thread,
    as_id,
    codec,
)
from lockstitch.model.delivery import child_report
from lockstitch.model.figures import ThreadSort
from lockstitch.model.ids import SHORT_ID
from lockstitch.store.queries.overview import descendants_of
from lockstitch.store.queries.thread_list import STATUSES, conditions_of, order_of, place_of
from lockstitch.store.transaction import Transaction
from lockstitch.store.writes.writer import CommitWriter

R = TypeVar("R", Thread, Run)

SHORTEST_ID: Final = 4
"""Number of characters of an id that must be typed."""

_LAST_GROUP: Final = 12
"""Length of the last group of an id, which has no hyphen."""

ThreadRef = Thread | UUID | str
"""A thread, its id, or its key in the store's project."""


class ThreadsApi:
    """The threads of a project. A part of `Store`."""

    _backend: FullBackend
    clock: Clock
    """Current time of this store. Tests replace it."""
    project: str
    """Project of new threads. Keys and ids are looked up in it."""
    namespace: str | None = None
    """Namespace of keys, see `Store.in_namespace`. None: keys are used unchanged."""
    _writer: CommitWriter

    def full_key(self, key: str) -> str:
        """Return a key as it is stored: `namespace:key`, or the same key if there is no namespace.

        Args:
            key: Key of a thread in the namespace.
        """
        return key if self.namespace is None else f"{self.namespace}:{key}"

    def key_in_namespace(self, thread: Thread) -> str | None:
        """Return the key of a thread without the namespace. None if the thread has no key in the namespace.

        Args:
            thread: The thread.
        """
        prefix = self.full_key("")
        return thread.key[len(prefix) :] if thread.key is not None and thread.key.startswith(prefix) else None

    async def create(
        self,
        *,
        id: UUID | None = None,
        key: str | None = None,
        user_id: str | None = None,
        kind: str = "chat",
        agent: str | None = None,
        version: int | None = None,
        goal: str | None = None,
        title: str | None = None,
        tasks: Sequence[Json] = (),
        parent_id: UUID | None = None,
        branching_stitch_id: UUID | None = None,
        status: str | None = None,
        waiting_for: Sequence[Json] | None = None,
        result: Json | None = None,
        wake_at: datetime | None = None,
        state: Json | None = None,
        settings: Json | None = None,
        extras: Json | None = None,
        priority: int = 0,
        expires_at: datetime | None = None,
        records: Sequence[Record] = (),
        delete_threads: Sequence[ThreadRef] = (),
    ) -> Thread:
        """Create a thread. The store sets the depth of a child.

        Args:
            id: Id of the thread, a UUIDv7. None: a new one.
            key: Name of the thread, unique within the project.
            user_id: Id of the user that the thread belongs to.
            kind: `chat`: a conversation. `goal`: a task that workers execute. `task`: a child thread.
            agent: Name of the agent that executes the thread.
            version: Version of the agent's definition.
            goal: Task of a goal, in words.
            title: Title for lists.
            tasks: Task list of a goal, in its stored form.
            parent_id: Id of the thread that creates this one.
            branching_stitch_id: Id of the parent's stitch at which the thread is created.
            status: Status. None: `waiting` for a chat, `pending` for other kinds, so that a worker executes them.
            waiting_for: Waits of the thread. None: a chat waits for its next message.
            result: Result of a thread that has ended.
            wake_at: Time from which a worker can claim the thread. None: now, except for a waiting chat.
            state: Data that the engine or an application stores between runs.
            settings: Settings of the last run, such as its system text.
            extras: Additional data of an application.
            priority: Claim priority. Higher values first.
            expires_at: Time after which a purge deletes the thread, with a time zone.
            records: Records of an application, which the same transaction writes.
            delete_threads: Threads that the same transaction deletes, with their descendants and records. Their
                parents get a delivery.

        Returns:
            The new thread.

        Raises:
            KeyTaken: If the key is in use.
            Conflict: If the id is in use.
            ThreadBusy: If a worker holds a thread to delete.
            NotFound: If the parent or a thread to delete does not exist.
            Refused: If a value is not valid.
        """
        fields = without_none(
            id=id,
            key=key,
            user_id=user_id,
            kind=kind,
            agent=agent,
            version=version,
            goal=goal,
            title=title,
            tasks=list(tasks),
            parent_id=parent_id,
            branching_stitch_id=branching_stitch_id,
            status=status,
            waiting_for=None if waiting_for is None else list(waiting_for),
            result=result,
            wake_at=wake_at,
            state=state,
            settings=settings,
            extras=extras,
            priority=priority,
            expires_at=expires_at,
        )
        return await self._create(fields, records, delete_threads)

    async def _create(
        self, fields: Fields, records: Sequence[Record] = (), delete_threads: Sequence[ThreadRef] = ()
    ) -> Thread:
        """Create a thread with these fields of `Thread`. See `create`."""
        if fields.get("parent_id") is not None:
            fields = {**fields, "depth": (await self.thread(fields["parent_id"])).depth + 1}
        thread = self._new_thread(fields)
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

    def new_thread(
        self,
        *,
        id: UUID | None = None,
        key: str | None = None,
        user_id: str | None = None,
        kind: str = "chat",
        agent: str | None = None,
        version: int | None = None,
        goal: str | None = None,
        title: str | None = None,
        tasks: Sequence[Json] = (),
        parent_id: UUID | None = None,
        branching_stitch_id: UUID | None = None,
        depth: int = 0,
        status: str | None = None,
        waiting_for: Sequence[Json] | None = None,
        result: Json | None = None,
        wake_at: datetime | None = None,
        state: Json | None = None,
        settings: Json | None = None,
        extras: Json | None = None,
        priority: int = 0,
        expires_at: datetime | None = None,
    ) -> Thread:
        """Return a thread that is not stored yet, for `append(..., new_threads=[…])` or a `Transaction`.

        Args:
            id: Id of the thread, a UUIDv7. None: a new one.
            key: Name of the thread, unique within the project.
            user_id: Id of the user that the thread belongs to.
            kind: `chat`: a conversation. `goal`: a task that workers execute. `task`: a child thread.
            agent: Name of the agent that executes the thread.
            version: Version of the agent's definition.
            goal: Task of a goal, in words.
            title: Title for lists.
            tasks: Task list of a goal, in its stored form.
            parent_id: Id of the thread that creates this one.
            branching_stitch_id: Id of the parent's stitch at which the thread is created.
            depth: Number of ancestors. Set it together with `parent_id`.
            status: Status. None: `waiting` for a chat, `pending` for other kinds, so that a worker executes them.
            waiting_for: Waits of the thread. None: a chat waits for its next message.
            result: Result of a thread that has ended.
            wake_at: Time from which a worker can claim the thread. None: now, except for a waiting chat.
            state: Data that the engine or an application stores between runs.
            settings: Settings of the last run, such as its system text.
            extras: Additional data of an application.
            priority: Claim priority. Higher values first.
            expires_at: Time after which a purge deletes the thread, with a time zone.

        Raises:
            Refused: If a value is not valid.
        """
        return self._new_thread(
            without_none(
                id=id,
                key=key,
                user_id=user_id,
                kind=kind,
                agent=agent,
                version=version,
                goal=goal,
                title=title,
                tasks=list(tasks),
                parent_id=parent_id,
                branching_stitch_id=branching_stitch_id,
                status=status,
                waiting_for=None if waiting_for is None else list(waiting_for),
                result=result,
                wake_at=wake_at,
                state=state,
                settings=settings,
                extras=extras,
                priority=priority,
                expires_at=expires_at,
                depth=depth,
            )
        )

    def _new_thread(self, fields: Fields) -> Thread:
        """Return a thread with these fields of `Thread`, and defaults. See `new_thread`."""
        now = self.clock.now()
        if fields.get("key") is not None:
            fields = {**fields, "key": self.full_key(fields["key"])}
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
        if values.get("status") in TERMINAL_STATUSES:
            values["wake_at"] = None
        return Thread(**values)

    async def thread(self, ref: ThreadRef) -> Thread:
        """Return the current state of a thread.

        A `Thread` is read again, also if it belongs to another project.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        wanted = referenced_id(self, ref)
        if wanted is not None:
            result = await self._backend.get(Thread, (wanted,))
            # A caller that has a Thread was allowed to read it. An id alone does not give access to other projects.
            if result is not None and (isinstance(ref, Thread) or result.project == self.project):
                return result
        if isinstance(ref, str):
            codec.check_text(ref, "The key")
            where = (Where("project", "=", self.project), Where("key", "=", self.full_key(ref)))
            by_key = await self._backend.find(Find(Thread, where, limit=1))
            if by_key:
                return by_key[0]
        raise NotFound(f"Thread {wanted or ref} not found in project {self.project}.")

    async def ensure(
        self,
        key: str,
        *,
        user_id: str | None = None,
        kind: str = "chat",
        agent: str | None = None,
        goal: str | None = None,
        title: str | None = None,
        extras: Json | None = None,
        expires_at: datetime | None = None,
    ) -> Thread:
        """Return the thread with a key or id. If there is none, create it.

        Concurrent calls with the same key return the same thread. The fields of an existing thread do not change.

        Args:
            key: Key of the thread, or its id.
            user_id: Id of the user that the thread belongs to. None: any user.
            kind: Kind of a new thread.
            agent: Name of the agent of a new thread.
            goal: Task of a new thread, in words.
            title: Title of a new thread.
            extras: Additional data of an application, for a new thread.
            expires_at: Time after which a purge deletes a new thread, with a time zone.

        Raises:
            Refused: If the thread belongs to another user, or if a value is not valid.
        """
        try:
            thread = await self.thread(key)
        except NotFound:
            wanted = referenced_id(self, key)
            try:
                return await self.create(
                    id=wanted,
                    key=None if wanted else key,
                    user_id=user_id,
                    kind=kind,
                    agent=agent,
                    goal=goal,
                    title=title,
                    extras=extras,
                    expires_at=expires_at,
                )
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
        status: str | Collection[str] | None = None,
        agent: str | Collection[str] | None = None,
        kind: str | Collection[str] | None = None,
        user_id: str | Collection[str] | None = None,
        id: UUID | Collection[UUID] | None = None,
        key: str | Collection[str] | None = None,
        parent_id: UUID | Collection[UUID] | None = None,
        depth: int | None = None,
        until: datetime | None = None,
        model: str | Collection[str] | None = None,
        version: int | None = None,
        min_cost: float | None = None,
        error: bool | str | None = None,
        tag: str | Collection[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        evaluations: bool = True,
        sort: ThreadSort = "time",
        ascending: bool = False,
    ) -> list[Thread]:
        """Return threads by last activity, newest first, or in another order. A filter that is None is ignored.

        Args:
            limit: Maximum number of threads. None: all.
            offset: Number of newer threads to skip.
            after: Last thread of the previous page, instead of `offset`.
            since: Only threads with activity since this time.
            all_projects: Read the threads of all projects.
            status: Only threads with this status, or with one of these. All filters accept a collection, except
                `depth`.
            agent: Only threads of these agents.
            kind: Only threads of these kinds.
            user_id: Only threads of these users. Replays are left out, unless `kind` names them.
            id: Only threads with these ids.
            key: Only threads with these keys.
            parent_id: Only children of these threads.
            depth: Only threads with this number of ancestors. 0: root threads.
            until: Only threads without activity since this time.
            model: Only threads whose last run had this model, or one of these.
            version: Only threads of this version of their agent.
            min_cost: Only threads whose ended runs cost at least this, in US dollars.
            error: True: only threads with a failed run. A text: only if the error of the last failed run contains it.
            tag: Only threads with a run that has this tag. Of several tags, all of them.
            metadata: Only threads with runs that have these values in their metadata.
            evaluations: False: leave out threads whose keys start with `eval/`: those of evaluations and their judges.
            sort: `time`: by last activity. `status`: running, waiting, pending, failed, completed, cancelled, each by
                last activity. `latency`: by the duration of the last run. `tokens` and `cost`: by the sums of the ended
                runs. `model`: by the model of the last run, then by last activity. Threads without the figure or the
                model are left out.
            ascending: Start with the lowest value. By status: the last status, and its oldest thread.

        Raises:
            Refused: If a filter or the order is not valid.
        """
        order = order_of(sort, ascending)
        named = id is not None and limit is None and after is None and not offset
        where = self._threads(
            # As in `threads_by_id`, the ids select the rows, not the project and the order.
            all_projects or named,
            {
                "status": status,
                "agent": agent,
                "kind": kind,
                "user_id": user_id,
                "id": id,
                "key": key,
                "parent_id": parent_id,
                "depth": depth,
            },
            conditions_of(
                since=since,
                until=until,
                model=model,
                version=version,
                min_cost=min_cost,
                error=error,
                tag=tag,
                metadata=metadata,
                evaluations=evaluations,
                sort=sort,
            ),
        )
        if named:
            found = await self._backend.find(Find(Thread, where))
            threads = [thread for thread in found if all_projects or thread.project == self.project]
            return sorted(threads, key=lambda thread: place_of(thread, sort), reverse=not ascending)
        if sort == "status":
            wanted = STATUSES if status is None else [status] if isinstance(status, str) else status
            return await self._by_status(where, wanted, order, after, limit, offset)
        seen = place_of(after, sort) if after else None
        return await self._backend.find(Find(Thread, where, order=order, after=seen, limit=limit, offset=offset))

    async def _by_status(
        self,
        where: Sequence[Condition],
        wanted: Collection[str],
        order: Sequence[str],
        after: Thread | None,
        limit: int | None,
        offset: int,
    ) -> list[Thread]:
        """Return the threads of one status after the other. The database has no index in this order."""
        statuses = STATUSES if order[0].startswith("-") else STATUSES[::-1]
        threads: list[Thread] = []
        for status in statuses[statuses.index(after.status) if after else 0 :]:
            if status not in wanted:
                continue
            left = None if limit is None else limit + offset - len(threads)
            if left == 0:
                break
            seen = place_of(after, "time") if after and after.status == status else None
            of_status = (*where, Where("status", "=", status))
            threads += await self._backend.find(Find(Thread, of_status, order=order, after=seen, limit=left))
        return threads[offset:]

    async def threads_by_id(self, ids: Collection[UUID], *, all_projects: bool = False) -> dict[UUID, Thread]:
        """Return the threads with these ids, by id. Ids that this project does not have are left out.

        Args:
            ids: Ids of threads.
            all_projects: Read the threads of all projects.
        """
        if not ids:
            return {}
        # With a condition on the project, SQLite would read all its threads to find more than a few ids.
        threads = await self._backend.find(Find(Thread, (Where("id", "in", list(ids)),)))
        return {thread.id: thread for thread in threads if all_projects or thread.project == self.project}

    async def match_threads(self, text: str, *, limit: int = 10) -> list[Thread]:
        """Return the threads of this project whose id or short id starts with a text, the latest first.

        The last 8 to 12 characters of an id also match. Fewer than 4 characters match nothing.

        Args:
            text: Part of an id, as people type it.
            limit: Maximum number of threads.
        """
        project = Where("project", "=", self.project)
        return await matching_ids(self._backend, Thread, text, limit, (project,))

    async def find_threads(
        self, *where: Condition, order: Sequence[str] = (), limit: int | None = None
    ) -> list[Thread]:
        """Return the threads of this project that meet all conditions.

        Args:
            where: Conditions on fields of `Thread`.
            order: Fields to sort by. `-` before a name means descending.
            limit: Maximum number of threads. None: all.
        """
        return await self._backend.find(
            Find(Thread, (Where("project", "=", self.project), *where), order=order, limit=limit)
        )

    async def count(
        self,
        *,
        since: datetime | None = None,
        all_projects: bool = False,
        status: str | Collection[str] | None = None,
        agent: str | Collection[str] | None = None,
        kind: str | Collection[str] | None = None,
        user_id: str | Collection[str] | None = None,
        id: UUID | Collection[UUID] | None = None,
        key: str | Collection[str] | None = None,
        parent_id: UUID | Collection[UUID] | None = None,
        depth: int | None = None,
        until: datetime | None = None,
        model: str | Collection[str] | None = None,
        version: int | None = None,
        min_cost: float | None = None,
        error: bool | str | None = None,
        tag: str | Collection[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        evaluations: bool = True,
        most: int | None = None,
    ) -> int:
        """Return the number of threads that `threads` lists with the same filters.

        Args:
            since: Only threads with activity since this time.
            all_projects: Count the threads of all projects.
            status: Only threads with this status, or with one of these. All filters accept a collection, except
                `depth`.
            agent: Only threads of these agents.
            kind: Only threads of these kinds.
            user_id: Only threads of these users. Replays are left out, unless `kind` names them.
            id: Only threads with these ids.
            key: Only threads with these keys.
            parent_id: Only children of these threads.
            depth: Only threads with this number of ancestors. 0: root threads.
            until: Only threads without activity since this time.
            model: Only threads whose last run had this model, or one of these.
            version: Only threads of this version of their agent.
            min_cost: Only threads whose ended runs cost at least this, in US dollars.
            error: True: only threads with a failed run. A text: only if the error of the last failed run contains it.
            tag: Only threads with a run that has this tag. Of several tags, all of them.
            metadata: Only threads with runs that have these values in their metadata.
            evaluations: False: leave out threads whose keys start with `eval/`: those of evaluations and their judges.
            most: Number at which counting stops. None: all threads are counted, which takes longer the more there are.

        Raises:
            Refused: If a filter is not valid.
        """
        where = self._threads(
            all_projects,
            {
                "status": status,
                "agent": agent,
                "kind": kind,
                "user_id": user_id,
                "id": id,
                "key": key,
                "parent_id": parent_id,
                "depth": depth,
            },
            conditions_of(
                since=since,
                until=until,
                model=model,
                version=version,
                min_cost=min_cost,
                error=error,
                tag=tag,
                metadata=metadata,
                evaluations=evaluations,
            ),
        )
        return await self._backend.count(Find(Thread, where, limit=most))

    async def awaiting_person(self, *, limit: int | None = 50, after: Thread | None = None) -> list[Thread]:
        """Return threads that wait for a person, the longest wait first.

        Args:
            limit: Maximum number of threads. None: all.
            after: Last thread of the previous page.
        """
        find = self._awaiting_person()
        order = ("awaiting_person_since", "id")
        seen = (after.awaiting_person_since, after.id) if after else None
        return await self._backend.find(Find(Thread, find.where, order=order, after=seen, limit=limit))

    async def count_awaiting_person(self, *, most: int | None = None) -> int:
        """Return the number of threads that wait for a person.

        Args:
            most: Number at which counting stops. None: all threads are counted.
        """
        return await self._backend.count(replace(self._awaiting_person(), limit=most))

    async def children(self, ref: ThreadRef) -> list[Thread]:
        """Return the children of a thread, oldest first.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        head = await self.thread(ref)
        return await self._backend.find(Find(Thread, (Where("parent_id", "=", head.id),), order=("id",)))

    async def children_of(self, parents: Sequence[UUID], *, limit: int | None = None) -> list[Thread]:
        """Return the children of several threads, by parent and age.

        Args:
            parents: Ids of the parents.
            limit: Maximum number of children. None: all.
        """
        where = (Where("parent_id", "in", parents),)
        return await self._backend.find(Find(Thread, where, order=("parent_id", "id"), limit=limit))

    async def ancestors(self, ref: ThreadRef) -> list[Thread]:
        """Return the parent of a thread, its parent, and so on up to the root.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        chain: list[Thread] = []
        current = await self.thread(ref)
        while current.parent_id is not None:
            current = await self.thread(current.parent_id)
            chain.append(current)
        return chain

    async def tree(self, ref: ThreadRef) -> list[Thread]:
        """Return the thread and all its descendants, parents before children.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        return await descendants_of(self._backend, [await self.thread(ref)])

    async def request_cancel(self, ref: ThreadRef) -> list[Thread]:
        """Request the cancel of a thread and of all its descendants. Return those that have not ended, parents first.

        The holder of a thread ends it; a worker claims and ends a thread without a holder. One commit marks all known
        threads.
        A marked thread creates no more children, so the tree is read again until it has no unmarked thread.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
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
        """Request the cancel of all children of a thread, and of their descendants.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If this project has no such thread.
        """
        for child in await self.children(ref):
            if not child.ended:
                await self.request_cancel(child)

    async def _mark_cancelled(self, heads: Sequence[Thread]) -> None:
        """Set `cancel_requested` of threads, in one commit. Waiting threads become ready."""
        fields = {"cancel_requested": True, "wake_at": self.clock.now()}
        threads = sorted(heads, key=lambda head: (-head.depth, head.id))
        await self._backend.append(Commit([ThreadEdit(head.id, fields) for head in threads]))

    async def edit(
        self,
        ref: ThreadRef,
        *,
        title: str | EllipsisType | None = ...,
        extras: Json | EllipsisType = ...,
        priority: int | EllipsisType = ...,
        expires_at: datetime | EllipsisType | None = ...,
        cancel_requested: bool | EllipsisType = ...,
    ) -> None:
        """Set fields of a thread that need no lease. `...` leaves a field unchanged.

        Works while a worker holds the thread. The last writer wins.

        Args:
            ref: Thread, its id or its key in the project.
            title: Title for lists. None removes it.
            extras: Additional data of an application.
            priority: Claim priority. Higher values first.
            expires_at: Time after which a purge deletes the thread, with a time zone. None removes it.
            cancel_requested: True if the holder of the thread must end it.

        Raises:
            NotFound: If this project has no such thread.
            Refused: If a value is not valid.
        """
        values = {
            "title": title,
            "extras": extras,
            "priority": priority,
            "expires_at": expires_at,
            "cancel_requested": cancel_requested,
        }
        fields = {name: value for name, value in values.items() if value is not ...}
        head = await self.thread(ref)
        await self._writer.edit(ThreadEdit(head.id, head.validate_fields(fields)))

    async def delete(self, ref: ThreadRef, *, force: bool = False) -> int:
        """Delete a thread, its descendants and all of their records. Return the number of deleted threads.

        An open parent gets a delivery, because it may wait for the thread.

        Args:
            ref: Thread, its id or its key in the project.
            force: Delete the threads also if a worker holds one of them.

        Raises:
            NotFound: If this project has no such thread.
            ThreadBusy: If a worker holds one of the threads and `force` is False.
        """
        root, *below = await self.tree(ref)
        ids = [root.id, *(thread.id for thread in below)]
        deleted = await self._backend.delete(Find(Thread, (Where("id", "in", ids),)), force=force)
        if deleted:
            await self._report_deletion(root)
        return deleted

    async def _report_deletion(self, root: Thread) -> None:
        """Deliver to an open parent that the thread was deleted."""
        if root.parent_id is not None and not root.ended:
            report = Transaction(deliveries=[_deleted(root, self.clock.now())], depths={root.parent_id: root.depth - 1})
            with suppress(NotFound):
                await self._writer.deliver(report)

    async def delete_threads(self, ids: Collection[UUID], *, force: bool = False) -> int:
        """Delete root threads of this project with their descendants and records, all or none. Return the number of
        roots.

        Args:
            ids: Ids of the root threads.
            force: Delete the threads also if a worker holds one of them.

        Raises:
            ThreadBusy: If a worker holds one of the threads and `force` is False.
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

    def _threads(
        self, all_projects: bool, equal: Mapping[str, Any], others: Sequence[Condition]
    ) -> Sequence[Condition]:
        where: list[Condition] = [] if all_projects else [Where("project", "=", self.project)]
        for field, value in equal.items():
            if value is not None:
                one = isinstance(value, str | UUID | int)
                if field == "key":
                    value = self.full_key(value) if one else map(self.full_key, value)
                where.append(Where(field, "=", value) if one else Where(field, "in", list(value)))
        if equal["user_id"] is not None and equal["kind"] is None:
            # A user did not write to the replays of their threads.
            where.append(Where("kind", "!=", "replay"))
        return [*where, *others]


def referenced_id(store: ThreadsApi, ref: ThreadRef) -> UUID | None:
    """Return the id that a reference names, or None if it is a key. In a namespace, each text is a key.

    Args:
        store: Store in which the reference is used.
        ref: Thread, its id or its key.
    """
    if isinstance(ref, Thread):
        return ref.id
    return None if store.namespace is not None and isinstance(ref, str) else as_id(ref)


def id_conditions(text: str) -> list[list[Where]]:
    """Return the conditions of the ids that a text can mean. One of them must be met.

    Args:
        text: Start of an id, start of a short id, or end of an id.
    """
    text = text.lower()
    digits = text.replace("-", "")
    if len(digits) < SHORTEST_ID or len(digits) > 32 or not set(digits) <= set("0123456789abcdef"):
        return []
    conditions: list[list[Where]] = []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    if text in (digits, str(first)[: len(text)]):
        conditions.append([Where("id", ">=", first), Where("id", "<=", last)])
    if digits == text and len(text) <= _LAST_GROUP:
        conditions.append([Where("id", "like", f"%{text}{'_' * max(0, SHORT_ID - len(text))}")])
    return conditions


async def matching_ids(
    backend: FullBackend, kind: type[R], text: str, limit: int, where: Sequence[Where] = ()
) -> list[R]:
    """Return the records whose id a text can mean, the latest id first. See `id_conditions`."""
    matches: dict[UUID, R] = {}
    for condition in id_conditions(text):
        for record in await backend.find(Find(kind, (*where, *condition), order=("-id",), limit=limit)):
            matches[record.id] = record
    return sorted(matches.values(), key=lambda record: record.id, reverse=True)[:limit]


def without_none(**fields: Any) -> Fields:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value is not None}


def _deleted(child: Thread, now: datetime) -> Delivery:
    """Return the delivery to the parent of a thread that is deleted before it has ended."""
    assert child.parent_id is not None
    return child_report(child, child.parent_id, "cancelled", "It was deleted.", now)
