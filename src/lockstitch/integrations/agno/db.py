"""`LockstitchDb` and `AsyncLockstitchDb`: databases of Agno that keep everything in a store."""

# pyright: basic, reportMissingImports=false

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from agno.db.base import AsyncBaseDb, BaseDb

from lockstitch.integrations.agno.record_methods import RecordMethods
from lockstitch.integrations.agno.session_methods import SessionMethods
from lockstitch.integrations.agno.trace_methods import TraceMethods
from lockstitch.integrations.loops import LoopBound
from lockstitch.store import Store

NAMESPACE: Final = "agno"
"""Namespace of the keys of threads: the session `1` of Agno has the key `agno:1`."""

_THEMES: Final = (SessionMethods, RecordMethods, TraceMethods)

Method = Callable[..., Any]


def _methods_of(theme: type) -> dict[str, Method]:
    return {name: method for name, method in vars(theme).items() if inspect.iscoroutinefunction(method)}


def _mixin(name: str, adapt: Callable[[type, Method], Method]) -> type:
    """Return a class with the public methods of all themes, adapted to a kind of database."""
    members: dict[str, Any] = {
        method_name: adapt(theme, method)
        for theme in _THEMES
        for method_name, method in _methods_of(theme).items()
        if not method_name.startswith("_")
    }
    return type(name, (), members)


def _blocking(theme: type, method: Method) -> Method:
    """Return a method that waits for its result in the thread of the caller."""

    @wraps(method)
    def call(self: Any, *values: Any, **named: Any) -> Any:
        return self._wait(method(self._themes[theme], *values, **named))

    # `wraps` refers to a coroutine function, and this is none.
    blocking: Any = call
    blocking.__signature__ = inspect.signature(method)
    del blocking.__wrapped__
    return blocking


def _awaitable(theme: type, method: Method) -> Method:
    """Return a method that works on any loop."""

    @wraps(method)
    async def call(self: Any, *values: Any, **named: Any) -> Any:
        return await self._on_loop(method(self._themes[theme], *values, **named))

    return call


class LockstitchDb(_mixin("_BlockingMethods", _blocking), LoopBound, BaseDb):
    """A database of Agno for programs without await. Agno's `BaseDb` describes its methods.

    Each session is a thread. Its methods work from any thread, except on the loop of the store itself.
    """

    def __init__(self, store: Store, *, id: str | None = None) -> None:
        """Create a database for the project of a store.

        Args:
            store: Open store.
            id: Id of the database in Agno. None: `lockstitch-` and the project.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        LoopBound.__init__(self, store)
        BaseDb.__init__(self, id=id or f"lockstitch-{store.project}")
        self._themes = _themes(store)

    def close(self) -> None:
        """Close the store, if `open` has opened it."""
        LoopBound.close(self)


class AsyncLockstitchDb(_mixin("_AsyncMethods", _awaitable), LoopBound, AsyncBaseDb):
    """A database of Agno for programs with await. Agno's `AsyncBaseDb` describes its methods.

    Each session is a thread. Its methods work from any loop.
    """

    def __init__(self, store: Store, *, id: str | None = None) -> None:
        """Create a database for the project of a store.

        Args:
            store: Open store.
            id: Id of the database in Agno. None: `lockstitch-` and the project.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        LoopBound.__init__(self, store)
        AsyncBaseDb.__init__(self, id=id or f"lockstitch-{store.project}")
        self._themes = _themes(store)

    async def close(self) -> None:
        """Close the store, if `open` has opened it."""
        LoopBound.close(self)


def _themes(store: Store) -> dict[type, Any]:
    view = store.in_namespace(NAMESPACE)
    return {theme: theme(view) for theme in _THEMES}
