"""The counts of the tabs of the list of threads, cached for a short time. Counting stops at a number."""

from typing import Final

from lockstitch.server.pages.common.format import SHOWN_COUNT, TimedCache
from lockstitch.server.pages.threads.filters import DEFAULT_CONDITIONS, TABS
from lockstitch.store import Store

_MOST: Final = SHOWN_COUNT + 1
"""Number at which counting stops, so that a page costs the same with any number of threads."""

_counts = TimedCache[dict[str, int]](2.0)


async def counts_of(store: Store) -> dict[str, int]:
    """Return the number of threads by status, and of threads that need a person, for the filter `capped`.

    `failed` is the number of threads with a failed run, also of other statuses. Replays and threads of evaluations
    are counted only if they need a person.
    """
    return await _counts.get((store.identity, store.project), lambda: _count(store))


def forget() -> None:
    """Clear the cached counts."""
    _counts.forget()


async def _count(store: Store) -> dict[str, int]:
    words = [word for word, _ in TABS if word not in ("", "person")]
    result = {word: await store.count(status=word, **DEFAULT_CONDITIONS, most=_MOST) for word in words}
    return {
        **result,
        "": sum(result.values()),
        "person": await store.count_awaiting_person(most=_MOST),
        "failed": await store.count(error=True, **DEFAULT_CONDITIONS, most=_MOST),
    }
