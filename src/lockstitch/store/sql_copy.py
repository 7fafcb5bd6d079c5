"""`SqlCopy`: a copy of the record in SQLite, for `sql` and `lens` of a backend without SQL."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from lockstitch.backend import HasVersion
from lockstitch.store.core import StoreCore
from lockstitch.store.maintenance import copy as copying

S = TypeVar("S", bound=StoreCore)

IDLE = 60.0
"""Seconds that a copy stays in memory after the last statement."""


@dataclass(eq=False, slots=True)
class _Copy(Generic[S]):
    """A copy, the version of the record that it contains, and the number of statements that read it."""

    store: S
    version: object
    users: int = 0


class SqlCopy(Generic[S]):
    """The copy of one store. All views of the store share it.

    Copying takes longer than most statements, so the copy stays until the record changes. If the record changes
    during the copying, only the statement that started it reads the copy.
    """

    def __init__(self, open_memory_store: Callable[[], S]) -> None:
        self._open_memory_store = open_memory_store
        self._latest: _Copy[S] | None = None
        self._copying = asyncio.Lock()
        self._expiry: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self, source: StoreCore) -> AsyncGenerator[S]:
        """Yield a store that has all records that were committed before this call."""
        async with self._copying:
            self._stop_expiry()
            copy = await self._current(source)
            copy.users += 1
        try:
            yield copy.store
        finally:
            copy.users -= 1
            if not copy.users:
                if copy is self._latest:
                    self._stop_expiry()
                    self._expiry = asyncio.get_running_loop().call_later(IDLE, self._expire)
                else:
                    await copy.store.close()

    async def close(self) -> None:
        """Delete the copy. A statement that still reads it deletes it at its end."""
        self._stop_expiry()
        copy, self._latest = self._latest, None
        if copy is not None and not copy.users:
            await copy.store.close()

    async def _current(self, source: StoreCore) -> _Copy[S]:
        version = await _version(source)
        if self._latest is not None and version is not None and self._latest.version == version:
            return self._latest
        # The old copy first: both may not fit into the memory.
        await self.close()
        store = self._open_memory_store()
        await store.__aenter__()
        try:
            await copying.copy(source, store, held=True)
            copy = _Copy(store, version)
            if version is not None and await _version(source) == version:
                self._latest = copy
        except BaseException:
            await store.close()
            raise
        return copy

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        self._expiring = asyncio.get_running_loop().create_task(self.close())


async def _version(source: StoreCore) -> object:
    backend = source._backend
    return await backend.version() if isinstance(backend, HasVersion) else None
