"""The page of workers, limits, ingest and health."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, cast
from uuid import UUID

from fastapi import Request
from starlette.responses import HTMLResponse

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, Limit, Thread, Worker, parse_time
from lockstitch.server.auth import Admin, Caller, Reader
from lockstitch.server.pages.common.format import SHOWN_COUNT
from lockstitch.server.pages.common.render import render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.problems import problem_of
from lockstitch.store import Store, Where
from lockstitch.store.reports.dashboard import OPEN
from lockstitch.version import VERSION

DEAD_WORKERS_SHOWN: Final = timedelta(hours=1)
"""Time for which dead workers are shown."""

_QUEUE: Final = 1000
_FEW: Final = 20
_MOST: Final = 100
"""Maximum number of workers with a row. Those with the latest heartbeats are shown."""


class HeldThread(NamedTuple):
    """A thread of the caller's project that a worker holds, with the action from the last heartbeat."""

    thread: Thread
    act: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker. Threads of other projects are only counted."""

    worker: Worker
    state: Literal["acts", "idle", "silent", "dead"]
    held: Sequence[HeldThread]
    elsewhere: int


class Queued(NamedTuple):
    """The queued threads of an agent, and the time of the oldest."""

    agent: str
    threads: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """Workers, queue and timers at one time."""

    workers: list[WorkerRow]
    more_workers: bool
    """True if there may be more workers than rows."""
    dead: list[WorkerRow]
    queue: list[Queued]
    has_more: bool
    """True if the queue is longer than the counted part."""
    counts: dict[str, int]
    due: list[Thread]
    """The threads with the next timers."""


async def worker_overview(store: Store) -> WorkerOverview:
    now = store.clock.now()
    workers = store.table(Worker)
    alive = await workers.find(Where("dead", "=", False), order=("-beat_at",), limit=_MOST)
    died = await workers.find(
        Where("dead", "=", True), Where("beat_at", ">=", now - DEAD_WORKERS_SHOWN), order=("-beat_at",), limit=_FEW
    )
    held = await _held(store, [worker.id for worker in alive])
    rows = [_worker_row(store, worker, held.get(worker.id, []), now) for worker in alive]
    ready = await store.find_threads(Where("status", "=", "pending"), order=("wake_at",), limit=_QUEUE)
    timed = (Where("status", "=", "waiting"), Where("wake_at", "is not null"))
    return WorkerOverview(
        workers=sorted(rows, key=lambda row: (-len(row.held) - row.elsewhere, row.worker.host, row.worker.pid)),
        more_workers=len(alive) == _MOST,
        dead=[_worker_row(store, worker, [], now) for worker in died],
        queue=_queue(ready),
        has_more=len(ready) == _QUEUE,
        counts={status: await store.count(status=status, most=SHOWN_COUNT + 1) for status in OPEN},
        due=await store.find_threads(*timed, order=("wake_at",), limit=5),
    )


class LimitUse(NamedTuple):
    """A limit, and the number of threads that count against it."""

    limit: Limit
    held: int


async def limits_of(store: Store) -> list[LimitUse]:
    return [LimitUse(limit, held) for limit, held in await store.limits()]


async def _held(store: Store, workers: Sequence[UUID]) -> dict[UUID, list[Thread]]:
    threads: defaultdict[UUID, list[Thread]] = defaultdict(list)
    for thread in await store.held_by(workers):
        if thread.worker_id is not None:
            threads[thread.worker_id].append(thread)
    return threads


def _worker_row(store: Store, worker: Worker, threads: Sequence[Thread], now: datetime) -> WorkerRow:
    mine = [thread for thread in threads if thread.project == store.project]
    late = (now - worker.beat_at).total_seconds() > worker.lease_seconds
    state = "dead" if worker.dead else "silent" if late else "acts" if threads else "idle"
    return WorkerRow(worker, state, [_held_thread(worker, thread) for thread in mine], len(threads) - len(mine))


def _held_thread(worker: Worker, thread: Thread) -> HeldThread:
    value: Any = worker.doing.get(str(thread.id))
    bag = cast("Json", value) if isinstance(value, dict) else {}
    try:
        since = parse_time(str(bag["since"]))
    except (KeyError, ValueError):
        since = None
    return HeldThread(thread, str(bag.get("act") or ""), since)


def _queue(ready: Sequence[Thread]) -> list[Queued]:
    counts = Counter(thread.agent or "" for thread in ready)
    first = {thread.agent or "": thread.wake_at for thread in reversed(ready)}
    return [Queued(agent, count, first[agent]) for agent, count in counts.most_common()]


router = page_router()


@router.get("/workers", name="workers")
async def workers(request: Request, caller: Reader) -> HTMLResponse:
    return render_page(
        request,
        caller,
        "workers/workers.html",
        **await _now(caller),
        **await _admin_data(caller),
        settings=caller.state.settings,
        agents=sorted(caller.state.app.agents) if caller.state.app else [],
        version=VERSION,
        store_kind=caller.store.backend_name,
    )


@router.get("/workers/now")
async def now(request: Request, caller: Reader) -> HTMLResponse:
    """Render the part that refreshes."""
    return render_page(request, caller, "workers/updates.html", **await _now(caller))


@router.get("/workers/store")
async def measured(request: Request, caller: Admin) -> HTMLResponse:
    """Render the counts and sizes of the store. It reads all rows, so it runs only on request."""
    store = caller.store
    result: dict[str, Any] = {"problem": None}
    try:
        result["report"] = await store.counts()
        result["sizes"] = await store.size()
        result["schema"] = await store.migrate()
    except LockstitchError as exc:
        result["problem"] = problem_of(exc)
    return render_page(request, caller, "workers/store.html", **result)


async def _now(caller: Caller) -> dict[str, Any]:
    """Return workers, limits and ingest state. If the store is unreachable, return the problem."""
    try:
        result: dict[str, Any] = {
            "overview": await worker_overview(caller.store),
            "trouble": None,
            "limits": [],
            "came": None,
        }
        if caller.may("admin"):
            result["limits"] = await limits_of(caller.store)
            result["came"] = await caller.state.intake.counts(caller.project)
            result["quarantine"] = await caller.state.intake.quarantine(caller.project, 10) if result["came"] else []
    except LockstitchError as exc:
        return {"overview": None, "trouble": problem_of(exc), "limits": [], "came": None, "quarantine": []}
    return {"quarantine": [], **result}


async def _admin_data(caller: Caller) -> dict[str, Any]:
    """Return the tokens and the audit log, for admins."""
    if not caller.may("admin"):
        return {"tokens": [], "audits": []}
    try:
        return {"tokens": await caller.store.tokens.all(), "audits": await caller.store.audits.latest(20)}
    except LockstitchError:
        # The other part of the page already shows the problem.
        return {"tokens": [], "audits": []}
