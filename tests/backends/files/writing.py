"""Commits that tests of the file backend write without the store above it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit, Receipt, ThreadChange
from lockstitch.backends.files import FilesBackend
from lockstitch.model import (
    CHAIN_TYPES,
    Entry,
    FakeClock,
    Run,
    Stitch,
    Thread,
    at_position,
    new_id,
    tool_result,
)
from tests.waits import waiting

START = datetime(2026, 1, 1, tzinfo=UTC)


async def opened(root: Path, clock: FakeClock | None = None) -> FilesBackend:
    backend = FilesBackend(root, clock or FakeClock())
    await backend.migrate()
    return backend


def thread(**fields: Any) -> Thread:
    resting = {"status": "waiting", "waiting_for": [waiting("input", START)]}
    return Thread(**{"created_at": START, "updated_at": START, **resting, **fields})


def said(text: str, **more: Any) -> Entry:
    return Entry(type="input", step_number=0, message={"role": "user", "content": text}, **more)


def answered(text: str, **more: Any) -> Entry:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    values = {"type": "llm_call", "status": "end_turn", "step_number": 1, "message": message, **more}
    return Entry(**values)


def asked(*call_ids: str, **more: Any) -> Entry:
    calls = [{"type": "tool_use", "id": call_id, "name": "look", "input": {"of": call_id}} for call_id in call_ids]
    message = {"role": "assistant", "content": calls}
    return Entry(type="llm_call", status="tool_use", step_number=1, message=message, calls=len(call_ids), **more)


def result(call_id: str, reply_to: int, index: int = 0, content: Any = "found", **more: Any) -> Entry:
    block = tool_result(call_id, content)
    return Entry(
        type="tool_call", name="look", call_id=call_id, reply_to=reply_to, call_index=index, message=block, **more
    )


def placed(head: Thread, *entries: Entry) -> list[Stitch]:
    """Return entries as the stitches that continue a thread's log."""
    stitches: list[Stitch] = []
    tip = head.tip_id
    for position, entry in enumerate(entries, head.position + 1):
        stitches.append(at_position(entry, head.id, position, tip, head.fence, START + timedelta(seconds=position)))
        tip = entry.id if entry.type in CHAIN_TYPES else tip
    return stitches


async def head_of(backend: FilesBackend, thread_id: UUID) -> Thread:
    head = await backend.get(Thread, (thread_id,))
    assert head is not None
    return head


async def create(backend: FilesBackend, **fields: Any) -> Thread:
    new_thread = thread(**fields)
    await backend.append(Commit(new_threads=[new_thread]))
    return new_thread


async def append(
    backend: FilesBackend, head: Thread, *entries: Entry, fields: dict[str, Any] | None = None, **more: Any
) -> Receipt:
    """Continue a thread from the seen `head`. `fields` are further changes of the head."""
    change = ThreadChange(
        head.id, head.fence, head.position, head.worker_id, stitches=placed(head, *entries), head=fields or {}, **more
    )
    return (await backend.append(Commit([change])))[0]


def next_run(head: Thread, **fields: Any) -> Run:
    return Run(
        **{
            "id": new_id(),
            "thread_id": head.id,
            "sequence": head.last_sequence + 1,
            "turn": head.last_turn + 1,
            "first_position": head.position + 1,
            "input_position": head.position + 1,
            "started_at": START,
            **fields,
        }
    )


async def begin(backend: FilesBackend, head: Thread, text: str, **fields: Any) -> tuple[Thread, Run]:
    """Start a run with its input."""
    run = next_run(head, **fields)
    changed = {"status": "running", "waiting_for": [], "last_sequence": run.sequence, "last_turn": run.turn}
    await append(
        backend, head, said(text, run_id=run.id), new_runs=[run], fields={**changed, "last_run_at": run.started_at}
    )
    return await head_of(backend, head.id), run


async def finish(backend: FilesBackend, head: Thread, run: Run, text: str, **fields: Any) -> Thread:
    """Append the answer and end the run. The chat waits for input again."""
    final_fields = {
        "status": "completed",
        "stop_reason": "end_turn",
        "steps": 1,
        "output_position": head.position + 1,
        "completed_at": START + timedelta(minutes=1),
        **fields,
    }
    resting = {"status": "waiting", "waiting_for": [waiting("input", START)], "total_runs": head.total_runs + 1}
    await append(backend, head, answered(text, run_id=run.id), runs=[(run.id, final_fields)], fields=resting)
    return await head_of(backend, head.id)


async def turn(backend: FilesBackend, head: Thread, question: str, answer: str, **fields: Any) -> Thread:
    """Append a whole turn. Return the resulting head."""
    started, run = await begin(backend, head, question)
    return await finish(backend, started, run, answer, **fields)
