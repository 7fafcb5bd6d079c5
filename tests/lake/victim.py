"""A process that is killed before a write statement of `archive_to_lake` or `restore`, or at a commit of a sync.

Victims are forked from a server process that has imported everything.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import datetime
from typing import Any

from deltalake import DeltaTable

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.lake import sync as lake_sync
from lockstitch.lake import target
from lockstitch.model import FakeClock
from lockstitch.store import open_store
from lockstitch.sync import open_store as open_blocking

_PROCESSES = multiprocessing.get_context("forkserver")
_WRITES = ("insert", "delete", "change_record")


def killed(number: int, url: str, now: datetime, thread: str | None = None, lake: str | None = None) -> bool:
    """Archive all threads to a lake, or restore a thread, in a process that is killed before its n-th write statement.

    Return False if it ended before.
    """
    return _killed(_run, number, url, now, thread, lake)


def killed_sync(url: str, lake: str, number: int, *, after: bool) -> bool:
    """Sync a lake in a process that is killed before or after its n-th commit. Return False if it ended before."""
    return _killed(_sync, url, lake, number, after)


def _killed(job: Callable[..., None], *arguments: Any) -> bool:
    _PROCESSES.set_forkserver_preload([__name__])
    process = _PROCESSES.Process(target=job, args=arguments)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _sync(url: str, lake: str, number: int, after: bool) -> None:
    commits = 0

    def counted(commit: Any) -> Any:
        def count(*arguments: Any, **options: Any) -> None:
            nonlocal commits
            commits += 1
            if commits == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            commit(*arguments, **options)
            if commits == number:
                os.kill(os.getpid(), signal.SIGKILL)

        return count

    target.write_deltalake = counted(target.write_deltalake)
    DeltaTable.delete = counted(DeltaTable.delete)
    with open_blocking(url) as store, store.lens("three_table") as connection:
        lake_sync.sync(connection, lake)


def _run(number: int, url: str, now: datetime, thread: str | None, lake: str | None) -> None:
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
