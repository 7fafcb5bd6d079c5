"""`listed()`: one page of the list of threads, or the threads that a search finds."""

from dataclasses import dataclass
from typing import Any, Final

from lockstitch.errors import NotFound
from lockstitch.model import Thread
from lockstitch.server.pages.common import rows as waiting
from lockstitch.server.pages.threads.filters import Filters
from lockstitch.store import Store

PAGE: Final = 50
SEARCH_LIMIT: Final = 100
"""Maximum number of search results."""


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of the list: threads that need a person, longest first, and other threads in the order of the list."""

    needing: list[Thread]
    others: list[Thread]
    has_more: bool
    """True if there are more threads."""


async def listed(store: Store, filters: Filters, *, after: str = "") -> ThreadPage:
    """Return the page after a thread, or the first page. An order other than by activity has no first group."""
    conditions = filters.conditions(store.clock.now())
    by_time = filters.order == "time" and not filters.ascending
    if filters.q:
        threads = await _searched(store, filters, conditions)
        wanting = [thread for thread in threads if waiting.person_waits_of(thread)]
        if filters.status == "person":
            return ThreadPage(wanting, [], has_more=False)
        if not by_time:
            return ThreadPage([], threads, has_more=False)
        return ThreadPage(wanting, [thread for thread in threads if thread not in wanting], has_more=False)
    needing: list[Thread] = []
    if filters.status == "person" or (by_time and not after and filters.status in ("", "waiting")):
        found = (await waiting.needing(store))[0]
        needing = await _matching(store, found, conditions) if conditions else found
    if filters.status == "person":
        return ThreadPage(needing, [], has_more=False)
    last = await store.thread(after) if after else None
    order: dict[str, Any] = {"sort": filters.order, "ascending": bool(filters.ascending)}
    # Without filters only root threads match.
    threads = await store.threads(limit=PAGE + 1, after=last, **order, **(conditions or {"depth": 0}))
    # Threads that need a person are in the first group.
    grouped = by_time and filters.status in ("", "waiting")
    others = [thread for thread in threads[:PAGE] if not grouped or not waiting.person_waits_of(thread)]
    return ThreadPage(needing, others, has_more=len(threads) > PAGE)


async def _searched(store: Store, filters: Filters, conditions: dict[str, Any]) -> list[Thread]:
    """Return the threads with this id or key, or with these words, best matches first, or in the order of the list."""
    try:
        ids = [(await store.thread(filters.q)).id]
    except NotFound:
        ids = []
    ids += [hit.thread_id for hit in await store.search(filters.q, limit=SEARCH_LIMIT)]
    ids = list(dict.fromkeys(ids))
    if not ids:
        return []
    sort, ascending = filters.order, bool(filters.ascending)
    threads = await store.threads(limit=None, id=ids, sort=sort, ascending=ascending, **conditions)
    if filters.sort or filters.ascending:
        return threads
    return sorted(threads, key=lambda thread: ids.index(thread.id))


async def _matching(store: Store, threads: list[Thread], conditions: dict[str, Any]) -> list[Thread]:
    """Return the threads that meet the conditions, in their order."""
    if not threads:
        return []
    ids = {thread.id for thread in await store.threads(limit=None, id=[thread.id for thread in threads], **conditions)}
    return [thread for thread in threads if thread.id in ids]
