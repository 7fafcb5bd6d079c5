"""`archive` and `purge`: compress old turns or leave them to a lake, and delete threads with all of their records."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

from lockstitch.backend import Commit, Find, ThreadChange, Where
from lockstitch.errors import Conflict, NotFound, Refused, ThreadHeld
from lockstitch.lake.archives import synced_lake
from lockstitch.lenses import catalog
from lockstitch.model import (
    TERMINAL_STATUSES,
    DailyMetric,
    Feedback,
    Memory,
    NextMessageWait,
    QuestionWait,
    Schedule,
    Thread,
)
from lockstitch.store.core import StoreCore
from lockstitch.store.reports.statistics import daily_of_threads
from lockstitch.store.tables import installed_extensions, missing_extensions
from lockstitch.store.writes.archive import Archives, LakeArchiveReport

_PAGE = 200


async def archive(store: StoreCore, archives: Archives, before: datetime) -> int:
    """Archive old turns of all threads of the project. Return the number of turns."""
    number = 0
    async for head in threads(store, Where("created_at", "<", before), order="created_at"):
        number += await archives.archive(head, before)
    return number


async def archive_to_lake(store: StoreCore, archives: Archives, lake: str, before: datetime) -> LakeArchiveReport:
    """Remove the old turns of all threads of the project that a lake has."""
    if store._backend.lens(catalog.NAMES[0]) is None:
        raise Refused("A lake needs a store on SQLite or PostgreSQL. Copy this one with `lockstitch copy`.")
    synced = await asyncio.to_thread(synced_lake, lake)
    report = LakeArchiveReport()
    page: list[Thread] = []
    async for head in threads(store, Where("created_at", "<", before), order="created_at"):
        page.append(head)
        if len(page) == _PAGE:
            await archives.archive_to_lake(page, before, synced, report)
            page = []
    await archives.archive_to_lake(page, before, synced, report)
    return report


async def purge(store: StoreCore, before: datetime | None, user_id: str | None, force: bool) -> int:
    """Delete old or expired trees, or everything of a user. Return the number of threads. See `Store.purge`."""
    unknown = await missing_extensions(store._backend)
    if user_id is not None and unknown and not force:
        raise Refused(
            f"{', '.join(unknown)} may have records of this user, but its code is not installed. "
            "Nothing was deleted. Install it with its entry point, or force the deletion."
        )
    number = await (_purge_user(store, user_id, force) if user_id is not None else _purge_old(store, before))
    for extension in await installed_extensions(store._backend):
        if extension.on_purge is not None:
            await extension.on_purge(store, before, user_id)
    return number


async def _purge_old(store: StoreCore, before: datetime | None) -> int:
    """Delete trees without a change since then, and expired trees."""
    number = 0
    now = store.clock.now()
    if before is not None:
        async for root in _roots(store, "created_at", before):
            number += await _purge_tree(store, root, before, now)
    async for root in _roots(store, "expires_at", now):
        number += await _purge_tree(store, root, None, now)
    return number


def _roots(store: StoreCore, field: str, until: datetime) -> AsyncIterator[Thread]:
    """Yield the roots with a time up to a time, the earliest first. An index has that order."""
    return threads(store, Where(field, "<=", until), Where("parent_id", "is null"), order=field)


async def preview(store: StoreCore, before: datetime | None, user_id: str | None) -> list[Thread]:
    """Return the threads that `purge` would delete now. See `Store.purge_preview`."""
    chosen: dict[UUID, Thread] = {}
    if user_id is not None:
        async for head in threads(store, Where("user_id", "=", user_id)):
            chosen |= {thread.id: thread for thread in await _tree_or_none(store, head)}
        return list(chosen.values())
    now = store.clock.now()
    for field, until in (("expires_at", now), ("created_at", before)):
        if until is None:
            continue
        async for root in _roots(store, field, until):
            tree = await _tree_or_none(store, root)
            if tree and _is_due(tree, before, now):
                chosen |= {thread.id: thread for thread in tree}
    return list(chosen.values())


async def _purge_tree(store: StoreCore, root: Thread, before: datetime | None, now: datetime) -> int:
    """Delete a tree if it is old or expired and no thread of it executes. Return the number of threads."""
    tree = await _tree_or_none(store, root)
    if not tree:
        return 0  # another purge has deleted it
    if not _is_due(tree, before, now):
        return 0
    # False: the tree has changed since, or another purge has deleted it.
    return len(tree) if await _delete_counted(store, tree) else 0


def _is_due(tree: list[Thread], before: datetime | None, now: datetime) -> bool:
    """True if a tree is old or expired and no thread of it executes. The root is the first thread."""
    root = tree[0]
    expired = root.expires_at is not None and root.expires_at <= now
    old = before is not None and all(thread.updated_at < before for thread in tree)
    return (expired or old) and all(map(at_rest, tree))


async def _purge_user(store: StoreCore, user_id: str, force: bool) -> int:
    """Delete all records of a user. If a worker holds a thread of the user, raises `ThreadHeld` first."""
    where = Where("user_id", "=", user_id)
    async for head in threads(store, where):
        _check_free(await _tree_or_none(store, head), force)
    number = 0
    async for head in threads(store, where):
        # Empty: deleted with an ancestor that also belongs to the user, or by another purge.
        while tree := await _tree_or_none(store, head):
            _check_free(tree, force)
            if await _delete_counted(store, tree):
                number += len(tree)
                break
    for kind in (Memory, Feedback, Schedule):
        await store._backend.delete(Find(kind, (Where("project", "=", store.project), where)))
    return number


async def _tree_or_none(store: StoreCore, head: Thread) -> list[Thread]:
    """Return the tree of a thread, or nothing if the thread was deleted since."""
    try:
        return await store.tree(head.id)
    except NotFound:
        return []


def _check_free(tree: list[Thread], force: bool) -> None:
    held = next((thread for thread in tree if thread.held), None)
    if held is not None and not force:
        raise ThreadHeld(
            f"Thread {held.id} is held by worker {held.worker_id}. Stop it first, or force the deletion.",
            thread_id=held.id,
        )


def at_rest(thread: Thread) -> bool:
    """True if the thread has ended, or is a chat between two turns."""
    if thread.held:
        return False
    between = thread.status == "waiting" and all(
        isinstance(wait, NextMessageWait | QuestionWait) for wait in thread.waits
    )
    return thread.status in TERMINAL_STATUSES or (thread.kind in ("chat", "trace") and between)


async def threads(store: StoreCore, *where: Where, order: str = "id") -> AsyncIterator[Thread]:
    """Yield all threads of the project that meet the conditions, by a field or by their ids. Reads page by page."""
    fields = tuple(dict.fromkeys((order, "id")))
    last: Thread | None = None
    while True:
        page = await store._backend.find(
            Find(
                Thread,
                (Where("project", "=", store.project), *where),
                order=fields,
                after=[getattr(last, field) for field in fields] if last else None,
                limit=_PAGE,
            )
        )
        for head in page:
            yield head
        if len(page) < _PAGE:
            return
        last = page[-1]


async def _delete_counted(store: StoreCore, tree: list[Thread]) -> bool:
    """Delete a tree and add its runs to the daily metrics, in one commit. False if a thread has changed since.

    So a run is counted exactly once, also if two purges delete the same tree or a process ends between two commits.
    """
    metrics: list[DailyMetric] = []
    for start in range(0, len(tree), _PAGE):
        metrics += await daily_of_threads(store._backend, [head.id for head in tree[start : start + _PAGE]])
    going = sorted(tree, key=lambda head: (-head.depth, head.id))
    changes = [ThreadChange(head.id, head.fence, head.position, worker_id=head.worker_id) for head in going]
    try:
        await store._backend.append(Commit(records=metrics, superseded=changes))
    except Conflict:
        return False
    await store._report_deletion(tree[0])
    return True
