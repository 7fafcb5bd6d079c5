"""A turn of a team, compared with the same work by agents alone."""

import time

from benchmarks.measure import middle, take_turns
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from lockstitch import Agent, Store, Team, open_store, tool
from lockstitch.testing import Scripted

BACKENDS = SQL

OVERHEAD = 2.0
"""A team's turn has one more run than its agents alone: the run that compiles the answer."""

TURNS = 20


@tool(effect="safe")
def ask() -> str:
    """Ask an expert."""
    return "Found."


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    turns = TURNS if scale.rounds > 1 else 2
    asks = {"name": "delegate", "input": {"member": "knower", "task": "Find it."}}
    knower = Agent("knower", model=Scripted(["Found."]), title=False)
    crew = Team("crew", model=Scripted([[{"calls": [asks]}, "It was found."]]), members=[knower], title=False)
    asker = Agent("asker", model=Scripted([[{"calls": [{"name": "ask"}]}, "It was found."]]), tools=[ask], title=False)
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            rounds = await take_turns(
                scale.rounds, lambda: _timed(store, turns, asker, knower), lambda: _timed(store, turns, crew)
            )
    alone, led = middle([(pair[0], pair[1]) for pair in rounds])
    name = "a turn of a team with one member, compared with both agents alone"
    return Measured([Row(name, backend, led, "ms", alone, at_most(OVERHEAD))], [])


async def _timed(store: Store, turns: int, *agents: Agent) -> float:
    """Return the milliseconds of a turn: each of these agents runs once, in a separate thread."""
    started = time.perf_counter()
    for _ in range(turns):
        for agent in agents:
            result = await agent.run("Go", store=store)
            if result.status != "completed":
                raise RuntimeError(f"{agent.name} is {result.status}: {result.error}")
    return (time.perf_counter() - started) / turns * 1000
