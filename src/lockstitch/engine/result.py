"""The result of a run: what came of it, and where more of it is found."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.engine.decision.in_doubt import shown
from lockstitch.model import InDoubtWait, Json, Message, Run, Thread, Wait, parse_waits, waits_json
from lockstitch.store import Store
from lockstitch.store.conversations import EnqueuedMessage


@dataclass(frozen=True)
class Result:
    """What a run gave, or where it stands when it waits for somebody.

    `status` is the run's: completed, failed, cancelled, or waiting; pending if its message waits in line, so that the
    run has not begun and is not stored yet. `output` is the structured answer where one was asked
    for. `in_doubt` lists the calls that were started and have no known outcome, whatever ended the run. Calls of a
    team's members also have their `run` and `agent`.
    """

    thread_id: UUID
    run_id: UUID
    status: str
    stop_reason: str | None
    output_text: str | None
    output: Any
    steps: int
    usage: dict[str, int]
    cost: Json
    total_cost: float | None
    error: str | None
    in_doubt: list[Json]
    waiting_for: list[Json]
    generated_files: list[Json]
    container_id: str | None
    title: str | None
    store: Store = field(repr=False)
    queued_message_id: UUID | None = None
    """The id of the delivery, if the message waits in line; `run_id` is the same. `result_for` finds its answer."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The entries of `waiting_for` as objects."""
        return parse_waits(self.waiting_for)

    async def messages(self) -> list[Message]:
        """Everything that was said in this run, whatever was compacted since."""
        return await self.store.messages(self.run_id)

    def as_json(self) -> Json:
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
        }


def summary_of(head: Thread, text: str | None) -> str | None:
    """What a run said last, or what its thread was completed with."""
    return text or ((head.result or {}).get("summary") if head.ended else None) or text


async def result_of_run(store: Store, head: Thread, run: Run, output_text: str | None, output: Any = None) -> Result:
    """The result of a run as it stands."""
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
        cost=run.cost,
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
    """The run of a message that waits in the inbox of a thread. It is not stored yet. Its places in the thread are
    those that it would have if it began now."""
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
    """The result of a message that waits in the inbox of a thread."""
    run = run_waiting(head, delivery_id, store.clock.now())
    return replace(await result_of_run(store, head, run, None), queued_message_id=delivery_id)


async def result_enqueued(store: Store, message: EnqueuedMessage) -> Result:
    """Return the result of a message that was just left for a worker; its status is `pending`."""
    return await result_waiting(store, message.thread, message.run_id)


async def result_from_store(store: Store, run: Run) -> Result:
    """The result of a run that somebody else drove, as it stands in the store."""
    head = await store.thread(run.thread_id)
    text = await store.execution.answer_text_at(head, run.output_position) if run.output_position else None
    return await result_of_run(store, head, run, summary_of(head, text))
