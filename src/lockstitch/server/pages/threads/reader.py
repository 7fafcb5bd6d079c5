"""`listed()`: one page of the list of threads, or the threads that a search finds. `matching()`: all its threads."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import NotFound
from lockstitch.model import Thread
from lockstitch.model.ids import SHORT_ID
from lockstitch.server.pages.common import rows as waiting
from lockstitch.server.pages.threads.filters import Filters
from lockstitch.store import SearchHit, Store

PAGE: Final = 50
NEEDING: Final = 20
"""Maximum number of rows in the group that needs a person, above other threads."""
_MOST_NEEDING: Final = 200
"""Maximum number of threads that need a person among which the other filters select."""
SEARCH_LIMIT: Final = 50
"""Maximum number of search results."""


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of the list: threads that need a person, longest first, and other threads in the order of the list."""

    needing: list[Thread]
    others: list[Thread]
    has_more: bool
    """True if there are more threads."""
    needing_count: int = 0
    """Number of threads that need a person, also those on other pages."""
    positions: Mapping[UUID, int] = field(default_factory=dict[UUID, int])
    """Positions of stitches that a search has found, by thread."""
    unindexed: int = 0
    """Number of stitches that a search has left out."""


async def listed(store: Store, filters: Filters, *, after: str = "") -> ThreadPage:
    """Return the page after a thread, or the first page. An order other than by activity has no first group."""
    conditions = filters.conditions(store.clock.now())
    by_time = filters.order == "time" and not filters.ascending
    if filters.q:
        return await _found(store, filters, conditions, grouped=by_time)
    last = await store.thread(after) if after else None
    if filters.status == "person":
        return await _needing(store, conditions, last, PAGE)
    first = ThreadPage([], [], has_more=False)
    grouped = by_time and filters.status in ("", "waiting")
    if grouped and last is None:
        # Replays and threads of evaluations that need a person are part of the group.
        first = await _needing(store, conditions, None, NEEDING)
    order: dict[str, Any] = {"sort": filters.order, "ascending": bool(filters.ascending)}
    threads = await store.threads(limit=PAGE + 1, after=last, **order, **_of_list(filters, conditions))
    # Threads that need a person are in the first group.
    others = [thread for thread in threads[:PAGE] if not grouped or not waiting.person_waits_of(thread)]
    return replace(first, others=others, has_more=len(threads) > PAGE)


async def _needing(store: Store, conditions: dict[str, Any], last: Thread | None, limit: int) -> ThreadPage:
    """Return the threads that need a person, longest first. A later page has them as its other rows."""
    if conditions:
        threads = await _matching(store, await store.awaiting_person(limit=_MOST_NEEDING), conditions)
        count = len(threads)
        if last is not None:
            threads = [thread for thread in threads if _wait_of(thread) > _wait_of(last)]
    else:
        threads = await store.awaiting_person(limit=limit + 1, after=last)
        count = len(threads) if last is None and len(threads) <= limit else await store.count_awaiting_person()
    shown, has_more = threads[:limit], len(threads) > limit
    return ThreadPage([], shown, has_more) if last else ThreadPage(shown, [], has_more, needing_count=count)


def _wait_of(thread: Thread) -> tuple[datetime, UUID]:
    return thread.awaiting_person_since or thread.updated_at, thread.id


async def _found(store: Store, filters: Filters, conditions: dict[str, Any], *, grouped: bool) -> ThreadPage:
    """Return the threads that a search finds."""
    threads, positions = await _searched(store, filters, conditions)
    wanting = [thread for thread in threads if waiting.person_waits_of(thread)]
    others = [thread for thread in threads if thread not in wanting] if grouped else threads
    if filters.status == "person":
        others = []
    elif not grouped:
        wanting = []
    return ThreadPage(wanting, others, False, len(wanting), positions, await store.unindexed())


async def matching(store: Store, filters: Filters) -> dict[str, Any]:
    """Return the arguments with which `Store.threads` returns the threads of the list, without its first group."""
    conditions = filters.conditions(store.clock.now())
    if filters.status == "person":
        conditions["id"] = [thread.id for thread in await store.awaiting_person(limit=_MOST_NEEDING)]
    if filters.q:
        ids = [*await _named(store, filters.q), *(hit.thread_id for hit in await _hits(store, filters.q))]
        conditions["id"] = sorted(set(ids) & set(conditions.get("id", ids)))
    return {"sort": filters.order, "ascending": bool(filters.ascending), **_of_list(filters, conditions)}


def _of_list(filters: Filters, conditions: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions of the list with the default ones. Without filters only root threads match."""
    return {**filters.default_conditions, **(conditions or {"depth": 0})}


async def _searched(store: Store, filters: Filters, conditions: dict[str, Any]) -> tuple[list[Thread], dict[UUID, int]]:
    """Return the threads that a text names, and those with its words, best matches first, or in the order of the list.

    The positions are those of the best matches in the logs of the threads.
    """
    ids = await _named(store, filters.q)
    hits = await _hits(store, filters.q)
    ids = list(dict.fromkeys([*ids, *(hit.thread_id for hit in hits)]))
    if not ids:
        return [], {}
    order: dict[str, Any] = {"sort": filters.order, "ascending": bool(filters.ascending)}
    threads = await store.threads(limit=None, id=ids, **order, **conditions)
    if filters.best_first:
        threads.sort(key=lambda thread: ids.index(thread.id))
    positions: dict[UUID, int] = {}
    for hit in hits:
        if hit.position is not None:
            positions.setdefault(hit.thread_id, hit.position)
    return threads, positions


async def _hits(store: Store, text: str) -> list[SearchHit]:
    return await store.search(text, limit=SEARCH_LIMIT, complete=False)


async def _named(store: Store, text: str) -> list[UUID]:
    """Return the ids of the threads with this key, or with an id that the text can mean: of a thread, run or stitch."""
    ids: list[UUID] = []
    with suppress(NotFound):
        ids.append((await store.thread(text)).id)
    if len(text) >= SHORT_ID:
        ids += [thread.id for thread in await store.match_threads(text, limit=PAGE)]
        ids += [run.thread_id for run in await store.match_runs(text, limit=PAGE)]
        with suppress(NotFound):
            ids.append((await store.stitch(text)).thread_id)
    return ids


async def _matching(store: Store, threads: list[Thread], conditions: dict[str, Any]) -> list[Thread]:
    """Return the threads that meet the conditions, in their order."""
    if not threads:
        return []
    ids = {thread.id for thread in await store.threads(limit=None, id=[thread.id for thread in threads], **conditions)}
    return [thread for thread in threads if thread.id in ids]
