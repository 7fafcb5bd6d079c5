"""Processes that are killed before a statement of a purge, or at the end of a migration before its commit."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.model import FakeClock
from lockstitch.store import open_store


def purge_killed_at(url: str, now: float, number: int) -> int:
    """Purge old threads in a process that is killed before its n-th statement. Return the signal that ended it."""
    return _killed(_purge(url, now, number))


def migration_killed(url: str, text: str) -> int:
    """Apply a new migration in a process that is killed before it commits. Return the signal that ended it."""
    return _killed(_migrate(url, text))


def _killed(job: Coroutine[Any, Any, None]) -> int:
    pid = os.fork()
    if pid == 0:
        asyncio.run(job)
        os._exit(0)
    job.close()
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


async def _purge(url: str, now: float, number: int) -> None:
    clock = FakeClock(datetime.fromtimestamp(now, UTC))
    async with open_store(url, clock=clock, migrate=False) as store:
        _kill_at(number)
        await store.purge(before=clock.now())


async def _migrate(url: str, text: str) -> None:
    migrations = queries.migrations

    def longer(package: str) -> list[tuple[int, str, str]]:
        steps = list(migrations(package))
        return [*steps, (steps[-1][0] + 1, "made_up", text)]

    queries.migrations = longer
    _kill_at(1, "version_set")
    async with open_store(url):
        pass


def _kill_at(number: int, name: str | None = None) -> None:
    """Kill this process before its n-th statement, or before its n-th statement of a name."""
    statement, left = Dialect.statement, number

    def counted(dialect: Dialect, statement_name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= name is None or statement_name == name
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return statement(dialect, statement_name, *arguments, **options)

    Dialect.statement = counted
