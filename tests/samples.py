"""Small records and conversations that tests start from."""

from typing import Any

from lockstitch.model import Entry, Run, Thread, tool_result
from lockstitch.store import Committed, Store
from tests.waits import waiting


def said(text: str, **more: Any) -> Entry:
    return Entry(type="input", message={"role": "user", "content": text}, **more)


def answered(text: str, **more: Any) -> Entry:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return Entry(**{"type": "llm_call", "status": "end_turn", "message": message, "step_number": 1, **more})


def asked(*call_ids: str, name: str = "look", **more: Any) -> Entry:
    """A response that asks for tools."""
    calls = [{"type": "tool_use", "id": call_id, "name": name, "input": {"of": call_id}} for call_id in call_ids]
    message = {"role": "assistant", "content": calls}
    return Entry(**{"type": "llm_call", "status": "tool_use", "message": message, "step_number": 1, **more})


def result(call_id: str, index: int, reply_to: int, text: str = "done", name: str = "look", **more: Any) -> Entry:
    return Entry(
        type="tool_call",
        name=name,
        call_id=call_id,
        call_index=index,
        reply_to=reply_to,
        status="ok",
        message=tool_result(call_id, text),
        **more,
    )


async def begin_turn(store: Store, head: Thread, text: str, **fields: Any) -> tuple[Committed, Run]:
    """Commit a run with its input, as the runtime does before it calls the model."""
    run = Run(**{**store.new_run(head, input_position=head.position + 1).__dict__, **fields})
    appended = await store.append(head, [said(text, run_id=run.id, step_number=0)], new_runs=[run])
    return appended, run


async def finish_turn(store: Store, head: Thread, run: Run, text: str, **fields: Any) -> Committed:
    """The answer and the run's end in one commit; the chat waits for input again."""
    now = store.clock.now()
    final_fields = {
        "status": "completed",
        "stop_reason": "end_turn",
        "output_position": head.position + 1,
        "completed_at": now,
        "steps": run.steps + 1,
        **fields,
    }
    return await store.append(
        head,
        [answered(text, run_id=run.id)],
        fields={"status": "waiting", "waiting_for": [waiting("input", now)]},
        run_updates=[(run, final_fields)],
    )


async def turn(store: Store, head: Thread, question: str, answer: str, **fields: Any) -> Thread:
    """One whole turn; the head it leaves."""
    started, run = await begin_turn(store, head, question)
    return (await finish_turn(store, started.head, run, answer, **fields)).head
