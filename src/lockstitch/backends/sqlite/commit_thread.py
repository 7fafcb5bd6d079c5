"""`CommitThread`: runs the slow commits of one store, one by one, outside the event loop.

It does what `run_in_executor` does, in half of the processor time: a job needs no future of another library, and no
chain of callbacks between two futures.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple


class _Job(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: Callable[[Any], None]


class CommitThread:
    """A thread that starts with its first job and ends with `close`, or when its owner no longer exists."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(
        self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop, done: Callable[[Any | BaseException], None]
    ) -> None:
        """Run `work` in the thread. The loop then calls `done` with its result, or with the error that it raised."""
        if self._thread is None:
            # A commit that is in flight when the process ends was not acknowledged, so the process need not wait.
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name="lockstitch-commits", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None)
        self._jobs.put(_Job(work, loop, done))

    def close(self) -> None:
        """End the thread after the submitted jobs, and wait for that."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def _run(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            outcome = job.work()
        except BaseException as exc:  # the caller gets it
            outcome = exc
        # If the loop was closed, no task waits for the outcome.
        with suppress(RuntimeError):
            job.loop.call_soon_threadsafe(job.done, outcome)
        # The next job may come late, and must not keep this one alive until then.
        del job, outcome
