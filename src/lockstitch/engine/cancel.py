"""`cancel()`: request the cancel; end the run here if no worker holds the thread. Needs no agent code."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from lockstitch.engine.config import RunConfig, RunStart, config_for_ending
from lockstitch.engine.executor import Executor
from lockstitch.errors import Conflict, Refused, ThreadEnded, ThreadHeld
from lockstitch.model import Delivery, Entry, Json, NextMessageWait, Run, Thread
from lockstitch.model.delivery import run_options
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef


async def cancel(store: Store, ref: ThreadRef) -> Thread:
    """Cancel the open run of a thread and its child threads. Return the thread afterwards.

    Text that was streamed so far is stored. If another process holds the thread, it ends the run shortly afterwards, so
    the returned thread may still be running. If the run of a message has not started yet, the run of the oldest message
    ends now.

    Args:
        store: Open store with the thread.
        ref: Thread, its id or its key.

    Raises:
        NotFound: If the thread does not exist.
        ThreadEnded: If the thread has ended.
        Refused: If the thread has no open run and no message.
    """
    head = await store.thread(ref)
    while True:
        if head.ended:
            raise ThreadEnded(f"Thread {head.id} is already {head.status}.", thread_id=head.id)
        if head.kind != "chat" or await store.execution.open_run(head) is not None:
            break
        seen, deliveries = await store.inbox(head)
        messages = [delivery for delivery in deliveries if delivery.as_entry().type == "input"]
        if not messages:
            raise Refused(f"Thread {head.id} has no open run to cancel. It waits for input.")
        if head.held:
            # A worker is about to start the run.
            break
        try:
            return await _end_before_start(store, seen, messages[0], has_more=len(deliveries) > 1)
        except Conflict:
            # A worker has claimed the thread, or another delivery has arrived.
            head = await store.thread(head)
    # Children first: a parent that ends before them would not get their reports.
    for thread in reversed(await store.request_cancel(head)):
        await _end(store, thread)
    return await store.thread(head)


async def _end_before_start(store: Store, head: Thread, message: Delivery, *, has_more: bool) -> Thread:
    """Take a message of the inbox into the log, with a run that is cancelled before its first step.

    `has_more` says that other deliveries wait. Then the thread stays ready for a worker. Return the thread. Raises
    `Conflict` if the thread has changed since `head` was read.
    """
    now = store.clock.now()
    entry = message.as_entry()
    options = run_options(entry)
    run = store.new_run(
        head,
        id=message.id,
        status="cancelled",
        stop_reason="cancelled",
        input_position=head.position + 1,
        **options,
    ).changed(completed_at=now)
    counts = ("total_steps", "total_input_tokens", "total_output_tokens", "files_generated")
    data: Json = {"stop_reason": "cancelled", **dict.fromkeys(counts, 0)}
    end = Entry(type="run_completed", run_id=run.id, step_number=0, status="cancelled", data=data, duration_ms=0)
    consumed = message.changed(entry=entry.changed(run_id=run.id, step_number=0).as_json())
    fields: dict[str, Any] = {"status": "pending", "waiting_for": [], "wake_at": now}
    if not has_more:
        fields = {"status": "waiting", "waiting_for": [NextMessageWait(now).as_json()], "wake_at": None}
    return (await store.append(head, [end], fields=fields, new_runs=[run], consumed=[consumed])).head


class _EndingHost:
    """A host that can only end runs: it has no code of an agent."""

    agent_names: Sequence[str] = ()
    webhook_names: Sequence[str] = ()

    async def run_config(
        self, start: RunStart, run: Run | None, resources: AsyncExitStack, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        return await config_for_ending(start.store, start.thread, run), None

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None: ...


async def _end(store: Store, head: Thread) -> None:
    """End a thread whose cancel was requested, unless a worker holds it. Then that worker ends it."""
    with suppress(ThreadEnded, ThreadHeld):
        await Executor(store, _EndingHost(), ignore_limits=True).resume(await store.thread(head))
