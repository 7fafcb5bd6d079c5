"""Cancelling: a wish that whoever holds the thread fulfils, or we do. No code of the agent is needed."""

from contextlib import suppress

from lockstitch.engine.config import RunConfig, config_for_ending
from lockstitch.engine.executor import Executor
from lockstitch.errors import Refused, ThreadEnded, ThreadHeld
from lockstitch.model import Run, Thread
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef


async def cancel(store: Store, ref: ThreadRef) -> Thread:
    """Have a thread's open run end, whatever it does, and all that it has children do; the thread as it is then.

    What was streamed so far is kept. A holder elsewhere learns of it within a moment: then the thread that is returned
    may still be running.
    """
    head = await store.thread(ref)
    if head.ended:
        raise ThreadEnded(f"Thread {head.id} is {head.status} already.", thread_id=head.id)
    if head.kind == "chat" and await store.execution.open_run(head) is None:
        raise Refused(f"Thread {head.id} has no open run to cancel; it waits for input.")
    # Children first: a parent that ends before them would not hear of their end.
    for one in reversed(await store.request_cancel(head)):
        await _end(store, one)
    return await store.thread(head)


async def _end(store: Store, head: Thread) -> None:
    """End a thread whose cancel was requested, unless another worker holds it and will end it."""

    async def make(_: Thread, run: Run | None) -> tuple[RunConfig, str | None]:
        return await config_for_ending(store, head, run), None

    with suppress(ThreadEnded, ThreadHeld):
        await Executor(store, make, ignore_limits=True).resume(await store.thread(head))
