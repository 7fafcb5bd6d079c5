"""`Result`: the outcome of a run, and functions that make one from the store."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.engine.decision.in_doubt import shown
from lockstitch.errors import NotFound
from lockstitch.model import InDoubtWait, Json, Message, Run, Thread, Wait, as_id, parse_waits, waits_json
from lockstitch.store import Store
from lockstitch.store.conversations import EnqueuedMessage


@dataclass(frozen=True)
class Result:
    """The outcome of a run, or its current state if it waits."""

    thread_id: UUID
    """The thread of the run."""
    run_id: UUID
    """The run. If the message waits in the inbox, the id that its run will have."""
    status: str
    """`completed`, `failed`, `cancelled` or `waiting`. For a run that a worker executes also `pending`, if the message
    waits in the inbox, and `running`."""
    stop_reason: str | None
    """Why the run ended or paused, for example `end_turn`, `max_steps`, `error` or `awaiting_approval`; None before
    that."""
    output_text: str | None
    """The text of the last answer, or the summary passed to `complete_thread`; None if there is none. After a cancel,
    the text that was streamed so far (see `partial`)."""
    output: Any
    """The structured answer, if the agent has an output type; else None."""
    steps: int
    """Number of model calls of the loop. Calls outside the loop, such as the title, do not count."""
    usage: dict[str, int]
    """Tokens of all model calls of the run, by kind."""
    cost: Json
    """The cost of the run in US dollars and its parts (see `engine.usage`); empty if no call has a known price."""
    total_cost: float | None
    """US dollars of all calls with a known price; None if there is none."""
    error: str | None
    """The error message of a failed run; else None."""
    in_doubt: list[Json]
    """Calls that were started and have no known outcome: `call_id`, `name`, and for calls of a team member also `run`
    and `agent`."""
    waiting_for: list[Json]
    """The waits of a waiting run as JSON; `waits` has them as objects."""
    generated_files: list[Json]
    """The files that the run stored: `file_id`, `filename`, `storage_path`, `size`, `mime_type`, `step`."""
    container_id: str | None
    """The container of the provider's code execution, if the run used one."""
    title: str | None
    """The title of the thread, if it has one."""
    store: Store = field(repr=False)
    """The store that the run is in."""
    queued_message_id: UUID | None = None
    """The id of the delivery if the message waits in the inbox, equal to `run_id`; else None. `result_for` returns its
    answer."""

    @property
    def partial(self) -> bool:
        """True if a cancel stopped the run, and `output_text` is the text of its answer so far."""
        return self.status == "cancelled" and bool(self.output_text)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The entries of `waiting_for` as objects."""
        return parse_waits(self.waiting_for)

    async def messages(self) -> list[Message]:
        """Return all messages of this run, also those that were compacted since.

        `lockstitch.sync.messages` is the blocking variant.

        Raises:
            NotFound: If the run was deleted.
        """
        return await self.store.messages(self.run_id)

    def as_json(self) -> Json:
        """Return the result as JSON, without `output`, `cost`, `container_id` and `title`."""
        return {
            "thread_id": str(self.thread_id),
            "run_id": str(self.run_id),
            "status": self.status,
            "stop_reason": self.stop_reason,
            "output_text": self.output_text,
            "steps": self.steps,
            "usage": self.usage,
            "total_cost": self.total_cost,
            "in_doubt": self.in_doubt,
            "waiting_for": self.waiting_for,
            "generated_files": self.generated_files,
            "error": self.error,
            "partial": self.partial,
        }


def summary_of(head: Thread, text: str | None) -> str | None:
    """Return the last answer of a run, or the summary with which its thread ended."""
    return text or ((head.result or {}).get("summary") if head.ended else None) or text


async def result_of_run(store: Store, head: Thread, run: Run, output_text: str | None, output: Any = None) -> Result:
    """Return the result of a run from its current row."""
    doubts = shown(run)
    waits = [wait for wait in head.waits if not wait.is_rest] if run.status == "waiting" else []
    doubts += [wait.as_doubt() for wait in waits if isinstance(wait, InDoubtWait)]
    return Result(
        thread_id=head.id,
        run_id=run.id,
        status=run.status,
        stop_reason=run.stop_reason,
        output_text=output_text,
        output=output if output is not None else run.output,
        steps=run.steps,
        usage=run.usage,
        cost=run.known_cost,
        total_cost=run.total_cost,
        error=run.error,
        in_doubt=doubts,
        waiting_for=waits_json(waits),
        generated_files=await store.execution.files_of(head, run) if run.state.get("files") else [],
        container_id=run.state.get("container_id"),
        title=head.title,
        store=store,
    )


def run_waiting(head: Thread, delivery_id: UUID, at: datetime) -> Run:
    """Return the run of a message that waits in the inbox of a thread.

    The run is not stored yet. Its numbers and positions are those that it would have if it started now.
    """
    return Run(
        id=delivery_id,
        thread_id=head.id,
        sequence=head.last_sequence + 1,
        turn=head.last_turn + 1,
        first_position=head.position + 1,
        agent=head.agent,
        status="pending",
        started_at=at,
    )


async def result_waiting(store: Store, head: Thread, delivery_id: UUID) -> Result:
    """Return the result of a message that waits in the inbox of a thread. Its status is `pending`."""
    run = run_waiting(head, delivery_id, store.clock.now())
    return replace(await result_of_run(store, head, run, None), queued_message_id=delivery_id)


async def result_enqueued(store: Store, message: EnqueuedMessage) -> Result:
    """Return the result of a message that was just left for a worker; its status is `pending`.

    If the thread had accepted the message before, return its result in the current state.
    """
    if not message.new:
        return await result_for(store, message.run_id)
    return await result_waiting(store, message.thread, message.run_id)


async def result_from_store(store: Store, run: Run) -> Result:
    """Return the result of a run from the store, whichever process executed it."""
    head = await store.thread(run.thread_id)
    text = await store.execution.answer_text_at(head, run.output_position) if run.output_position else None
    return await result_of_run(store, head, run, summary_of(head, text))


async def run_of_message(store: Store, head: Thread, delivery_id: UUID) -> Run | None:
    """Return the run that a delivered message started or entered; None while it waits in the inbox."""
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
    """Return the run with this id, or the run of the message with this delivery id. Raises `NotFound` if there is
    neither.

    While the message waits in the inbox, its run has the status `pending` and is not stored.
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
    """Return the result of a run in its current state, whichever process executes it.

    While the message of the run waits in the inbox, the status is `pending`.

    Args:
        store: Open store with the run.
        run_id: Id of the run: the `run_id` of a result, also of a detached one.

    Returns:
        The result. `output` is JSON, not an instance of the output type.

    Raises:
        NotFound: If there is no run and no message with this id.
    """
    run = await run_for(store, run_id)
    if run.status != "pending":
        return await result_from_store(store, run)
    return await result_waiting(store, await store.thread(run.thread_id), run.id)
