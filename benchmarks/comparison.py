"""The same threads through Lockstitch and its peers, which take turns. `make bench ARGS=--peers` runs it.

Each system has its own process, or two of them, with its own database. Environments of missing peers are created.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache

from benchmarks import runtime, workers
from benchmarks.content import STEPS
from benchmarks.crew import PATIENCE, Crew, crew
from benchmarks.measure import Side, take_turns
from benchmarks.peers.environment import Environment
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_least
from benchmarks.scale import Scale
from benchmarks.workers import AT_ONCE, PeerSide

BACKENDS = SQL


@dataclass(frozen=True)
class Peer:
    """A system that executes the same threads."""

    name: str
    module: str
    """Module of `benchmarks.peers`."""
    environment: Environment | None
    """Without an environment, the peer is executed by this interpreter."""
    backends: tuple[str, ...] = SQL


LANGGRAPH = Peer("LangGraph, sync", "langgraph", Environment.of("langgraph"))
DBOS = Peer("DBOS", "dbos", Environment.of("dbos"))
PROCRASTINATE = Peer("procrastinate", "procrastinate", Environment.of("procrastinate"), ("postgres",))
OPENAI_AGENTS = Peer("OpenAI Agents, session", "openai_agents", Environment.of("openai-agents"))
AGNO = Peer("Agno, stores a run at its end", "agno", Environment.of("agno"))
AGNO_CHECKPOINTS = Peer("Agno, stores each tool call", "agno_checkpoints", Environment.of("agno"))

PEERS = (LANGGRAPH, DBOS, PROCRASTINATE, OPENAI_AGENTS, AGNO, AGNO_CHECKPOINTS)


@dataclass(frozen=True)
class Work:
    """Threads of one length, which every system executes in each round."""

    name: str
    steps: int
    threads: int
    """Threads of a system in one round. Lockstitch's workers execute more of them, as in the group `workers`."""
    rounds: int
    """Rounds at the full scale."""
    peers: Sequence[Peer]
    workers: int = 0
    """Worker processes of each system. Without workers, one process executes one thread after the other."""
    aims: Sequence[tuple[Peer, float]] = ()
    """Required multiples of the speed of peers."""

    @property
    def at_once(self) -> int:
        """Threads that each system executes at once."""
        return AT_ONCE * self.workers or 1

    def row_name(self, peer: Peer) -> str:
        return f"{self.name}, compared with {peer.name}"


WORKS = (
    Work(
        "runs of 10 steps",
        steps=10,
        threads=5,
        rounds=5,
        peers=(LANGGRAPH, DBOS, OPENAI_AGENTS, AGNO, AGNO_CHECKPOINTS),
        aims=((LANGGRAPH, 5.0),),
    ),
    Work("runs of 100 steps", steps=100, threads=1, rounds=5, peers=(LANGGRAPH, DBOS)),
    Work(
        "runs of 1,000 steps",
        steps=1000,
        threads=1,
        rounds=3,
        peers=(LANGGRAPH, DBOS),
        aims=((LANGGRAPH, 20.0),),
    ),
    Work("100 runs of 2 steps", steps=2, threads=100, rounds=3, peers=(LANGGRAPH, DBOS, PROCRASTINATE)),
    Work(
        workers.row_name(2),
        steps=STEPS,
        threads=60,
        rounds=3,
        peers=(LANGGRAPH, DBOS, PROCRASTINATE),
        workers=2,
        aims=((LANGGRAPH, 3.0), (DBOS, 2.0), (PROCRASTINATE, 3.0)),
    ),
)
"""All works, in the order of the README."""

WARM = 100
"""Runs with at most this number of steps have a warm-up round. A longer run is warm after its first steps."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    for work in WORKS:
        if work.steps <= max(scale.lengths):
            rows += await compare(places, backend, scale, work)
    rows.append(await runtime.size_of_turns(places, backend, scale))
    missing = [peer.name for peer in PEERS if not _installed(peer)]
    return Measured(rows, [f"not installed: {', '.join(missing)}"] if missing else [])


async def compare(places: Places, backend: str, scale: Scale, work: Work) -> list[Row]:
    """Return a row for each peer that has this backend and can be installed. For workers, return their rows, too."""
    peers = [peer for peer in work.peers if backend in peer.backends and _installed(peer)]
    aims = {peer: at_least(ratio) for peer, ratio in work.aims}
    threads = max(min(work.threads, scale.goals), work.workers)
    async with AsyncExitStack() as stack:
        sides = [
            PeerSide(
                work.row_name(peer),
                await _side(stack, places, backend, work, threads, peer.module, peer.environment),
                aims.get(peer),
            )
            for peer in peers
        ]
        if work.workers:
            return await workers.compare(places, backend, scale, work.workers, sides, work.rounds)
        if not peers:
            return []
        own_side = await _side(stack, places, backend, work, threads, "lockstitch", None)
        rounds = min(scale.rounds, work.rounds)
        figures = await take_turns(rounds, own_side, *(peer.side for peer in sides), warm_up=work.steps <= WARM)
    return [
        Row.compared(
            peer.row, backend, [(figure[place], figure[0]) for figure in figures], "threads/s", peer.aim, work.at_once
        )
        for place, peer in enumerate(sides, start=1)
    ]


async def _side(
    stack: AsyncExitStack,
    places: Places,
    backend: str,
    work: Work,
    threads: int,
    module: str,
    environment: Environment | None,
) -> Side:
    """Start the processes of a system and open its database. Return the side that executes this number of threads."""
    concurrency = AT_ONCE if work.workers else 1
    processes = await stack.enter_async_context(
        crew(work.workers or 1, "peer", module, str(concurrency), environment=environment)
    )
    await processes.open(stack.enter_context(places.fresh(backend)))
    return _executed(processes, threads // len(processes.members), work.steps)


def _executed(processes: Crew, threads: int, steps: int) -> Side:
    """Return the threads per second of these processes, from the first start to the last end."""

    async def side() -> float:
        for member in processes.members:
            await member.tell(f"{threads} {steps}")
        # A peer may need a second for a step of a long run on a busy machine.
        patience = max(PATIENCE, threads * steps)
        times = [[float(time) for time in (await member.line(patience)).split()] for member in processes.members]
        started, ended = min(time[0] for time in times), max(time[1] for time in times)
        return threads * len(processes.members) / (ended - started)

    return side


@cache
def _installed(peer: Peer) -> bool:
    return peer.environment is None or peer.environment.install()
