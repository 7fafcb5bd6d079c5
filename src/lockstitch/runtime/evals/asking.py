"""Asking an agent once, under a key: whoever is killed and asks again gets the answer that is there already."""

import asyncio
import math
import random
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import Conflict, NotFound
from lockstitch.records import TERMINAL, Run, Thread
from lockstitch.runtime.agent import Agent, Prompt
from lockstitch.runtime.driving import see_out, waits_for_others
from lockstitch.runtime.result import Result, result_in
from lockstitch.store import Store

_PAUSE: Final = (0.02, 0.2)


async def ask(agent: Agent, prompt: Prompt, *, store: Store, thread: str, **call: Any) -> Result:
    """The result of the one run of a thread of its own. One that was cut off is gone on with; one that another process
    drives is waited for."""
    while True:
        try:
            head = await store.thread(thread)
        except NotFound:
            head, run = None, None
        else:
            run = await _answering(store, head)
        if head is not None and run is not None:
            if run.status not in TERMINAL and not waits_for_others(head):
                return await see_out(
                    store, head, run, lambda free: agent.resume(free, store=store, deps=call.get("deps"))
                )
            return await result_in(store, run)
        try:
            return await agent.run(prompt, store=store, thread=thread, first=True, on_busy="refuse", **call)
        except Conflict as exc:
            # Another process asks the same, and was first: its run is the one to wait for.
            if exc.reason not in ("begun", "holder", "waiting", "taken_over"):
                raise
        await asyncio.sleep(random.uniform(*_PAUSE))


async def cost_of(store: Store, thread: UUID) -> float | None:
    """What a thread and its children have cost, members included; None while nothing of it has a price."""
    known = [one.total_cost for one in await store.overview(await store.tree(thread)) if one.total_cost is not None]
    return math.fsum(known) if known else None


async def _answering(store: Store, head: Thread) -> Run | None:
    """The run that the thread's one input has caused."""
    return next((run for run in await store.runs(head) if run.parent_run_id is None), None)
