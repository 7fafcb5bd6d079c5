"""`SyncStoreBase`: open and close a store on the loop of a portal."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from lockstitch.store import Store
from lockstitch.store.portal import CLOSE_TIMEOUT, Portal
from lockstitch.store.store import on_loop

INTERRUPT_TIMEOUT = 0.5
"""Seconds that closing may take after an interrupt."""


class SyncStoreBase:
    """The part of `SyncStore` that is not generated: its portal, and how it opens and closes."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        async def open_on_loop() -> Store:
            return open_store()

        self._portal = Portal()
        try:
            # On the loop, because a backend may belong to the loop on which it is created.
            self._store = self._portal.call(open_on_loop())
        except BaseException as exc:
            self._portal.close(_timeout(exc))
            raise

    def __enter__(self) -> Self:
        try:
            self._portal.call(self._store.__aenter__())
        except BaseException as exc:
            self._portal.close(_timeout(exc))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(_timeout(exc))

    @property
    def portal(self) -> Portal:
        """The event loop of this store, to call other async functions on it."""
        return self._portal

    @property
    def async_store(self) -> Store:
        """The store for code that runs on the loop of the portal."""
        return self._store

    def _close(self, timeout: float) -> None:
        if not self._portal.alive:
            return
        try:
            with suppress(TimeoutError):
                self._portal.call(self._store.close(), timeout)
        finally:
            self._portal.close(timeout)

    def _on_own_loop(self) -> Store:
        """Return this store for callers on the loop of another store."""
        return on_loop(self._store, self._portal.submit)


def _timeout(exc: BaseException | None) -> float:
    return INTERRUPT_TIMEOUT if isinstance(exc, KeyboardInterrupt) else CLOSE_TIMEOUT
