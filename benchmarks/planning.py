"""The prioritizer with 200 tasks: planning alone, a whole session without a model's delay, and reading one."""

import time
from random import Random

from benchmarks.measure import typical
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch.agents.registry import embedder
from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.apps.prioritizer.conclusion import SessionFacts, fallback
from lockstitch.apps.prioritizer.models import TaskDependency
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.repository import base_for
from lockstitch.apps.prioritizer.retention import EXTENSION, expire
from lockstitch.apps.prioritizer.sessions import session_of, trace_of
from lockstitch.apps.prioritizer.waves import planned
from lockstitch.store import Store, open_store

BACKENDS = SQL

TASKS = 200
EDGES = 2_000
CALLS = 30

VERBS = ("Choose", "Design", "Build", "Test", "Announce")
THINGS = ("payment form", "refund policy", "receipts", "event names", "legal text", "search page", "load test", "cart")


def backlog() -> str:
    """Return 200 tasks in 8 documents, some with dependencies."""
    lines: list[str] = []
    for number in range(TASKS):
        if number % (TASKS // len(THINGS)) == 0:
            lines.append(f"# {THINGS[number * len(THINGS) // TASKS]}")
        verb, subject = VERBS[number % len(VERBS)], THINGS[number * len(THINGS) // TASKS]
        after = f" (after: T{number - 3})" if number % 4 == 3 else ""
        lines.append(f"- [ ] T{number}: {verb} the {subject} for country {number // 5} ({number % 8 + 1}h){after}")
    return "\n".join(lines)


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            planner = Prioritizer()
            await planner.setup(store)
            outcome = await repository.add_outcome(store, "ada", "Open the checkout in 40 countries")
            await repository.add_file(store, "ada", backlog(), "backlog.md")
            alone = await _planning(store)
            started = time.perf_counter()
            session = await planner.prioritize(store, "ada", outcome.id)
            elapsed = time.perf_counter() - started
            assert session.status == "completed", session.metadata
            size = await store.size(session.thread_id)
            return Measured(
                [
                    Row(f"plan of {TASKS} tasks, {EDGES:,} edges", backend, alone, "s", aim=within(1), req="S1-097"),
                    Row(f"session of {TASKS} tasks", backend, elapsed, "s", aim=within(10), req="S1-097"),
                    *await _reading(store, backend, session),
                    await _expiring(store, backend),
                    Row("bytes of a session's thread", backend, sum(size.values()) / 1024, "KB", aim=within(256)),
                ]
            )


async def _planning(store: Store) -> float:
    """Return the seconds to compute a plan from tasks and relationships."""
    base = await base_for(store, store.project, "ada", None)
    tasks, random = list(base.tasks.values()), Random(7)
    ids = [task.id for task in tasks]
    edges = [_edge(*random.sample(ids, 2), round(random.random(), 2)) for _ in range(EDGES)]
    vectors = dict(zip(ids, await embedder("hashing").embed([task.text for task in tasks]), strict=True))
    started = time.perf_counter()
    planned(fallback(SessionFacts(tasks, [*base.dependencies, *edges], vectors, {}, 0.3)))
    return time.perf_counter() - started


def _edge(source: str, target: str, confidence: float) -> TaskDependency:
    return TaskDependency(
        source_task_id=source,
        target_task_id=target,
        relationship_type="prerequisite",
        confidence=confidence,
        detection_method="ai_inference",
    )


async def _reading(store: Store, backend: str, session: Session) -> list[Row]:
    id = session.thread_id
    row = await typical(lambda: store._backend.get(Session, (id,)), CALLS)
    total = await typical(lambda: session_of(store, id), CALLS)
    (run,) = await store.runs(id)
    log = await typical(lambda: store.log(run.id), CALLS)
    trace = await typical(lambda: trace_of(store, session), CALLS)
    return [
        Row("session by its id", backend, row, "ms", aim=within(10), req="S1-090"),
        Row("session by its id, checked", backend, total, "ms", aim=within(10), req="S1-090"),
        Row("reasoning of a session", backend, log, "ms", aim=within(50), req="S1-091"),
        Row("reasoning of a session, as checked steps", backend, trace, "ms", aim=within(100)),
    ]


async def _expiring(store: Store, backend: str) -> Row:
    """Measure the search for expired reasoning at the start of a session."""
    looking = await typical(lambda: expire(store, EXTENSION), CALLS)
    return Row("looking for reasoning that has expired", backend, looking, "ms", aim=within(5), req="S1-094")
