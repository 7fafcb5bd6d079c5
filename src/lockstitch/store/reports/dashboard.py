"""`DashboardReader`: a snapshot of open threads and workers. `Costs`: the cost of today."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Stitch, Thread, Worker, format_time, tool_uses
from lockstitch.model.wait import without_next_message
from lockstitch.store.core import StoreCore
from lockstitch.store.queries.overview import Node, build_trees, overviews, trees

_PAGE: Final = 500

_LATE: Final = timedelta(minutes=1)
"""Time after its start until which a run may become visible. Clocks of processes differ, and commits take time."""


class Costs:
    """Cost in USD of the runs that started today (UTC). Repeated calls read only open and new runs."""

    def __init__(self, store: StoreCore, *, all_projects: bool) -> None:
        self._store = store
        self._all_projects = all_projects
        self._day: datetime | None = None
        self._since: datetime | None = None
        self._costs: dict[UUID, float] = {}
        self._in_project: dict[UUID, bool] = {}

    async def today(self) -> float | None:
        """Return the cost, or None if the cost of no run is known."""
        now = self._store.clock.now()
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if day != self._day or self._since is None:
            self._day, self._since, self._costs, self._in_project = day, day, {}, {}
        oldest, last = now, None
        while True:
            find = Find(
                Run,
                (Where("started_at", ">=", self._since),),
                order=("started_at", "id"),
                after=(last.started_at, last.id) if last else None,
                limit=_PAGE,
            )
            page = await self._store._backend.find(find)
            for run in await self._of_project(page):
                if run.total_cost is not None:
                    self._costs[run.id] = run.total_cost
                if run.status not in TERMINAL_STATUSES:
                    oldest = min(oldest, run.started_at)
            if len(page) < _PAGE:
                break
            last = page[-1]
        self._since = max(day, min(oldest, now - _LATE))
        return math.fsum(self._costs.values()) if self._costs else None

    async def _of_project(self, runs: list[Run]) -> list[Run]:
        if self._all_projects:
            return runs
        unknown = {run.thread_id for run in runs} - self._in_project.keys()
        if unknown:
            where = (Where("id", "in", list(unknown)), Where("project", "=", self._store.project))
            matches = {thread.id for thread in await self._store._backend.find(Find(Thread, where))}
            self._in_project |= {thread_id: thread_id in matches for thread_id in unknown}
        return [run for run in runs if self._in_project[run.thread_id]]


MAX_RUNNING, MAX_WAITING = 100, 200
"""Maximum numbers of threads that are read, the most recently active first."""

DEAD_WORKER_SHOWN: Final = timedelta(minutes=1)
"""Time for which a dead worker is shown."""

OPEN: Final = ("running", "waiting", "pending")
"""Statuses of threads that have not ended."""


NATIVE_KINDS: Final = ("chat", "goal", "task")
"""Kinds of threads that Lockstitch executes."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A snapshot of a store."""

    at: datetime
    """Time of the snapshot."""
    counts: dict[str, int]
    """Number of open threads by status."""
    failed: int
    """Number of failed threads, without imported traces."""
    tools: dict[UUID, list[str]]
    """Tools that running threads execute now, by thread."""
    trees: list[Node]
    """Trees of the running threads and of those that wait for more than their next message."""
    workers: list[Worker]
    """Living workers, and workers that died a short time ago."""
    held: dict[UUID, list[Thread]]
    """Threads that each worker holds."""
    cost_today: float | None
    """Cost in USD of the runs that started today (UTC), or None."""

    @property
    def cost_shown(self) -> float | None:
        """Cost in USD of the shown threads, or None."""
        costs = [node.overview.total_cost for tree in self.trees for node, _ in tree.walk()]
        known = [cost for cost in costs if cost is not None]
        return math.fsum(known) if known else None

    def as_json(self) -> Json:
        """Return the snapshot as JSON."""
        return {
            "at": format_time(self.at),
            "open": self.counts,
            "failed": self.failed,
            "threads": [tree.as_json() for tree in self.trees],
            "tools": {str(thread_id): names for thread_id, names in self.tools.items()},
            "workers": [
                {
                    "id": str(worker.id),
                    "host": worker.host,
                    "pid": worker.pid,
                    "dead": worker.dead,
                    "beat_at": format_time(worker.beat_at),
                    "seconds_since_beat": self.seconds_since_heartbeat(worker),
                    "lease_seconds": worker.lease_seconds,
                    "holds": [str(thread.id) for thread in self.held.get(worker.id, [])],
                    "doing": worker.doing,
                }
                for worker in self.workers
            ],
            "cost": {"today": self.cost_today, "shown": self.cost_shown},
        }

    def seconds_since_heartbeat(self, worker: Worker) -> float:
        """Return the seconds since the last heartbeat of a worker."""
        return max(0.0, round((self.at - worker.beat_at).total_seconds(), 3))


class DashboardReader:
    """Reads snapshots of a store: of all open threads, or of one thread with its descendants."""

    def __init__(self, store: StoreCore, *, all_projects: bool, thread_id: UUID | None = None) -> None:
        self._store = store
        self._all_projects = all_projects
        self._thread_id = thread_id
        self._costs = Costs(store, all_projects=all_projects)

    async def read(self) -> Dashboard:
        """Return a snapshot."""
        store, now = self._store, self._store.clock.now()
        nodes = await self._trees()
        counts = {word: await store.count(status=word, all_projects=self._all_projects) for word in OPEN}
        failed = await store.count(status="failed", kind=NATIVE_KINDS, all_projects=self._all_projects)
        threads = [node.thread for tree in nodes for node, _ in tree.walk()]
        tools = await self._tools([thread for thread in threads if thread.status == "running"])
        workers = await self._workers(now)
        held = await self._held(workers)
        if self._thread_id is not None:
            holders = {thread.worker_id for thread in threads}
            workers = [worker for worker in workers if worker.id in holders]
        return Dashboard(now, counts, failed, tools, nodes, workers, held, await self._costs.today())

    async def _trees(self) -> list[Node]:
        store = self._store
        if self._thread_id is not None:
            return await trees(store._backend, [await store.thread(self._thread_id)])
        running = await store.threads(status="running", limit=MAX_RUNNING, all_projects=self._all_projects)
        waiting = await store.threads(status="waiting", limit=MAX_WAITING, all_projects=self._all_projects)
        busy = [thread for thread in waiting if without_next_message(thread.waits)]
        return build_trees(await overviews(store._backend, [*running, *busy]))

    async def _tools(self, running: list[Thread]) -> dict[UUID, list[str]]:
        """Return the tools whose calls the running threads have not answered yet."""
        tips = [thread.tip_id for thread in running if thread.tip_id is not None]
        last = await self._store._backend.find(Find(Stitch, (Where("id", "in", tips),))) if tips else []
        tools: dict[UUID, list[str]] = {}
        for stitch in last:
            calls = tool_uses(stitch.message) if stitch.type == "llm_call" else []
            if stitch.type == "tool_call" and stitch.reply_to is not None:
                calls = await self._open_calls(stitch.thread_id, stitch.reply_to)
            if calls:
                tools[stitch.thread_id] = [str(call.get("name")) for call in calls]
        return tools

    async def _open_calls(self, thread_id: UUID, response: int) -> list[Json]:
        """Return the calls of a response that have no result yet."""
        stitches = await self._store.find_stitches(thread_id, Where("position", ">=", response))
        answered = {stitch.call_index for stitch in stitches if stitch.reply_to == response}
        calls = tool_uses(stitches[0].message) if stitches and stitches[0].type == "llm_call" else []
        return [call for index, call in enumerate(calls) if index not in answered]

    async def _workers(self, now: datetime) -> list[Worker]:
        backend = self._store._backend
        alive = await backend.find(Find(Worker, (Where("dead", "=", False),), order=("id",)))
        fading = (Where("dead", "=", True), Where("beat_at", ">=", now - DEAD_WORKER_SHOWN))
        return [*alive, *await backend.find(Find(Worker, fading, order=("id",)))]

    async def _held(self, workers: list[Worker]) -> dict[UUID, list[Thread]]:
        alive = [worker.id for worker in workers if not worker.dead]
        held: dict[UUID, list[Thread]] = {}
        for thread in await self._store._backend.find(Find(Thread, (Where("worker_id", "in", alive),))):
            if thread.worker_id is not None:
                held.setdefault(thread.worker_id, []).append(thread)
        return held
