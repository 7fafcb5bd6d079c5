"""Children in this process: a thread that waits for threads it made has them driven here, and then goes on.

With workers around nothing changes: what one of them holds is waited for, and what nobody here can drive is left to
them.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from lockstitch.engine.executor import Executor, retry_until_free
from lockstitch.engine.result import Result, result_from_store
from lockstitch.errors import NotFound, ThreadEnded
from lockstitch.model import ChildrenWait, Thread
from lockstitch.store import Store

AT_ONCE: Final = 10
"""Children of one thread that are driven side by side."""

DriverOf = Callable[[Thread], Executor | None]
"""Who drives a thread here; None when this process has no code for it."""


async def execute_children(store: Store, drivers: DriverOf, result: Result | None) -> Result | None:
    """Drive the children that a thread waits for, and the thread, until it ends or waits for somebody else."""
    while result is not None and (wait := _children_wait(result)) is not None:
        await _drive_all(store, drivers, wait)
        head = await store.thread(result.thread_id)
        driver = drivers(head)
        if driver is None or (head.status == "waiting" and head.wait_for("children") is not None):
            return result
        try:
            # A worker may have taken it over; then it is theirs to end.
            went_on = await retry_until_free(store, head, driver.resume)
        except ThreadEnded:
            return await _result_of_others(store, result)
        result = went_on if went_on is not None else await _result_of_others(store, result)
    return result


def _children_wait(result: Result) -> ChildrenWait | None:
    return next((wait for wait in result.waits if isinstance(wait, ChildrenWait) and wait.child_ids), None)


async def _drive_all(store: Store, drivers: DriverOf, wait: ChildrenWait) -> None:
    """Drive the awaited children: side by side, or one after the other until the first has ended if any will do."""
    ids = [UUID(child_id) for child_id in wait.child_ids or ()]
    if wait.any_child:
        for child_id in ids:
            if await _drive_one(store, drivers, child_id):
                return
        return
    places = asyncio.Semaphore(AT_ONCE)

    async def one(child_id: UUID) -> None:
        async with places:
            await _drive_one(store, drivers, child_id)

    # One that cannot be driven is no reason to give up the others; whoever called is told of it afterwards.
    ended = await asyncio.gather(*map(one, ids), return_exceptions=True)
    for problem in ended:
        if problem is not None:
            raise problem


async def _drive_one(store: Store, drivers: DriverOf, child_id: UUID) -> bool:
    """Drive a child as far as it goes; whether it has ended."""
    try:
        head = await store.thread(child_id)
    except NotFound:
        return True
    while not head.ended:
        driver = drivers(head)
        if driver is None:
            return False
        try:
            await execute_children(store, drivers, await retry_until_free(store, head, driver.resume))
        except ThreadEnded:
            return True
        head = await store.thread(child_id)
        if head.status == "waiting":
            return False
    return True


async def _result_of_others(store: Store, before: Result) -> Result:
    return await result_from_store(store, await store.run(before.run_id))
