"""Health checks and metrics."""

import asyncio
import resource
import sys
from typing import Any, Final, get_args

from fastapi import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from lockstitch.errors import LockstitchError
from lockstitch.model import Schedule, Worker
from lockstitch.model.thread import Status
from lockstitch.server.auth import Admin
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.server.state import server_state
from lockstitch.store import Store, Where
from lockstitch.store.ingest_queue import QueueStatus
from lockstitch.version import VERSION

PATIENCE: Final = 5.0
"""Seconds to wait for a response of the store."""

router = LazyRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> PlainTextResponse:
    """Return 200 while the process runs. It does not query the store, so a lost database causes no restart."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "The store responds and the ingest queue makes progress.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        503: {"description": "The store does not respond, or the ingest queue makes no progress."},
    },
)
async def readyz(request: Request) -> Response:
    """Return 200 if the store responds and the ingest queue makes progress.

    The response describes the ingest queue of all projects: as text, or as JSON if the request accepts
    `application/json`. The status is `ready`, or `degraded` if a body has waited for more than a minute.
    """
    state = server_state(request)
    try:
        async with asyncio.timeout(PATIENCE):
            await state.store.ping()
            queue = await state.intake.queue().status()
    except (LockstitchError, TimeoutError) as exc:
        text = str(exc) or f"The store did not respond within {PATIENCE:g} s."
        raise Problem(503, "Not ready", text, headers={"Retry-After": "2"}) from exc
    limit = state.settings.backlog_seconds
    if queue.oldest_seconds is not None and queue.oldest_seconds > limit:
        text = (
            f"The oldest of {queue.waiting} bodies in the ingest queue has waited for {queue.oldest_seconds:.0f} s, "
            f"longer than {limit:g} s. See `lockstitch ingest status`."
        )
        raise Problem(503, "Not ready", text, headers={"Retry-After": "10"})
    status = "degraded" if queue.stuck else "ready"
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"status": status, "ingest": queue._asdict()})
    return PlainTextResponse(f"{status}\n{_ingest_line(queue)}")


def _ingest_line(queue: QueueStatus) -> str:
    """Return a line about the ingest queue, or an empty string if it is empty."""
    if not queue.waiting and not queue.quarantined:
        return ""
    oldest = "" if queue.oldest_seconds is None else f", oldest {queue.oldest_seconds:.0f} s"
    return f"ingest: {queue.waiting} waiting{oldest}, {queue.stuck} stuck, {queue.quarantined} in quarantine\n"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(caller: Admin) -> Response:
    """Return the metrics of this process and of all projects of the store in the Prometheus format."""
    store = caller.state.store
    text = caller.state.figures.text(await _gauges(store, await caller.state.intake.queue().status()))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _gauges(store: Store, queue: QueueStatus) -> dict[str, Any]:
    threads = [({"status": status}, await store.count(status=status, all_projects=True)) for status in get_args(Status)]
    workers = await store.table(Worker).find()
    alive = sum(not worker.dead for worker in workers)
    arrivals = queue.waiting + queue.quarantined
    now = store.clock.now()
    overdue = await store.table(Schedule).first(Where("next_tick", "<=", now), order=("next_tick",))
    late = 0.0 if overdue is None or overdue.next_tick is None else (now - overdue.next_tick).total_seconds()
    return {
        "lockstitch_info": ("The version of this server.", [({"version": VERSION}, 1)]),
        "lockstitch_threads": ("Threads of all projects by status.", threads),
        "lockstitch_workers": ("Workers that are not declared dead.", [({}, alive)]),
        "lockstitch_schedules_overdue_seconds": (
            "Seconds since the oldest tick of a schedule that no worker has started.",
            [({}, late)],
        ),
        "lockstitch_arrivals": ("Bodies in the ingest queue and in quarantine.", [({}, arrivals)]),
        "lockstitch_ingest_waiting": ("Bodies in the ingest queue.", [({}, queue.waiting)]),
        "lockstitch_ingest_oldest_seconds": (
            "Seconds that the oldest waiting body has waited.",
            [({}, queue.oldest_seconds or 0)],
        ),
        "lockstitch_ingest_stuck": ("Bodies that have waited for more than a minute.", [({}, queue.stuck)]),
        "lockstitch_ingest_quarantined": ("Bodies that could not be read completely.", [({}, queue.quarantined)]),
        "lockstitch_memory_bytes": ("Peak memory of this process in bytes.", [({}, _peak())]),
    }


def _peak() -> int:
    """Return the peak of resident memory in bytes. Linux reports kilobytes, macOS bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
