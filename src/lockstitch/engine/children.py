"""Children in this process: a thread that waits for threads it made has them driven here, and then goes on.

With workers around nothing changes: what one of them holds is waited for, and what nobody here can drive is left to
them.
"""

import asyncio
from typing import Final
from uuid import UUID

from lockstitch.engine.executor import Executor, retry_until_free
from lockstitch.engine.result import Result, result_from_store
from lockstitch.errors import NotFound, ThreadEnded
from lockstitch.model import ChildrenWait
from lockstitch.store import Store

AT_ONCE: Final = 10
"""Children of one thread that are driven side by side."""


async def execute_children(executor: Executor, result: Result | None) -> Result | None:
    """Execute the children that a thread waits for, and the thread, until it ends or waits for something else.

    `executor` executes threads of the agents that its host has. Threads of other agents are left to workers. Return the
    last result of the thread.
    """
    store = executor.store
    while result is not None and (wait := _children_wait(result)) is not None:
        await _drive_all(executor, wait)
        head = await store.thread(result.thread_id)
        driver = executor.for_thread(head)
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


async def _drive_all(executor: Executor, wait: ChildrenWait) -> None:
    """Drive the awaited children: side by side, or one after the other until the first has ended if any will do."""
    ids = [UUID(child_id) for child_id in wait.child_ids or ()]
    if wait.any_child:
        for child_id in ids:
            if await _drive_one(executor, child_id):
                return
        return
    places = asyncio.Semaphore(AT_ONCE)

    async def one(child_id: UUID) -> None:
        async with places:
            await _drive_one(executor, child_id)

    # One that cannot be driven is no reason to give up the others; whoever called is told of it afterwards.
    excs = await asyncio.gather(*map(one, ids), return_exceptions=True)
    for problem in excs:
        if problem is not None:
            raise problem


async def _drive_one(executor: Executor, child_id: UUID) -> bool:
    """Execute a child as far as possible. Return True if it has ended."""
    store = executor.store
    try:
        head = await store.thread(child_id)
    except NotFound:
        return True
    while not head.ended:
        driver = executor.for_thread(head)
        if driver is None:
            return False
        try:
            await execute_children(executor, await retry_until_free(store, head, driver.resume))
        except ThreadEnded:
            return True
        head = await store.thread(child_id)
        if head.status == "waiting":
            return False
    return True


async def _result_of_others(store: Store, before: Result) -> Result:
    return await result_from_store(store, await store.run(before.run_id))
