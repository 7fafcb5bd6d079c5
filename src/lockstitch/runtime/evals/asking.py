"""Asking an agent once, under a key: whoever is killed and asks again gets the answer that is there already."""

import math
from typing import Any
from uuid import UUID

from lockstitch.errors import NotFound
from lockstitch.records import TERMINAL, Run, Thread
from lockstitch.runtime.agent import Agent, Prompt
from lockstitch.runtime.driving import waits_for_others, when_free
from lockstitch.runtime.result import Result, result_in
from lockstitch.store import Store


async def ask(agent: Agent, prompt: Prompt, *, store: Store, thread: str, **call: Any) -> Result:
    """The result of the one run of a thread of its own. One that was cut off is gone on with; one that another process
    drives is waited for."""
    try:
        head = await store.thread(thread)
    except NotFound:
        return await agent.run(prompt, store=store, thread=thread, on_busy="queue", **call)
    run = await _answering(store, head)
    if run is None or (run.status not in TERMINAL and not waits_for_others(head)):
        await when_free(store, head, lambda free: agent.resume(free, store=store, deps=call.get("deps")))
        run = await _answering(store, head)
    if run is None:
        # Somebody made the thread and was killed before its run began.
        return await agent.run(prompt, store=store, thread=thread, on_busy="queue", **call)
    return await result_in(store, run)


async def cost_of(store: Store, thread: UUID) -> float | None:
    """What a thread and its children have cost, members included; None while nothing of it has a price."""
    known = [one.total_cost for one in await store.overview(await store.tree(thread)) if one.total_cost is not None]
    return math.fsum(known) if known else None


async def _answering(store: Store, head: Thread) -> Run | None:
    """The run that the thread's one input has caused."""
    return next((run for run in await store.runs(head) if run.parent_run_id is None), None)
