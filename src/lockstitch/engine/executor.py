"""`Executor`: claim a thread, continue its open run or start one, release the thread."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from lockstitch.engine.config import RunStart
from lockstitch.engine.decision.decide import crash_reason
from lockstitch.engine.decision.recorded_turn import RecordedTurn
from lockstitch.engine.events import Event, Listener, LiveTextWriter
from lockstitch.engine.host import AgentHost
from lockstitch.engine.loop import run_loop
from lockstitch.engine.result import (
    Result,
    result_enqueued,
    result_from_store,
    result_of_run,
    run_of_message,
    summary_of,
)
from lockstitch.engine.session.deliveries import report_to_parent, thread_result
from lockstitch.engine.session.held_run import HeldRun, execution_resources
from lockstitch.engine.session.replay_source import next_replay_input, recorded_turn, without_effects
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.engine.session.start import (
    RunInput,
    next_input,
    restore_request_settings,
    start_run,
    waiting_message,
)
from lockstitch.engine.session.takeover_entry import record_takeover
from lockstitch.engine.session.thread_session import ThreadSession
from lockstitch.engine.turns import take_turn
from lockstitch.engine.webhooks import webhook_events
from lockstitch.errors import (
    AlreadyStarted,
    Conflict,
    KeyTaken,
    LimitReached,
    Refused,
    RunInterrupted,
    StaleFence,
    TakenOver,
    ThreadDeleted,
    ThreadEnded,
    ThreadHeld,
    ThreadWaiting,
    UnseenDeliveries,
    WorkerDeclaredDead,
    wire_name_of,
)
from lockstitch.model import (
    TERMINAL_STATUSES,
    Entry,
    Json,
    NextMessageWait,
    RetryWait,
    Run,
    Thread,
    WebhookEvent,
    answer_of,
    waits_json,
)
from lockstitch.model.message import user
from lockstitch.store import Store
from lockstitch.store.conversations import EnqueuedMessage
from lockstitch.store.replays import REPLAYED_RUN

_REASON_CHARS: Final = 500
"""Maximum number of characters of the reason why an execution failed."""

OnWaiting = Literal["refuse", "cancel"]
"""Behaviour for a new message if the thread waits: raise `ThreadWaiting`, or cancel the waiting run."""


@dataclass(frozen=True)
class Executor:
    """Executes threads of the agents of a host in this process. Immutable, so tasks may share an executor."""

    store: Store
    host: AgentHost
    deps: Any = None
    """The dependencies of `agent`. Other agents have their own."""
    listener: Listener | None = None
    """Receives the events of threads of `agent`."""
    agent: str | None = None
    """The name of the agent that the caller runs."""
    take_over: bool = False
    """True if the thread is claimed even if another worker holds it."""
    ignore_limits: bool = False
    """True if limits do not apply, because the thread is only ended."""
    should_release: Callable[[], bool] | None = None
    """Returns True if the thread is to be released at its next commit, for another worker."""
    detach: bool = False
    """True if a run is only started here, and workers execute it."""
    default_tool_timeout: float | None = None
    """Seconds that a tool without its own time limit may take; None: no limit."""
    live: LiveTextWriter | None = None
    """Receives events and stores their text for readers in other processes."""
    retry_after: float | None = None
    """Seconds until a thread that could not be executed is tried again. None: only raise the error to the caller."""
    on_cleared: Callable[[], None] | None = None
    """Called after the commit with which a suspect has made progress."""

    def for_thread(self, head: Thread) -> "Executor | None":
        """Return the executor of a thread that belongs to the same tree; None if the host has no code of its agent."""
        if head.agent not in self.host.agent_names:
            return None
        return self if head.agent == self.agent else replace(self, deps=None, listener=None)

    async def run_new_thread(self, thread: Thread, run_input: RunInput) -> Result:
        """Create a thread with its first run, and execute it. Raises `KeyTaken` if another caller created it first."""
        await take_turn()
        try:
            must_create = await self.store.execution.create_if_required(thread, run_input.message)
        except Conflict as exc:
            raise _key_taken(thread) from exc
        if must_create:
            return await self.run(thread, run_input)
        thread_session = ThreadSession(self.store, await self.store.execution.hold_new(thread), new=True)
        try:
            result, _ = await self._execute_held(thread_session.head, run_input, RunSession(thread_session))
        except Conflict as exc:
            if not thread_session.new:
                raise
            if not self.store.execution.is_holder(thread_session.head):
                # This process was declared dead before it stored anything. It registers again and starts again.
                return await self.run_new_thread(thread, run_input)
            raise _key_taken(thread) from exc
        assert result is not None
        return result

    async def run(self, head: Thread, run_input: RunInput, on_waiting: OnWaiting = "refuse") -> Result:
        """Start a run with `run_input` and execute it.

        An interrupted run is finished first, and so are the runs of messages that were accepted earlier. If the thread
        has a goal and no run yet, the first run starts with the goal, and `run_input` enters that run.
        """
        if head.kind == "replay":
            raise Refused(f"Thread {head.id} is a replay and takes no messages. Fork it to continue.")
        while True:
            self._require_not_waiting(head, on_waiting)
            if run_input.retry_of is None and not run_input.first and _goal_is_ahead(head):
                return await (
                    self.enqueue_behind(head, run_input) if self.detach else self.enqueue_and_wait(head, run_input)
                )
            result, began = await self._execute(head, run_input, cancel=on_waiting == "cancel")
            if began and result is not None:
                return result
            head = await self.store.thread(head.id)
            if self.detach and not began:
                # The run of another message comes first. It is left to workers, and so is this message.
                return await self.enqueue_behind(head, run_input)

    async def retry(self, head: Thread, last: Run) -> Result | None:
        """Start a run that retries `last`, which has not completed. If another caller has started a retry, return its
        result."""
        if head.ended:
            head = await self.store.reopen(head)
        try:
            return await retry_until_free(
                self.store, head, lambda free: self.run(free, RunInput(user(""), retry_of=last))
            )
        except Conflict as exc:
            latest = await self.store.execution.last_run(await self.store.thread(head.id))
            started = isinstance(exc, AlreadyStarted | ThreadWaiting | ThreadEnded)
            if not started or latest is None or latest.id == last.id or latest.input_position != last.input_position:
                raise
            return await finish_or_wait(self.store, head, latest, self.resume)

    async def resume(self, head: Thread) -> Result | None:
        """Claim the thread and continue its open run, or answer its oldest message. Return None if there is nothing to
        do."""
        result, _ = await self._execute(head, None)
        return result

    async def enqueue_behind(self, head: Thread, run_input: RunInput) -> Result:
        """Leave a message to the workers. The result has the id that its run will have."""
        return await result_enqueued(self.store, await self._enqueue(head, run_input))

    async def _enqueue(self, head: Thread, run_input: RunInput) -> EnqueuedMessage:
        """Leave a message for the agent of the thread."""
        options: dict[str, Any] = {"extras": run_input.extras, "metadata": run_input.metadata, "tags": run_input.tags}
        return await self.store.enqueue(
            None, run_input.message, thread=head, message_id=run_input.message_id, **options
        )

    async def enqueue_and_wait(self, head: Thread, run_input: RunInput) -> Result:
        """Enqueue a message and return the result of its run. Execute the run here if no worker does."""
        return await self.finish_message(head, (await self._enqueue(head, run_input)).run_id)

    async def finish_message(self, head: Thread, delivery_id: UUID) -> Result:
        """Return the result of the run of an accepted message. Execute the run here if no worker does."""
        pause = 0.02
        result: Result | None = None
        while True:
            run = await run_of_message(self.store, head, delivery_id)
            if run is not None and (run.status in TERMINAL_STATUSES or run.status == "waiting"):
                if result is not None and result.run_id == run.id:
                    return result
                return await self._result_of_other_worker(run)
            # A run that waits for a person or for children continues when they answer.
            # The run of this message comes after it.
            result = None if has_open_waits(head) else await retry_until_free(self.store, head, self.resume)
            if result is None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 1.5, 0.5)
            head = await self.store.thread(head.id)

    async def _result_of_other_worker(self, run: Run) -> Result:
        """Return the result of a run that this process did not execute, and report it to the listener."""
        result = await result_from_store(self.store, run)
        if self.listener is not None:
            title = (await self.store.thread(run.thread_id)).title
            data: Json = {**result.as_json(), "title": title}
            self.listener(Event("finished", run.thread_id, run.id, run.agent or "", run.steps, data))
        return result

    async def execute_held(self, head: Thread) -> Result | None:
        """Continue a thread that this process has claimed, like `resume`."""
        result, _ = await self._execute_held(head, None, None)
        return result

    async def _execute(
        self, before: Thread, run_input: RunInput | None, *, cancel: bool = False
    ) -> tuple[Result | None, bool]:
        """Claim the thread and execute its open run, or a new one.

        Return the result, and True if the run is new and has `run_input` as its input (if one was passed).
        """
        head = await self._claim(before)
        return await self._execute_held(head, run_input, None, cancel=cancel)

    async def _claim(self, head: Thread) -> Thread:
        """Claim a thread. If this process was declared dead without noticing, it claims as a new worker."""
        try:
            return await self.store.claim(head, take_over=self.take_over, unlimited=self.ignore_limits)
        except WorkerDeclaredDead:
            await self.store.lease_keeper.check_declared_dead()
        return await self.store.claim(head, take_over=self.take_over, unlimited=self.ignore_limits)

    async def _execute_held(
        self, head: Thread, run_input: RunInput | None, session: RunSession | None, *, cancel: bool = False
    ) -> tuple[Result | None, bool]:
        cause: RunInput | None = None
        input_stored = False
        try:
            session = session or await RunSession.load(self.store, head)
            if head.suspect:
                await record_takeover(session)
                self._watch_progress(session)
            if session.run is None and head.kind != "chat" and await self._end_without_run(session):
                return None, False
            await self._require_not_started(session, run_input)
            if session.run is None:
                cause = await self._cause(session, run_input)
                if cause is None:
                    await _withdraw_cancel(head, session)
                    await self._rest(session)
                    return None, False
            elif cancel and session.run.status == "waiting":
                session.head = session.head.changed(cancel_requested=True)
            held = HeldRun(head.id)
            async with self.store.lease_keeper.keeping(held), execution_resources(head.id) as resources:
                context = held.context = await self._context(session, cause, resources)
                if cause is None:
                    await restore_request_settings(context)
                else:
                    await _withdraw_cancel(head, session)
                    await start_run(context, cause)
                    input_stored = cause is run_input
                released = await run_loop(context) == "left"
                began = cause is not None and (run_input is None or cause is run_input)
                return (None if released and not self.detach else await self._result(context)), began
        except BaseException as exc:
            # If another caller created the thread first, this process never held it.
            never_ours = isinstance(exc, Conflict) and session is not None and session.thread_session.new
            if not never_ours and not _is_lost(exc, head.id):
                latest = head if session is None else session.head
                started = session is not None and session.run is not None
                await self.store.execution.release(head, self._fields_on_release(latest, started, exc))
            if input_stored and isinstance(exc, Conflict):
                raise run_interrupted(exc, head.id) from exc
            if _is_lost(exc, head.id) and not isinstance(exc, ThreadDeleted) and not never_ours:
                # The caller added no input, so it may resume the thread again.
                raise ThreadHeld(_taken_over_message(exc, head.id), thread_id=head.id) from exc
            raise
        finally:
            # This process no longer executes the thread, in any case.
            self.store.execution.request_release(head)

    async def _context(self, session: RunSession, cause: RunInput | None, resources: AsyncExitStack) -> RunContext:
        """Return the context of the open run, or of the run that `cause` starts."""
        start = _run_start(self.store, session, cause)
        config, system = await self.host.run_config(start, session.run, resources, self.deps)
        recorded, hooks = None, self.host.webhook_names
        if session.head.kind == "replay" and not self.ignore_limits:
            recorded, hooks = await self._recorded(session, cause), ()
            config = without_effects(config, live=recorded.live)
        context = RunContext(
            session,
            config,
            self.listener,
            system=system,
            hooks=hooks,
            default_tool_timeout=self.default_tool_timeout,
            live=self.live,
            recorded=recorded,
        )
        if self.detach:
            context.should_release = lambda: True
        elif self.should_release is not None:
            context.should_release = self.should_release
        return context

    async def _recorded(self, session: RunSession, cause: RunInput | None) -> RecordedTurn:
        """Return the record of the open run of a replay, or of the run that `cause` starts."""
        run = session.run
        source: str | None = run.state.get(REPLAYED_RUN) if run is not None else None
        source_id = cause.replays if cause is not None else UUID(source) if source else None
        return await recorded_turn(self.store, session.head, source_id, run)

    async def _rest(self, session: RunSession) -> None:
        """Release a thread that has no open run and no input for one."""
        # Reports of children since the last run belong in the log. No run takes them later.
        deliveries = [delivery for delivery in await session.read_inbox() if delivery.kind == "children"]
        if deliveries:
            await session.commit(consumed=deliveries)
        fields = _resting_fields(session.head, self.store.clock.now())
        await self.store.execution.release(session.head, fields)

    def _watch_progress(self, session: RunSession) -> None:
        """Call `on_cleared` after the commit that ends the suspicion."""
        on_cleared = self.on_cleared
        if on_cleared is None:
            return

        def check() -> None:
            if session.head.suspect:
                session.after_commit(check)
            else:
                on_cleared()

        session.after_commit(check)

    def _fields_on_release(self, head: Thread, started: bool, exc: BaseException) -> dict[str, Any]:
        """Return the head fields of a thread that could not be executed: its previous state, or `pending` for the next
        worker.

        With `retry_after` the thread stores the error as a wait, and is tried again after that time.
        """
        now = self.store.clock.now()
        if self.retry_after is not None and isinstance(exc, Exception):
            until = now + timedelta(seconds=self.retry_after)
            why = f"{wire_name_of(exc)}: {exc}"[:_REASON_CHARS]
            return {
                "status": "waiting",
                "waiting_for": [RetryWait(now, until=until, reason=why).as_json()],
                "wake_at": until,
            }
        return {"status": "pending"} if started else _resting_fields(head, now)

    async def _end_without_run(self, session: RunSession) -> bool:
        """End a goal before its first run if a cancel is requested or it crashed too often. Return True if it ended."""
        head = session.head
        kind, problem = "Crashed", crash_reason(head)
        if problem is None and not head.cancel_requested:
            if head.kind != "replay" or await self._next_input(session) is not None:
                return False
            kind, problem = "SourceDeleted", "The recorded thread or run was deleted, so the replay cannot continue."
        status = "cancelled" if head.cancel_requested else "failed"
        ended = thread_result(status, None, problem if status == "failed" else None)
        messages: list[WebhookEvent] = []
        if status == "failed":
            session.record(Entry(type="error", data={"type": kind, "message": problem, "fatal": True}))
            hooks = () if head.kind == "replay" else self.host.webhook_names
            messages = webhook_events(session, hooks, "failed", {"error": problem})
        if status == "cancelled" and head.pending_children:
            await session.store.request_cancel_of_children(head)
        fields: dict[str, Any] = {"waiting_for": [], "wake_at": None, "cancel_requested": False}
        while True:
            await session.read_inbox()
            try:
                deliveries = report_to_parent(head, ended, session.clock)
                await session.commit(
                    deliveries=deliveries, webhook_events=messages, status=status, result=ended, **fields
                )
            except UnseenDeliveries:
                continue
            return True

    async def _cause(self, session: RunSession, run_input: RunInput | None) -> RunInput | None:
        """Return the input of the next run: a message that was accepted before `run_input`, else `run_input`."""
        if run_input is None:
            # An executor that only ends a run has no agent code, so it must not start the next run.
            return None if self.ignore_limits else await self._next_input(session)
        if run_input.retry_of is not None or session.head.kind != "chat":
            return run_input
        queued = await waiting_message(session, before=run_input.arrived)
        if queued is not None and run_input.first:
            raise _already_started(session.head)
        return queued or run_input

    async def _next_input(self, session: RunSession) -> RunInput | None:
        """Return the input of the next run of a thread, if there is one."""
        if session.head.kind == "replay":
            return await next_replay_input(self.store, session.head, await self.store.execution.last_run(session.head))
        return await next_input(session)

    async def _require_not_started(self, session: RunSession, run_input: RunInput | None) -> None:
        """Raise `AlreadyStarted` if a run that may start once has started. The thread is claimed, so only one caller
        starts it."""
        if run_input is None:
            return
        started = run_input.first and session.head.last_sequence > 0
        if run_input.retry_of is not None:
            last = await self.store.execution.last_run(session.head)
            started = last is not None and last.id != run_input.retry_of.id
        if started:
            raise _already_started(session.head)

    async def _result(self, context: RunContext) -> Result:
        session = context.session
        run, response = session.open_run, session.snapshot.response
        value = None
        if response is not None and response.position == run.output_position:
            value = answer_of(response.message)
        elif run.output_position is not None:
            value = await self.store.execution.answer_text_at(session.head, run.output_position)
        value = summary_of(session.head, value)
        output = None
        if run.output is not None and context.config.output_type is not None:
            output = context.config.output_type.model_validate(run.output)
        if run.status in TERMINAL_STATUSES and session.head.kind != "replay":
            self.host.on_run_end(self.store, session.head, run)
        result = await result_of_run(session.store, session.head, run, value, output)
        context.emit("finished", {**result.as_json(), "title": session.head.title}, now=True)
        return result

    @staticmethod
    def _require_not_waiting(head: Thread, on_waiting: OnWaiting) -> None:
        if has_open_waits(head) and on_waiting == "refuse":
            waits = [wait for wait in head.waits if not wait.is_rest]
            pending = ", ".join(f"{wait.kind} {wait.name or wait.call_id or ''}".strip() for wait in waits)
            reasons = "".join(f" {wait.reason}" for wait in waits if wait.reason)
            raise ThreadWaiting(
                f'Thread {head.id} waits for {pending}.{reasons} Reply to that first, or pass on_waiting="cancel".',
                thread_id=head.id,
            )


async def _withdraw_cancel(claimed: Thread, session: RunSession) -> None:
    """Remove a cancel request that a thread without an open run had when it was claimed. It was for a run that has
    ended. A later request is for the run that starts."""
    if claimed.cancel_requested:
        await session.commit(cancel_requested=False)
        session.head = session.head.changed(cancel_requested=False)


def _run_start(store: Store, session: RunSession, cause: RunInput | None) -> RunStart:
    """Return the start of the open run, or of the run that `cause` starts."""
    run = session.run
    if run is not None:
        return RunStart(store, session.head, run.id, run.metadata, run.extras, run.tags)
    assert cause is not None
    run_id = cause.delivery.id if cause.delivery is not None else None
    return RunStart(store, session.head, run_id, cause.metadata, cause.extras, cause.tags)


def _resting_fields(head: Thread, now: datetime) -> dict[str, Any]:
    """Return the head fields of a thread that has no open run and is released without progress.

    A chat waits for its next message. Other threads keep their stored waits.
    """
    if head.kind == "chat":
        waits = [wait for wait in head.waits if isinstance(wait, NextMessageWait)] or [NextMessageWait(now)]
        return {"status": "waiting", "waiting_for": waits_json(waits), "wake_at": None}
    if head.waiting_for:
        return {"status": "waiting", "waiting_for": head.waiting_for, "wake_at": head.wake_at}
    return {"status": "pending"}


def _goal_is_ahead(head: Thread) -> bool:
    """True if a thread is ready for its first run, which starts with its goal."""
    ready = not head.ended and not has_open_waits(head)
    return ready and head.kind != "chat" and head.goal is not None and not head.last_sequence


def has_open_waits(head: Thread) -> bool:
    """True if an open run waits. A thread between two runs or two attempts has no open waits."""
    return head.status == "waiting" and not all(wait.is_rest for wait in head.waits)


async def retry_until_free(
    store: Store, head: Thread, act: Callable[[Thread], Awaitable[Result | None]]
) -> Result | None:
    """Call `act` until no other worker holds the thread and no limit prevents it."""
    pause = 0.02
    while True:
        with suppress(ThreadHeld, LimitReached):
            return await act(head)
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.5, 0.5)
        head = await store.thread(head.id)


async def finish_or_wait(
    store: Store, head: Thread, run: Run, act: Callable[[Thread], Awaitable[Result | None]]
) -> Result:
    """Resume the run once the thread is free and return its result, or the result that another worker produced."""
    result = None
    with suppress(ThreadEnded):
        result = await retry_until_free(store, head, act)
    if result is not None and result.run_id == run.id:
        return result
    return await result_from_store(store, await store.run(run.id))


def _already_started(head: Thread) -> AlreadyStarted:
    return AlreadyStarted(f"The run of thread {head.id} has already started.", thread_id=head.id)


def _key_taken(thread: Thread) -> KeyTaken:
    return KeyTaken(f"The key or id {thread.key or thread.id} is already used by another thread.", thread_id=thread.id)


def run_interrupted(exc: Conflict, thread_id: UUID) -> RunInterrupted | TakenOver:
    """Return the error for the caller that started a run, if the run stops here before its end.

    The input is stored. So the error is not `ThreadHeld`, after which callers send the input again.
    """
    if not _is_lost(exc, thread_id):
        return RunInterrupted(str(exc), thread_id=exc.thread_id)
    return TakenOver(_taken_over_message(exc, thread_id), thread_id=thread_id)


def _taken_over_message(exc: BaseException, thread_id: UUID) -> str:
    return f"Thread {thread_id} was taken over while it was executed here. Its run continues there. ({exc})"


def _is_lost(exc: BaseException, thread_id: UUID) -> bool:
    """True if this process no longer holds the thread."""
    return isinstance(exc, StaleFence | ThreadHeld | ThreadDeleted) and exc.thread_id == thread_id
