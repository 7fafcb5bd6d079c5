"""The measured append, the same for the store and for the baselines: one step of an agent that uses a tool.

Responses with a tool call and results take turns, 2 KB each. Every append updates the head, adds the stitch and updates
the counters of the run.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from benchmarks.prose import Prose
from lockstitch.model import Entry, Json, Run, Thread, codec, tool_result
from lockstitch.store import Store

BODY = 2048
"""Bytes of a message's JSON."""

VARIETY = 64


@dataclass(frozen=True)
class Step:
    """The content of one append, without a position: `message` for the caller, `text` as stored in the table."""

    type: str
    status: str
    name: str | None
    call_id: str | None
    message: Json
    text: str
    input_tokens: int | None
    output_tokens: int | None
    duration_ms: int


@cache
def steps(size: int = BODY) -> list[Step]:
    """Return responses and results in turn, with messages of `size` bytes of JSON."""
    prose = Prose(1)
    found_steps: list[Step] = []
    for number in range(VARIETY // 2):
        call_id = f"toolu_01{number:024x}"
        response = _sized(lambda text, call_id=call_id: _asks(call_id, text), prose, size)
        answer = _sized(lambda text, call_id=call_id: tool_result(call_id, text), prose, size)
        found_steps.append(Step("llm_call", "tool_use", None, None, response, _text(response), 900, 450, 1200))
        found_steps.append(Step("tool_call", "ok", "look", call_id, answer, _text(answer), None, None, 35))
    return found_steps


def run_fields(position: int) -> dict[str, Any]:
    """Return the counters of the run after the stitch at `position`."""
    return {"steps": position // 2, "input_tokens": 900 * position, "output_tokens": 450 * position}


def entry(step: Step, run_id: UUID, position: int) -> Entry:
    """Return the step as an entry for the store."""
    answers = step.type == "tool_call"
    return Entry(
        type=step.type,
        run_id=run_id,
        step_number=(position + 1) // 2,
        status=step.status,
        name=step.name,
        call_id=step.call_id,
        reply_to=position - 1 if answers else None,
        call_index=0 if answers else None,
        message=step.message,
        input_tokens=step.input_tokens,
        output_tokens=step.output_tokens,
        duration_ms=step.duration_ms,
    )


class Agent:
    """One thread of the store. Its holder appends step after step."""

    def __init__(self, store: Store, head: Thread, run: Run) -> None:
        self._store = store
        self.head = head
        self.run = run

    @classmethod
    async def start(cls, store: Store) -> "Agent":
        """Return a new thread, held by this process, with a started run."""
        head = await store.claim(await store.create())
        run = store.new_run(head, model="claude-sonnet-4-5", provider="anthropic")
        return cls(store, (await store.append(head, new_runs=[run])).head, run)

    async def append(self, number: int, size: int = BODY) -> None:
        """Append this number of steps, each durable before the next."""
        bodies = steps(size)
        for _ in range(number):
            position = self.head.position + 1
            # Every odd position is a response.
            step = bodies[(position - 1) % len(bodies)]
            self.head = (
                await self._store.append(
                    self.head,
                    [entry(step, self.run.id, position)],
                    run_updates=[(self.run, run_fields(position))],
                )
            ).head


def _asks(call_id: str, text: str) -> Json:
    call = {"type": "tool_use", "id": call_id, "name": "look", "input": {"query": text}}
    return {"role": "assistant", "content": [call]}


def _sized(shape: Any, prose: Prose, size: int) -> Json:
    """Return a message with `size` bytes of JSON."""
    text = prose.take(max(size - len(codec.dumps(shape(""))), 0))
    # Line breaks take two bytes in JSON.
    return shape(text.replace("\n", " "))


def _text(message: Json) -> str:
    return codec.dumps(message).decode()
