"""`Grader` contract; answers as graders see them; one run per key."""

import asyncio
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from lockstitch.agents.agent import Agent, Prompt
from lockstitch.engine.executor import finish_or_wait, has_open_waits
from lockstitch.engine.result import Result, result_from_store
from lockstitch.errors import AlreadyStarted, NotFound, TakenOver, ThreadHeld, ThreadWaiting
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Thread, codec
from lockstitch.store import Store

_PAUSE: Final = (0.02, 0.2)


async def ask(agent: Agent, prompt: Prompt, *, store: Store, thread: str, **call: Any) -> Result:
    """The result of the one run of a thread of its own. One that was cut off is gone on with; one that another process
    drives is waited for."""
    while True:
        try:
            head = await store.thread(thread)
        except NotFound:
            head, run = None, None
        else:
            run = await _answering(store, head)
        if head is not None and run is not None:
            if run.status not in TERMINAL_STATUSES and not has_open_waits(head):
                return await finish_or_wait(
                    store, head, run, lambda free: agent.resume(free, store=store, deps=call.get("deps"))
                )
            return await result_from_store(store, run)
        try:
            return await agent.run(prompt, store=store, thread=thread, first=True, on_busy="refuse", **call)
        except (AlreadyStarted, ThreadHeld, ThreadWaiting, TakenOver):
            # Another process asks the same and started first. Wait for its run.
            pass
        await asyncio.sleep(random.uniform(*_PAUSE))


async def cost_of(store: Store, thread: UUID) -> float | None:
    """What a thread and its children have cost, members included; None while nothing of it has a price."""
    known = [
        overview.total_cost
        for overview in await store.overview(await store.tree(thread))
        if overview.total_cost is not None
    ]
    return math.fsum(known) if known else None


async def _answering(store: Store, head: Thread) -> Run | None:
    """The run that the thread's one input has caused."""
    return next((run for run in await store.runs(head) if run.parent_run_id is None), None)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to ask an agent, and what is known of a good answer."""

    id: str
    input: str | Sequence[Json]
    expected: Any = None
    schema: Any = None
    metadata: Json = field(default_factory=dict[str, Any])
    line: int = 0
    """Where it stands in its file."""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A case with what the agent answered."""

    case: Case
    text: str
    output: Any
    """The structured answer, where the agent gives one."""
    store: Store
    thread: str
    """A key for threads of the grader's own, the same whenever this case is graded again after a crash."""


class Grade(NamedTuple):
    """From 0 (wrong) to 1 (right), and why; with the run that said so and its cost, where a model was asked."""

    score: float
    reason: str = ""
    run_id: UUID | None = None
    cost: float | None = None


class Grader(Protocol):
    """Says how good an answer is. A call may come twice after a crash and must then say the same."""

    name: str

    @property
    def pass_at(self) -> float:
        """The score from which on a case passes."""
        ...

    @property
    def parameters(self) -> Json:
        """What made this grader what it is: an eval that others began with other graders is not gone on with."""
        ...

    def check(self, case: Case) -> str | None:
        """What a case lacks for this grader; None: nothing. Asked of all cases before the first one is run."""
        ...

    async def grade(self, graded_answer: GradedAnswer) -> Grade: ...

    async def close(self) -> None: ...


QUOTED: Final = 80
"""Characters of an answer in the reason of a grade; the whole of it stands in its run."""

# No two repeats in a row may match the same character: a long answer would be tried in every way there is.
_FENCE: Final = re.compile(r"^\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*$", re.DOTALL)


def plain(text: str) -> str:
    """Text whose breaks and spaces are no difference."""
    return " ".join(text.split())


def quoted(value: Any) -> str:
    text = plain(value if isinstance(value, str) else codec.dumps(value).decode())
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + '…'}”"


def value_of(graded_answer: GradedAnswer) -> Any:
    """The structured answer, or the JSON that the text is. ValueError when it is none."""
    if graded_answer.output is not None:
        return graded_answer.output
    fenced = _FENCE.match(graded_answer.text)
    try:
        return codec.loads(fenced.group(1) if fenced else graded_answer.text)
    except RecursionError as exc:
        raise ValueError("it is nested too deep") from exc
