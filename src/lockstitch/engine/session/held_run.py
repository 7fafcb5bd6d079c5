"""`HeldRun` and `execution_resources()`: a thread for the lease keeper, and the resources of its execution."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from lockstitch.engine.session.run_context import RunContext
from lockstitch.model import Json

_log = logging.getLogger("lockstitch")


class HeldRun:
    """A thread in execution, for the lease keeper: before its `RunContext` exists, and with it.

    The lease is renewed while a deps factory works. A lease that is lost in that time shows at the first commit.
    """

    def __init__(self, thread_id: UUID) -> None:
        self.thread_id = thread_id
        self.context: RunContext | None = None

    @property
    def activity(self) -> Json:
        """The current action and its start time."""
        activity = None if self.context is None else self.context.activity
        return {} if activity is None else activity.as_json()

    @property
    def accepts_cancel(self) -> bool:
        """True if the run can be cancelled and no cancel was requested yet."""
        return self.context is not None and self.context.accepts_cancel

    def interrupt(self) -> None:
        """Cancel the current action, because a cancel was requested."""
        if self.context is not None:
            self.context.interrupt()

    def mark_lost(self, why: str) -> None:
        """Cancel the current action, because this process no longer holds the thread."""
        if self.context is not None:
            self.context.mark_lost(why)


@asynccontextmanager
async def execution_resources(thread_id: UUID) -> AsyncGenerator[AsyncExitStack]:
    """Yield a stack of context managers. It is closed when the execution of the thread ends here.

    A context manager gets the error that ends the execution, and cannot suppress it. If its exit raises an error, the
    error is logged, because the outcome of the run is in the record by then.
    """
    stack = AsyncExitStack()
    try:
        yield stack
    except BaseException as exc:
        await _close(stack, exc, thread_id)
        raise
    await _close(stack, None, thread_id)


async def _close(stack: AsyncExitStack, exc: BaseException | None, thread_id: UUID) -> None:
    try:
        await stack.__aexit__(None if exc is None else type(exc), exc, None if exc is None else exc.__traceback__)
    except Exception as failure:  # code of the application
        if failure is not exc:
            _log.exception("The exit of the deps of thread %s failed", thread_id)
