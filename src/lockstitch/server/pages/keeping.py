"""Answers that are good for a moment: asked by every page, and not worth asking the store each time."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 500


class Kept(Generic[T]):
    """Values by key, each kept for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        value = await make()
        now = time.monotonic()
        self._known[key] = (now + self._seconds, value)
        self._known.move_to_end(key)
        while len(self._known) > _MOST or next(iter(self._known.values()))[0] < now:
            self._known.popitem(last=False)
        return value

    def forget(self) -> None:
        self._known.clear()
