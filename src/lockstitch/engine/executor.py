"""Driving a thread in this process: take it, go on where it was, give it back."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from lockstitch.engine.config import RunConfig
from lockstitch.engine.decision.decide import crash_reason
from lockstitch.engine.events import Listener
from lockstitch.engine.loop import run_loop
from lockstitch.engine.result import (
    Result,
    result_enqueued,
    result_from_store,
    result_of_run,
    result_waiting,
    run_waiting,
    summary_of,
)
from lockstitch.engine.session.deliveries import report, result
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.engine.session.start import (
    RunInput,
    next_input,
    restore_request_settings,
    start_run,
    waiting_message,
)
from lockstitch.engine.session.takeover import note_takeover
from lockstitch.engine.session.thread_session import ThreadSession
from lockstitch.engine.webhooks import webhook_events
from lockstitch.errors import (
    AlreadyStarted,
    Conflict,
    KeyTaken,
    LimitReached,
    NotFound,
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
    NextMessageWait,
    RetryWait,
    Run,
    Thread,
    WebhookEvent,
    answer_of,
    as_id,
    waits_json,
)
from lockstitch.model.message import user
from lockstitch.store import Store
from lockstitch.store.conversations import EnqueuedMessage

_WHY: Final = 500
"""Characters of the reason why a thread could not be driven."""

OnWaiting = Literal["refuse", "cancel"]


class AgentHost(Protocol):
    """The agents whose threads an `Executor` executes. `App` is one, `SingleAgentHost` another."""

    @property
    def agent_names(self) -> Sequence[str]:
        """The names of the agents."""
        ...

    @property
    def webhook_names(self) -> Sequence[str]:
        """The webhooks to call when a thread fails or starts to wait for a person."""
        ...

    async def run_config(
        self, store: Store, head: Thread, run: Run | None, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        """Return the config of a thread's open run, or of a new run if `run` is None.

        The second value is the instructions of a new run. `deps` None stands for the deps of the agent. Raises
        `NotFound` if the host has no code of the thread's agent.
        """
        ...

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Called after a run has ended, with its last state."""
        ...


@dataclass(frozen=True)
class Executor:
    """Executes threads of the agents of a host in this process."""

    store: Store
    host: AgentHost
    deps: Any = None
    """The dependencies of `agent`. Other agents have their own."""
    listener: Listener | None = None
    """Receives the events of threads of `agent`."""
    agent: str | None = None
    """The name of the agent that the caller runs."""
    take_over: bool = False
    ignore_limits: bool = False
    """Whether it is driven whatever limits say, because it is only to be ended."""
    should_release: Callable[[], bool] | None = None
    """Says when what is driven is to be left to others."""
    detach: bool = False
    """Whether a run is only begun here, and left to workers."""
    deadline: float | None = None
    """Seconds that a tool may take which has no limit of its own."""
    live: Listener | None = None
    """Who passes on what is said to readers in other processes."""
    retry_after: float | None = None
    """Seconds after which a thread that cannot be driven is tried again; None: whoever drives it is told at once."""
    cleared: Callable[[], None] | None = None
    """Called once a suspect has made progress."""

    def for_thread(self, head: Thread) -> "Executor | None":
        """Return the executor of a thread that belongs to the same tree; None if the host has no code of its agent."""
        if head.agent not in self.host.agent_names:
            return None
        return self if head.agent == self.agent else replace(self, deps=None, listener=None)

    async def run_new_thread(self, thread: Thread, run_input: RunInput) -> Result:
        """Make a new thread with its first run, and drive it. KeyTaken when somebody else was first."""
        try:
            create_if_required = await self.store.execution.create_if_required(thread, run_input.message)
        except Conflict as exc:
            raise key_taken(thread) from exc
        if create_if_required:
            return await self.run(thread, run_input)
        ledger = ThreadSession(self.store, await self.store.execution.hold_new(thread), new=True)
        try:
            result, _ = await self._execute_held(ledger.head, run_input, RunSession(ledger))
        except Conflict as exc:
            if not ledger.new:
                raise
            if not self.store.execution.is_holder(ledger.head):
                # This process was declared dead before there was anything that others could have: it begins anew.
                return await self.run_new_thread(thread, run_input)
            raise key_taken(thread) from exc
        assert result is not None
        return result

    async def run(self, head: Thread, run_input: RunInput, on_waiting: OnWaiting = "refuse") -> Result:
        """Begin a run with `given` and drive it. A run that was cut off before is driven to its end first, and so are
        the runs of messages that were accepted before. If a thread has a goal that no run has begun with, the first run
        begins with the goal, and `given` enters that run."""
        while True:
            self._require_not_waiting(head, on_waiting)
            if run_input.retry_of is None and not run_input.first and _goal_is_ahead(head):
                return await (
                    self.enqueue_behind(head, run_input) if self.detach else self.enqueue_and_wait(head, run_input)
                )
            result, began = await self._drive(head, run_input, cancel=on_waiting == "cancel")
            if began and result is not None:
                return result
            head = await self.store.thread(head.id)
            if self.detach and not began:
                # The run of another message comes first. It is left to workers, and so is this message.
                return await self.enqueue_behind(head, run_input)

    async def retry(self, head: Thread, last: Run) -> Result | None:
        """Begin a run that tries `last` again, which has not completed; if somebody else has, what became of theirs."""
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
        """Go on where the thread was: its open run, or a message nobody has answered. None: there is nothing to do."""
        result, _ = await self._drive(head, None)
        return result

    async def enqueue_behind(self, head: Thread, run_input: RunInput) -> Result:
        """Leave a message to the workers. The result has the id that its run will have."""
        return await result_enqueued(self.store, await self._enqueue(head, run_input))

    async def _enqueue(self, head: Thread, run_input: RunInput) -> EnqueuedMessage:
        """Leave a message for the agent of the thread."""
        options: dict[str, Any] = {"extras": run_input.extras, "metadata": run_input.metadata, "tags": run_input.tags}
        return await self.store.enqueue(None, run_input.message, thread=head, **options)

    async def enqueue_and_wait(self, head: Thread, run_input: RunInput) -> Result:
        """Leave a message in line and wait for its run; drive it ourselves if nobody else does."""
        delivery_id = (await self._enqueue(head, run_input)).run_id
        pause = 0.02
        result: Result | None = None
        while True:
            run = await run_of_message(self.store, head, delivery_id)
            if run is not None and (run.status in TERMINAL_STATUSES or run.status == "waiting"):
                return (
                    result
                    if result is not None and result.run_id == run.id
                    else await result_from_store(self.store, run)
                )
            # A run that waits for a person or for children continues when they answer.
            # The run of this message comes after it.
            result = None if has_open_waits(head) else await retry_until_free(self.store, head, self.resume)
            if result is None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 1.5, 0.5)
            head = await self.store.thread(head.id)

    async def execute_held(self, head: Thread) -> Result | None:
        """The same with a thread that this process has claimed."""
        result, _ = await self._execute_held(head, None, None)
        return result

    async def _drive(
        self, before: Thread, run_input: RunInput | None, *, cancel: bool = False
    ) -> tuple[Result | None, bool]:
        """One drive under one claim: of the open run if there is one, else of a new run. Whether it was a new one, and
        the one with `given` if that is not None."""
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
        stage: RunContext | None = None
        given_in = False
        try:
            session = session or await RunSession.load(self.store, head)
            if head.suspect:
                await note_takeover(session)
                self._watch_progress(session)
            if session.run is None and head.kind != "chat" and await self._end_without_run(session):
                return None, False
            config, system = await self.host.run_config(self.store, head, session.run, self.deps)
            hooks = self.host.webhook_names
            stage = RunContext(session, config, self.listener, system=system, hooks=hooks, deadline=self.deadline)
            stage.live = self.live
            async with self.store.lease_keeper.keeping(stage):
                began = session.run is None
                await self._require_not_started(session, run_input)
                if session.run is not None:
                    await restore_request_settings(stage)
                    if cancel and session.run.status == "waiting":
                        session.head = session.head.changed(cancel_requested=True)
                else:
                    if session.head.cancel_requested:
                        # The wish came too late: what it meant has ended, and a chat goes on after a run.
                        await session.commit(cancel_requested=False)
                        session.head = session.head.changed(cancel_requested=False)
                    cause = await self._cause(stage, run_input)
                    if cause is None:
                        # What children told since the last run has its place in the log; nobody else would take it.
                        deliveries = [
                            delivery for delivery in await session.letters_waiting() if delivery.kind == "children"
                        ]
                        if deliveries:
                            await session.commit(consumed=deliveries)
                        await self.store.execution.release(head, _resting_fields(session.head, self.store.clock.now()))
                        return None, False
                    began = run_input is None or cause is run_input
                    await start_run(stage, cause)
                    given_in = cause is run_input
                if self.detach:
                    stage.should_release = lambda: True
                elif self.should_release is not None:
                    stage.should_release = self.should_release
                left = await run_loop(stage) == "left"
                return (None if left and not self.detach else await self._result(stage)), began
        except BaseException as exc:
            # A thread that somebody else made first was never ours, even if it is held by this process.
            never_ours = isinstance(exc, Conflict) and session is not None and session.ledger.new
            if not never_ours and not _lost(exc, head.id):
                latest = stage.journal.head if stage is not None else head
                started = stage is not None and stage.journal.run is not None
                await self.store.execution.release(head, self._fields_on_release(latest, started, exc))
            if given_in and isinstance(exc, Conflict):
                raise run_interrupted(exc, head.id) from exc
            if _lost(exc, head.id) and not isinstance(exc, ThreadDeleted) and not never_ours:
                # The caller added no input, so it may resume the thread again.
                raise ThreadHeld(_taken_over(exc, head.id), thread_id=head.id) from exc
            raise
        finally:
            # This process no longer executes the thread, in any case.
            self.store.execution.request_release(head)

    def _watch_progress(self, session: RunSession) -> None:
        """Call `cleared` after the commit that ends the suspicion."""
        cleared = self.cleared
        if cleared is None:
            return

        def look() -> None:
            if session.head.suspect:
                session.when_committed(look)
            else:
                cleared()

        session.when_committed(look)

    def _fields_on_release(self, head: Thread, started: bool, exc: BaseException) -> dict[str, Any]:
        """How a thread is left that could not be driven: as it was, or ready for whoever goes on with it.

        Where nobody is there to be told, it says itself what was wrong, and waits a while before it is tried again.
        """
        now = self.store.clock.now()
        if self.retry_after is not None and isinstance(exc, Exception):
            until = now + timedelta(seconds=self.retry_after)
            why = f"{wire_name_of(exc)}: {exc}"[:_WHY]
            return {
                "status": "waiting",
                "waiting_for": [RetryWait(now, until=until, reason=why).as_json()],
                "wake_at": until,
            }
        return {"status": "pending"} if started else _resting_fields(head, now)

    async def _end_without_run(self, session: RunSession) -> bool:
        """End a goal that is wished to end, or that ends whoever takes it, before its first run; whether it was."""
        head = session.head
        crashed = crash_reason(head)
        if crashed is None and not head.cancel_requested:
            return False
        status = "cancelled" if head.cancel_requested else "failed"
        ended = result(status, None, crashed if status == "failed" else None)
        messages: list[WebhookEvent] = []
        if status == "failed":
            session.record(Entry(type="error", data={"type": "Crashed", "message": crashed, "fatal": True}))
            messages = webhook_events(session, self.host.webhook_names, "failed", {"error": crashed})
        if status == "cancelled" and head.pending_children:
            await session.store.request_cancel_of_children(head)
        rest: dict[str, Any] = {"waiting_for": [], "wake_at": None, "cancel_requested": False}
        while True:
            await session.letters_waiting()
            try:
                deliveries = report(head, ended, session.clock)
                await session.commit(
                    deliveries=deliveries, webhook_events=messages, status=status, result=ended, **rest
                )
            except UnseenDeliveries:
                continue
            return True

    async def _cause(self, context: RunContext, run_input: RunInput | None) -> RunInput | None:
        """Return the cause of the next run: a message that was accepted before `given`, else `given`."""
        if run_input is None:
            # A driver that is only to end a run has no code of the agent, so it must not begin the next run.
            return None if self.ignore_limits else await next_input(context)
        if run_input.retry_of is not None or context.journal.head.kind != "chat":
            return run_input
        ahead = await waiting_message(context.journal, before=run_input.arrived)
        if ahead is not None and run_input.first:
            raise _begun(context.journal.head)
        return ahead or run_input

    async def _require_not_started(self, session: RunSession, run_input: RunInput | None) -> None:
        """Raise AlreadyStarted if a run that may start once has started. The thread is claimed, so only one starts."""
        if run_input is None:
            return
        started = run_input.first and session.head.last_sequence > 0
        if run_input.retry_of is not None:
            last = await self.store.execution.last_run(session.head)
            started = last is not None and last.id != run_input.retry_of.id
        if started:
            raise _begun(session.head)

    async def _result(self, context: RunContext) -> Result:
        session = context.journal
        run, response = session.open_run, session.snapshot.response
        value = None
        if response is not None and response.position == run.output_position:
            value = answer_of(response.message)
        elif run.output_position is not None:
            value = await self.store.execution.answer_text_at(session.head, run.output_position)
        value = summary_of(session.head, value)
        output = None
        if run.output is not None and context.setup.output_type is not None:
            output = context.setup.output_type.model_validate(run.output)
        if run.status in TERMINAL_STATUSES:
            self.host.on_run_end(self.store, session.head, run)
        result = await result_of_run(session.store, session.head, run, value, output)
        context.emit("finished", {**result.as_json(), "title": session.head.title}, now=True)
        return result

    @staticmethod
    def _require_not_waiting(head: Thread, on_waiting: OnWaiting) -> None:
        if has_open_waits(head) and on_waiting == "refuse":
            waits = [wait for wait in head.waits if not wait.is_rest]
            pending = ", ".join(f"{wait.kind} {wait.name or wait.call_id or ''}".strip() for wait in waits)
            raise ThreadWaiting(
                f'Thread {head.id} waits for {pending}. Reply to that first, or pass on_waiting="cancel".',
                thread_id=head.id,
            )


def _resting_fields(head: Thread, now: datetime) -> dict[str, Any]:
    """How a thread without an open run is left by whoever found nothing to do, or could not begin.

    What it waited for stands in its head as long as it is held; but a chat without a run waits for its next message,
    whatever it waited for before.
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
    """What becomes of a run that `act` goes on with as soon as nobody else does; or what others have made of it."""
    went_on = None
    with suppress(ThreadEnded):
        went_on = await retry_until_free(store, head, act)
    if went_on is not None and went_on.run_id == run.id:
        return went_on
    return await result_from_store(store, await store.run(run.id))


async def run_of_message(store: Store, head: Thread, delivery_id: UUID) -> Run | None:
    """The run that a delivered message is the input of, or that it entered; None while it waits in the inbox."""
    try:
        # The run that a message to a chat causes has the id of its delivery.
        return await store.run(delivery_id)
    except NotFound:
        pass
    delivery = await store.execution.delivery(delivery_id)
    if delivery is None or delivery.position is None:
        return None
    stitches = await store.stitches(head, delivery.position, delivery.position)
    run_id = next((stitch.run_id for stitch in stitches), None)
    return await store.run(run_id) if run_id is not None else None


async def run_for(store: Store, run_id: UUID | str) -> Run:
    """The run with this id, or of the message whose delivery has this id. NotFound if there is neither.

    While the message waits in line, its run has the status `pending` and is not stored.
    """
    try:
        return await store.run(run_id)
    except NotFound:
        run = await _run_of_message(store, as_id(run_id))
        if run is None:
            raise
        return run


async def _run_of_message(store: Store, delivery_id: UUID | None) -> Run | None:
    delivery = await store.execution.delivery(delivery_id) if delivery_id is not None else None
    if delivery is None or delivery.kind != "input" or delivery.call_id:
        return None
    try:
        head = await store.thread(delivery.thread_id)
    except NotFound:
        # The thread belongs to another project.
        return None
    return await run_of_message(store, head, delivery.id) or run_waiting(head, delivery.id, delivery.at)


async def result_for(store: Store, run_id: UUID | str) -> Result:
    """The result of a run, or of the message whose delivery has this id, from the store.

    NotFound if there is neither. While the message waits in line, the status of its result is `pending`.
    """
    run = await run_for(store, run_id)
    if run.status != "pending":
        return await result_from_store(store, run)
    return await result_waiting(store, await store.thread(run.thread_id), run.id)


def _begun(head: Thread) -> AlreadyStarted:
    return AlreadyStarted(f"The run of thread {head.id} was started before.", thread_id=head.id)


def key_taken(thread: Thread) -> KeyTaken:
    return KeyTaken(f"The key or id {thread.key or thread.id} is already used by another thread.", thread_id=thread.id)


def run_interrupted(exc: Conflict, thread_id: UUID) -> RunInterrupted | TakenOver:
    """Return the error for the caller that started a run, if the run stops here before its end.

    The input is stored. So the error is not `ThreadHeld`, after which callers send the input again.
    """
    if not _lost(exc, thread_id):
        return RunInterrupted(str(exc), thread_id=exc.thread_id)
    return TakenOver(_taken_over(exc, thread_id), thread_id=thread_id)


def _taken_over(exc: BaseException, thread_id: UUID) -> str:
    return f"Thread {thread_id} was taken over while it was executed here. Its run continues there. ({exc})"


def _lost(exc: BaseException, thread_id: UUID) -> bool:
    """True if this process no longer holds the thread."""
    return isinstance(exc, StaleFence | ThreadHeld | ThreadDeleted) and exc.thread_id == thread_id
