"""`Grader`: the protocol of graders, with the answers that they get and the grades that they return."""

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


async def ask(agent: Agent, prompt: Prompt, *, store: Store, thread: str, **options: Any) -> Result:
    """Return the result of the only run of a thread.

    Start the run, continue it if it was interrupted, or wait for it if another process executes it. `options` are
    keywords of `Agent.run`.
    """
    while True:
        try:
            head = await store.thread(thread)
        except NotFound:
            head, run = None, None
        else:
            run = await _run_of(store, head)
        if head is not None and run is not None:
            if run.status not in TERMINAL_STATUSES and not has_open_waits(head):
                return await finish_or_wait(
                    store, head, run, lambda free: agent.resume(free, store=store, deps=options.get("deps"))
                )
            return await result_from_store(store, run)
        try:
            return await agent.run(prompt, store=store, thread=thread, first=True, on_busy="refuse", **options)
        except (AlreadyStarted, ThreadHeld, ThreadWaiting, TakenOver):
            # Another process started this run first. Wait for it.
            pass
        await asyncio.sleep(random.uniform(*_PAUSE))


async def cost_of(store: Store, thread: UUID) -> float | None:
    """Return the cost of a thread with its children and members in USD, or None if no model has a price."""
    known = [
        overview.total_cost
        for overview in await store.overview(await store.tree(thread))
        if overview.total_cost is not None
    ]
    return math.fsum(known) if known else None


async def _run_of(store: Store, head: Thread) -> Run | None:
    """Return the run of the thread's only input."""
    return next((run for run in await store.runs(head) if run.parent_run_id is None), None)


@dataclass(frozen=True, slots=True)
class Case:
    """One input of a dataset, with the known properties of a correct answer."""

    id: str
    """Id of the case, unique within the dataset."""
    input: str | Sequence[Json]
    """Text or content blocks for the agent."""
    expected: Any = None
    """Expected answer, for graders that compare."""
    schema: Any = None
    """JSON schema of the answer, for the grader `json_schema`."""
    metadata: Json = field(default_factory=dict[str, Any])
    """Metadata of the run."""
    line: int = 0
    """Line in the file; 0 if the case is not from a file."""
    rubric: Any = None
    """Criteria for the grader `rubric`: texts, or objects with `criterion`, `name` and `weight`."""
    source_run_id: UUID | None = None
    """Id of the recorded run that the case was made of. None: a person or a program wrote the case."""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A case with the answer of the agent."""

    case: Case
    text: str
    output: Any
    """The structured answer, or None if the answer is text."""
    store: Store
    thread: str
    """Key for the thread of a grader. It is the same when this case is graded again after a crash."""


class Grade(NamedTuple):
    """A score from 0 (wrong) to 1 (correct), its reason, and the run and cost of the model that graded."""

    score: float
    reason: str = ""
    run_id: UUID | None = None
    cost: float | None = None
    criteria: Sequence[Json] = ()
    """Score and reason of each criterion of a rubric."""


class Grader(Protocol):
    """Grades answers. After a crash it may grade the same answer again and must return the same grade."""

    name: str

    @property
    def pass_at(self) -> float:
        """Minimum score of a case that passes."""
        ...

    @property
    def parameters(self) -> Json:
        """Parameters of the grader. An evaluation with other parameters is not continued."""
        ...

    def check(self, case: Case) -> str | None:
        """Return the problem if this grader cannot grade the case, else None. Called for all cases before a run."""
        ...

    async def grade(self, answer: GradedAnswer, /) -> Grade:
        """Return the grade of an answer."""
        ...

    async def close(self) -> None:
        """Close connections of the grader."""
        ...


QUOTED: Final = 80
"""Maximum characters of an answer in the reason of a grade."""

# No two adjacent repetitions may match the same character: that would take exponential time on a long answer.
_FENCE: Final = re.compile(r"^\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*$", re.DOTALL)


def plain(text: str) -> str:
    """Return the text with single spaces instead of line breaks and runs of spaces."""
    return " ".join(text.split())


def quoted(value: Any) -> str:
    """Return the value in quotes, shortened to `QUOTED` characters."""
    text = plain(value if isinstance(value, str) else codec.dumps(value).decode())
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + '…'}”"


def value_of(answer: GradedAnswer) -> Any:
    """Return the structured answer, or the text parsed as JSON. Raises `ValueError` if it is not JSON."""
    if answer.output is not None:
        return answer.output
    fenced = _FENCE.match(answer.text)
    try:
        return codec.loads(fenced.group(1) if fenced else answer.text)
    except RecursionError as exc:
        raise ValueError("it is nested too deep") from exc
