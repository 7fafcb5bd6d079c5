"""`archive` and `purge`: compress old turns, and delete threads with all of their records."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from collections.abc import AsyncIterator
from datetime import datetime

from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound, Refused, ThreadHeld
from lockstitch.model import TERMINAL_STATUSES, Feedback, Memory, NextMessageWait, QuestionWait, Thread
from lockstitch.store.core import StoreCore
from lockstitch.store.reports.statistics import metrics_to_keep
from lockstitch.store.tables import installed_extensions, missing_extensions
from lockstitch.store.writes.archive import Archives

_PAGE = 200


async def archive(store: StoreCore, archives: Archives, before: datetime) -> int:
    """Archive old turns of all threads of the project. Return the number of turns."""
    number = 0
    async for head in threads(store, Where("created_at", "<", before)):
        if head.first_position <= head.position:
            number += await archives.archive(head, before)
    return number


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
    due = Where("created_at", "<", before) if before else Where("expires_at", "<=", now)
    async for root in threads(store, due, Where("parent_id", "is null")):
        number += await _purge_tree(store, root, before, now)
    if before is not None:
        async for root in threads(store, Where("expires_at", "<=", now), Where("parent_id", "is null")):
            number += await _purge_tree(store, root, None, now)
    return number


async def _purge_tree(store: StoreCore, root: Thread, before: datetime | None, now: datetime) -> int:
    """Delete a tree if it is old or expired and no thread of it executes. Return the number of threads."""
    tree = await store.tree(root)
    expired = root.expires_at is not None and root.expires_at <= now
    old = before is not None and all(thread.updated_at < before for thread in tree)
    if not (expired or old) or not all(map(at_rest, tree)):
        return 0
    await _add_to_daily_metrics(store, tree)
    return await store.delete(root)


async def _purge_user(store: StoreCore, user_id: str, force: bool) -> int:
    """Delete all records of a user. If a worker holds a thread of the user, raises `ThreadHeld` first."""
    where = Where("user_id", "=", user_id)
    async for head in threads(store, where):
        held = [thread for thread in await store.tree(head) if thread.held]
        if held and not force:
            raise ThreadHeld(
                f"Thread {held[0].id} is held by worker {held[0].worker_id}. Stop it first, or force the deletion.",
                thread_id=held[0].id,
            )
    number = 0
    async for head in threads(store, where):
        try:
            tree = await store.tree(head)
        except NotFound:
            continue  # deleted with another thread of the user that is its ancestor
        await _add_to_daily_metrics(store, tree)
        number += await store.delete(head, force=force)
    for kind in (Memory, Feedback):
        await store._backend.delete(Find(kind, (Where("project", "=", store.project), where)))
    return number


def at_rest(thread: Thread) -> bool:
    """True if the thread has ended, or is a chat between two turns."""
    if thread.held:
        return False
    between = thread.status == "waiting" and all(
        isinstance(wait, NextMessageWait | QuestionWait) for wait in thread.waits
    )
    return thread.status in TERMINAL_STATUSES or (thread.kind in ("chat", "trace") and between)


async def threads(store: StoreCore, *where: Where) -> AsyncIterator[Thread]:
    """Yield all threads of the project that meet the conditions, in the order of their ids. Reads page by page."""
    last: Thread | None = None
    while True:
        page = await store._backend.find(
            Find(
                Thread,
                (Where("project", "=", store.project), *where),
                order=("id",),
                after=(last.id,) if last else None,
                limit=_PAGE,
            )
        )
        for head in page:
            yield head
        if len(page) < _PAGE:
            return
        last = page[-1]


async def _add_to_daily_metrics(store: StoreCore, tree: list[Thread]) -> None:
    """Add the runs of these threads to the daily metrics before they are deleted."""
    for start in range(0, len(tree), _PAGE):
        totals = await metrics_to_keep(store._backend, [head.id for head in tree[start : start + _PAGE]])
        if totals:
            await store._backend.put(totals)
