"""A process that is killed before one of the write statements of `archive_to_lake` or `restore`.

Victims are forked from a server process that has imported everything.
"""

import asyncio
import multiprocessing
import os
import signal
from datetime import datetime
from typing import Any

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.lake import sync as lake_sync
from lockstitch.model import FakeClock
from lockstitch.store import open_store

_PROCESSES = multiprocessing.get_context("forkserver")
_WRITES = ("insert", "delete", "change_record")


def killed(number: int, url: str, now: datetime, thread: str | None = None, lake: str | None = None) -> bool:
    """Archive all threads to a lake, or restore a thread, in a process that is killed before its n-th write statement.

    Return False if it ended before.
    """
    _PROCESSES.set_forkserver_preload([__name__])
    process = _PROCESSES.Process(target=_run, args=(number, url, now, thread, lake))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _run(number: int, url: str, now: datetime, thread: str | None, lake: str | None) -> None:
    assert lake_sync
    asyncio.run(_write(number, url, now, thread, lake))


async def _write(number: int, url: str, now: datetime, thread: str | None, lake: str | None) -> None:
    async with open_store(url, clock=FakeClock(now)) as store:
        left = number

        def counted(verb: Any) -> Any:
            def count(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                return verb(*arguments, **options)

            return count

        for name in _WRITES:
            setattr(Dialect, name, counted(getattr(Dialect, name)))
        if lake is not None:
            await store.archive_to_lake(lake, now)
        elif thread is not None:
            await store.restore(thread)
