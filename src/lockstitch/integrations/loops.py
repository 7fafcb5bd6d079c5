"""`OnStoreLoop`, `LoopBound`: objects whose methods work on the loop of their store, from any loop and any thread.

`checked_store()` refuses arguments that are no open store.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from lockstitch.errors import Refused
from lockstitch.store import Store, open_store
from lockstitch.store.portal import Portal

T = TypeVar("T")


def checked_store(store: object) -> Store:
    """Return the store. Raises `Refused` if it is a URL or a store of the blocking API."""
    if not isinstance(store, Store):
        kind = f"{type(store).__module__}.{type(store).__name__}".removeprefix("builtins.")
        raise Refused(f"The store is of the type {kind}. Pass the store of `async with open_store(url) as store`.")
    return store


class OnStoreLoop:
    """The part of an adapter that finds the loop of its store.

    Create it in a coroutine of that loop. Programs without a loop call `open`.
    """

    def __init__(self, store: Store) -> None:
        checked_store(store)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            name = type(self).__name__
            raise Refused(
                f"{name} needs the event loop of its store. Create it in a coroutine, or use {name}.open(url)."
            ) from None
        self.store = store
        """The store."""
        self._portal: Portal | None = None

    @classmethod
    def _open(cls, url: str, project: str, create: Callable[[Store], Self]) -> Self:
        """Open a store on a loop in a background thread. `create` returns the object of the store."""

        async def opened_store() -> Self:
            return create(await open_store(url, project=project).__aenter__())

        portal = Portal()
        try:
            opened = portal.call(opened_store())
        except BaseException:
            portal.close()
            raise
        opened._portal = portal
        return opened

    def close(self) -> None:
        """Close the store and the loop that `open` started. Else this does nothing."""
        portal, self._portal = self._portal, None
        if portal is not None:
            try:
                portal.call(self.store.close())
            finally:
                portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs on the loop of the store."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, from a thread other than that of the loop."""
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside or not self._loop.is_running():
            work.close()
            raise Refused(
                "The loop of the store cannot wait for itself. Call the async method."
                if inside
                else "The loop of the store has ended. Open the store again."
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupt reaches the waiting thread only, not the loop.
            future.cancel()
            raise


class LoopBound(OnStoreLoop):
    """An adapter whose constructor needs only a store."""

    @classmethod
    def open(cls, url: str, *, project: str = "default", **options: Any) -> Self:
        """Open a store on a loop in a background thread, for programs that use no loop. Close it with `close`.

        Args:
            url: URL of the store.
            project: Project of the threads.
            options: Options of the constructor.

        Returns:
            The object, which is also a context manager.

        Raises:
            StoreUnreachable: If the store cannot be opened.
        """
        return cls._open(url, project, lambda store: cls(store, **options))
