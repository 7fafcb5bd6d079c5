"""Execute the child threads that a thread waits for in this process, then resume the thread.

If a worker holds a child, this process waits for it. Threads of agents without code in this process are left to
workers.
"""

import asyncio
from typing import Final
from uuid import UUID

from lockstitch.engine.executor import Executor, retry_until_free
from lockstitch.engine.result import Result, result_from_store
from lockstitch.errors import NotFound, ThreadEnded
from lockstitch.model import ChildrenWait
from lockstitch.store import Store

CHILDREN_AT_ONCE: Final = 10
"""Maximum number of children of one thread that execute concurrently."""


async def execute_children(executor: Executor, result: Result | None) -> Result | None:
    """Execute the children that a thread waits for, and the thread, until it ends or waits for something else.

    `executor` executes threads of the agents that its host has. Threads of other agents are left to workers. Return the
    last result of the thread.
    """
    store = executor.store
    while result is not None and (wait := _children_wait(result)) is not None:
        await _execute_all(executor, wait)
        head = await store.thread(result.thread_id)
        own_executor = executor.for_thread(head)
        if own_executor is None or (head.status == "waiting" and head.wait_for(ChildrenWait.KIND) is not None):
            return result
        try:
            # If a worker has claimed the thread, that worker continues it.
            resumed = await retry_until_free(store, head, own_executor.resume)
        except ThreadEnded:
            return await _stored_result(store, result)
        result = resumed if resumed is not None else await _stored_result(store, result)
    return result


def _children_wait(result: Result) -> ChildrenWait | None:
    return next((wait for wait in result.waits if isinstance(wait, ChildrenWait) and wait.child_ids), None)


async def _execute_all(executor: Executor, wait: ChildrenWait) -> None:
    """Execute the awaited children concurrently. If any of them is enough, one after the other until the first has
    ended."""
    ids = [UUID(child_id) for child_id in wait.child_ids or ()]
    if wait.any_child:
        for child_id in ids:
            if await _execute_child(executor, child_id):
                return
        return
    places = asyncio.Semaphore(CHILDREN_AT_ONCE)

    async def execute(child_id: UUID) -> None:
        async with places:
            await _execute_child(executor, child_id)

    # An error of one child does not stop the other children. It is raised afterwards.
    problems = await asyncio.gather(*map(execute, ids), return_exceptions=True)
    for problem in problems:
        if problem is not None:
            raise problem


async def _execute_child(executor: Executor, child_id: UUID) -> bool:
    """Execute a child as far as possible. Return True if it has ended."""
    store = executor.store
    try:
        head = await store.thread(child_id)
    except NotFound:
        return True
    while not head.ended:
        own_executor = executor.for_thread(head)
        if own_executor is None:
            return False
        try:
            await execute_children(executor, await retry_until_free(store, head, own_executor.resume))
        except ThreadEnded:
            return True
        head = await store.thread(child_id)
        if head.status == "waiting":
            return False
    return True


async def _stored_result(store: Store, before: Result) -> Result:
    return await result_from_store(store, await store.run(before.run_id))
