"""Suspects: threads of ended processes are executed alone, and only a thread that ends processes alone fails."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.worker import WorkerLoop
from lockstitch.model import Limit, Stitch, Thread, new_id
from lockstitch.model.thread import MAX_CRASHES
from lockstitch.store import Store
from tests.engine.agents import calls, scripted, until
from tests.engine.books import delegate
from tests.engine.threads.families import work_off
from tests.engine.threads.poison import INNOCENT, attempts, poison, steady, work_in_a_loop

pytestmark = pytest.mark.anyio


async def takeovers(store: Store, thread: Thread) -> list[Stitch]:
    return [stitch for stitch in await store.stitches(thread) if stitch.type == "thread_taken_over"]


@pytest.mark.req("S3-037")
async def test_fails_only_thread_that_kills_its_process(store: Store, store_url: str, tmp_path: Path):
    """Five threads with a slow `safe` tool and one with a tool that kills its process, and workers in a loop."""
    notes = tmp_path / "attempts"
    innocent = [await steady.start(store=store, goal=f"wait {number}") for number in range(INNOCENT)]
    guilty = await poison.start(store=store, goal="kill")

    killed = work_in_a_loop(store_url, notes)

    assert {(await store.thread(thread)).status for thread in innocent} == {"completed"}
    failed = await store.thread(guilty)
    assert failed.status == "failed"
    assert failed.result is not None
    assert "3 processes in a row ended while this thread was the only one" in failed.result["error"]
    # The first crash affects all six threads, the next three only the one that kills.
    assert [pid for pid, _ in attempts(notes, "poison")] == killed
    assert len(killed) == 4
    assert Counter(thread for _, thread in attempts(notes, "steady")) == {str(head.id): 2 for head in innocent}
    assert (failed.crashes, failed.losses, failed.lost_by) == (0, 0, None)

    stitches = await takeovers(store, guilty)
    assert [takeover.data["lost_by"]["pid"] for takeover in stitches] == killed
    assert [takeover.data["lost_by"]["cause"] for takeover in stitches] == ["died"] * 4
    assert [takeover.data["taken_by"]["pid"] for takeover in stitches[:-1]] == killed[1:]
    host = socket.gethostname()
    lost_by, taking = (f"process {pid} on {host}" for pid in killed[:2])
    assert stitches[0].name == f"{lost_by} ended, {taking} continues the thread alone"
    assert [(takeover.data["alone"], takeover.data["losses"], takeover.data["crashes"]) for takeover in stitches] == [
        (True, 1, 0),
        (True, 2, 1),
        (True, 3, 2),
        (True, 4, 3),
    ]
    for head in innocent:
        (only,) = await takeovers(store, head)
        assert (only.data["lost_by"]["pid"], only.data["alone"]) == (killed[0], True)
        assert only.run_id is not None
    assert (await store.verify()).ok


class Steps:
    """A tool with calls that end when the test says so."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        """For each thread, the other threads that were in the tool when it arrived."""
        self.open: set[str] = set()

        @tool(effect="safe")
        async def step(ctx: ToolContext) -> str:
            """Take a step."""
            name = str(ctx.thread.goal)
            self.beside.setdefault(name, set()).update(self.inside)
            self.inside.add(name)
            try:
                while not {name, "all"} & self.open:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                return "stepped"
            finally:
                self.inside.discard(name)

        self.tool = step

    def agent(self, name: str = "walker", steps: int = 1) -> Agent:
        return scripted(*[calls("step")] * steps, "Done.", name=name, tools=[self.tool])

    async def until_inside(self, *names: str) -> None:
        async def found() -> bool:
            return self.inside >= set(names)

        await until(found)


async def suspect(store: Store, steps: Steps, agent: Agent, goal: str = "suspect", **fields: Any) -> Thread:
    """Return a thread that a worker lost while its tool was in flight."""
    head = await agent.start(store=store, goal=goal)
    task = asyncio.create_task(agent.executor(store).resume(head))
    await steps.until_inside(goal)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lost_thread = (await store.thread(head)).changed(**{"losses": 1, "lost_by": new_id(), **fields})
    await store._backend.put([lost_thread])
    return lost_thread


LATER = timedelta(days=1)


async def appear(store: Store, head: Thread) -> None:
    """Make a suspect ready."""
    await store._backend.put([(await store.thread(head)).changed(wake_at=store.clock.now())])


@asynccontextmanager
async def working(app: App, store: Store, **options: Any) -> AsyncIterator[WorkerLoop]:
    loop = WorkerLoop(app, store, **{"concurrency": 5, "poll": 0.05, "until_idle": True, **options})
    task = asyncio.create_task(loop.run())
    try:
        yield loop
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_starts_no_other_thread_until_suspect_makes_progress(store: Store):
    steps = Steps()
    walker = steps.agent()
    await suspect(store, steps, walker)
    await walker.start(store=store, goal="healthy")

    async with working(App([walker]), store) as loop:
        await steps.until_inside("suspect")
        held_threads = await store.threads(status="running")
        assert [(head.goal, head.alone) for head in held_threads] == [("suspect", True)]
        await loop._claimer.claim()
        assert loop.held == 1
        steps.open.add("suspect")
        await steps.until_inside("healthy")
        steps.open.add("all")

    assert {head.status for head in await store.threads()} == {"completed"}
    assert steps.beside == {"suspect": set(), "healthy": set()}


async def test_executes_each_suspect_alone(store: Store):
    """Each is alone until its first commit. Then it leaves the process to the next one, and they continue together."""
    steps = Steps()
    walker = steps.agent(steps=2)
    for number in range(6):
        await suspect(store, steps, walker, f"suspect {number}")
    steps.open.add("all")

    await work_off(App([walker]), store)

    assert {head.status for head in await store.threads()} == {"completed"}
    for head in await store.threads():
        (takeover,) = await takeovers(store, head)
        assert takeover.data["alone"]


async def test_starts_other_threads_when_suspect_stays_at_one_step(store: Store):
    """A long step must not block a worker forever. If the process ends then, no crash is counted."""
    steps = Steps()
    walker = steps.agent()
    await suspect(store, steps, walker)
    await walker.start(store=store, goal="healthy")

    async with working(App([walker]), store, alone=0.2):
        await steps.until_inside("suspect", "healthy")
        steps.open.add("all")

    assert steps.beside["healthy"] == {"suspect"}


async def test_releases_other_threads_at_next_commit_for_suspect(store: Store):
    """A worker that is always busy also executes a suspect alone."""
    steps = Steps()
    walker = steps.agent(steps=2)
    waiting = await suspect(store, steps, walker, wake_at=store.clock.now() + LATER)
    await walker.start(store=store, goal="healthy")

    async with working(App([walker]), store, drain=0.01) as loop:
        await steps.until_inside("healthy")
        await appear(store, waiting)

        async def draining() -> bool:
            return loop._claimer._draining

        await until(draining)
        steps.open.add("healthy")
        await steps.until_inside("suspect")
        (held_thread,) = await store.threads(status="running")
        assert (held_thread.id, held_thread.alone) == (waiting.id, True)
        steps.open.add("all")

    assert {head.status for head in await store.threads()} == {"completed"}
    healthy = next(head for head in await store.threads() if head.goal == "healthy")
    assert (healthy.losses, await takeovers(store, healthy)) == (0, []), "it was released, not lost"


async def test_executes_suspect_with_others_after_wait_limit(store: Store):
    """The process executes a thread that does not end, so the suspect cannot be alone. A crash is not counted."""
    steps = Steps()
    walker = steps.agent()
    waiting = await suspect(store, steps, walker, wake_at=store.clock.now() + LATER)
    await walker.start(store=store, goal="endless")

    async with working(App([walker]), store, alone=0.3, drain=0.01):
        await steps.until_inside("endless")
        await appear(store, waiting)
        await steps.until_inside("suspect")
        held_thread = await store.thread(waiting)
        assert (held_thread.alone, held_thread.losses) == (False, 1)
        steps.open.add("all")

    assert steps.beside["suspect"] == {"endless"}
    (takeover,) = await takeovers(store, waiting)
    assert not takeover.data["alone"]


async def test_in_process_run_of_suspect_is_not_alone(store: Store):
    """The process of a user has other work, so its end proves nothing."""
    steps = Steps()
    walker = steps.agent()
    waiting = await suspect(store, steps, walker, crashes=2)
    task = asyncio.create_task(walker.executor(store).resume(waiting))
    await steps.until_inside("suspect")

    worker = (await store.thread(waiting)).worker_id
    assert worker is not None
    await store._backend.release(worker, cause="died")
    lost_thread = await store.thread(waiting)
    assert (lost_thread.losses, lost_thread.crashes, lost_thread.lost_by) == (2, 2, worker)
    steps.open.add("all")
    with pytest.raises(Exception, match="taken over"):
        await task


async def test_worker_waits_for_in_process_runs_before_suspect(store: Store):
    steps = Steps()
    walker = steps.agent()
    await suspect(store, steps, walker)
    own_run = asyncio.create_task(walker.run("mine", store=store, thread="mine"))
    await steps.until_inside("None")

    async with working(App([walker]), store) as loop:
        for _ in range(3):
            assert await loop._claimer.claim() == []
        steps.open.add("None")
        assert (await own_run).status == "completed"
        await steps.until_inside("suspect")
        steps.open.add("all")

    assert steps.beside["suspect"] == set()


async def test_stopped_worker_leaves_no_suspects(store: Store):
    """A drain is not a crash: threads are released at their next commit, or at once if the worker is cancelled."""
    steps = Steps()
    walker = steps.agent()
    goal = await walker.start(store=store, goal="healthy")
    loop = WorkerLoop(App([walker]), store, poll=0.05)
    task = asyncio.create_task(loop.run())
    await steps.until_inside("healthy")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    head = await store.thread(goal)
    assert (head.status, head.losses, head.lost_by, head.crashes) == ("pending", 0, None, 0)


async def test_records_takeover_once_when_thread_was_released_without_progress(store: Store):
    steps = Steps()
    walker = steps.agent()
    waiting = await suspect(store, steps, walker)
    for _ in range(2):
        loop = WorkerLoop(App([walker]), store, poll=0.05)
        task = asyncio.create_task(loop.run())
        await steps.until_inside("suspect")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await store.thread(waiting)).suspect

    assert len(await takeovers(store, waiting)) == 1


async def test_fails_team_when_member_ends_processes(store: Store):
    """The thread fails, not only the run of the member: a leader that continued could delegate the same task again."""
    steps = Steps()
    leader = Scripted([{"calls": [delegate("walker", "walk")]}, "never"])
    team = Team("team", model=leader, members=[steps.agent()], title=False)
    goal = await suspect(store, steps, team, losses=MAX_CRASHES + 1, crashes=MAX_CRASHES)

    await work_off(App([team]), store)

    head = await store.thread(goal)
    assert (head.status, head.crashes, head.suspect) == ("failed", 0, False)
    failed = [stitch for stitch in await store.stitches(goal) if stitch.type == "run_failed"]
    assert [stitch.lane is not None for stitch in failed] == [True, False]


async def test_lists_of_errors_have_goal_that_fails_before_its_first_run(store: Store):
    walker = Steps().agent()
    goal = await walker.start(store=store, goal="walk")
    await store._backend.put([goal.changed(losses=MAX_CRASHES + 1, crashes=MAX_CRASHES)])

    await work_off(App([walker]), store)

    (failed,) = await store.threads(error=True)
    assert (failed.id, failed.status, failed.total_runs) == (goal.id, "failed", 0)
    assert failed.result is not None
    assert failed.last_error == failed.result["error"]
    assert await store.threads(error="in a row ended") == [failed]


async def test_starts_healthy_threads_while_limit_blocks_suspect(store: Store):
    """The worker reserves its free places for the suspect, but only for the time that a suspect is executed alone."""
    steps = Steps()
    limited, walker = steps.agent("limited"), steps.agent()
    await store._backend.put([Limit(name="one", at_most=1, agents=["limited"])])
    waiting = await suspect(store, steps, limited, wake_at=store.clock.now() + LATER)
    await store.claim(await limited.start(store=store, goal="held"))
    await walker.start(store=store, goal="endless")

    async with working(App([walker, limited]), store, alone=0.3, drain=0.01) as loop:
        await steps.until_inside("endless")
        await appear(store, waiting)

        async def draining() -> bool:
            return loop._claimer._draining

        await until(draining)
        await walker.start(store=store, goal="healthy")
        await steps.until_inside("endless", "healthy")
        loop.stop()
        steps.open.add("all")

    assert (await store.thread(waiting)).status == "pending"


async def test_does_not_release_threads_repeatedly_while_limit_blocks_suspect(store: Store):
    steps = Steps()
    limited, walker = steps.agent("limited"), steps.agent(steps=3)
    await store._backend.put([Limit(name="one", at_most=1, agents=["limited"])])
    waiting = await suspect(store, steps, limited, wake_at=store.clock.now() + LATER)
    await store.claim(await limited.start(store=store, goal="held"))
    await walker.start(store=store, goal="healthy")

    async with working(App([walker, limited]), store, drain=0.01) as loop:
        await steps.until_inside("healthy")
        await appear(store, waiting)

        async def left() -> bool:
            return loop._claimer._suspects_at > time.monotonic() + 1

        async def draining() -> bool:
            return loop._claimer._draining

        await until(draining)
        steps.open.add("healthy")
        await until(left)
        assert not loop._claimer._draining
        loop.stop()
