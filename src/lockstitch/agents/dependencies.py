"""`enter_deps()`: call the deps factory of an agent, and enter its context manager."""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any, cast

from lockstitch.engine.config import RunStart

DepsFactory = Callable[[RunStart], Any]
"""Returns the `deps` of a run, an awaitable of them, or a context manager that a process exits when it stops executing
the run."""


async def enter_deps(deps: Any, start: RunStart, resources: AsyncExitStack) -> Any:
    """Return the `deps` of an agent. If they are a factory, call it; `resources` exits its context manager."""
    if not callable(deps):
        return deps
    made: Any = cast("DepsFactory", deps)(start)
    # An object can be both. Then its context manager also closes it.
    if inspect.isawaitable(made) and not isinstance(made, AbstractAsyncContextManager):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        return await resources.enter_async_context(cast("AbstractAsyncContextManager[Any]", made))
    if isinstance(made, AbstractContextManager):
        return resources.enter_context(cast("AbstractContextManager[Any]", made))
    return made
