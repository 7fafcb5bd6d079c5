"""The cost of grading and storing an evaluation, compared with the same runs alone."""

import asyncio
import time

from benchmarks.measure import middle, take_turns
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from lockstitch import Agent, Store, evaluate, open_store
from lockstitch.agents.evals.grader import Case
from lockstitch.testing import Scripted

BACKENDS = SQL

AT_ONCE = 10

OVERHEAD = 2.5
"""A case is a run, which takes two commits without tools. Its result is a third, after a read."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    cases = [Case(str(number), f"What is {number}?", "A number.") for number in range(scale.cases)]
    agent = Agent("bench", model=Scripted(["A number."]), title=False)
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            rounds = await take_turns(
                scale.rounds, lambda: _runs(agent, store, cases), lambda: _eval(agent, store, cases)
            )
    alone, graded = middle([(pair[0], pair[1]) for pair in rounds])
    name = f"eval of {scale.cases} cases, compared with their runs alone"
    return Measured([Row(name, backend, graded, "ms", alone, at_most(OVERHEAD), AT_ONCE)], [])


async def _runs(agent: Agent, store: Store, cases: list[Case]) -> float:
    started = time.perf_counter()
    waiting = iter(cases)

    async def work() -> None:
        for case in waiting:
            await agent.run(case.input, store=store)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return (time.perf_counter() - started) * 1000


async def _eval(agent: Agent, store: Store, cases: list[Case]) -> float:
    started = time.perf_counter()
    evaluation = await evaluate(agent, cases, store=store, graders="exact", concurrency=AT_ONCE)
    spent = (time.perf_counter() - started) * 1000
    if evaluation.totals.passed != len(cases):
        raise RuntimeError(f"{evaluation.totals.passed} of {len(cases)} cases passed")
    return spent
