"""Health: whether the server lives, whether it can do its work, and its figures."""

import asyncio
import resource
import sys
from typing import Any, Final, get_args

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from lockstitch.errors import LockstitchError
from lockstitch.model import Worker
from lockstitch.model.thread import Status
from lockstitch.server.auth import Admin
from lockstitch.server.problems import Problem
from lockstitch.server.state import server_state
from lockstitch.store import Store
from lockstitch.store.ingest_queue import QueueStatus
from lockstitch.version import VERSION

PATIENCE: Final = 5.0
"""Seconds in which a store that is well answers."""

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> PlainTextResponse:
    """Whether the process answers. It asks nobody else, so that a database that is away does not get it restarted."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "The store answers, and bodies of traces are read.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        503: {"description": "The store does not answer, or bodies of traces wait for too long."},
    },
)
async def readyz(request: Request) -> Response:
    """Answer 200 if the server can work: the store answers, and the ingest queue makes progress.

    The answer tells about the ingest queue of all projects: as text, or as JSON if the request accepts
    `application/json`. The status is `ready`, or `degraded` if a body has waited for more than a minute.
    """
    house = server_state(request)
    try:
        async with asyncio.timeout(PATIENCE):
            await house.store.ping()
            queue = await house.intake.queue().status()
    except (LockstitchError, TimeoutError) as exc:
        said = str(exc) or f"The store did not answer within {PATIENCE:g} s."
        raise Problem(503, "Not ready", said, headers={"Retry-After": "2"}) from exc
    limit = house.settings.backlog_seconds
    if queue.oldest_seconds is not None and queue.oldest_seconds > limit:
        said = (
            f"The oldest of {queue.waiting} waiting bodies of traces has waited for {queue.oldest_seconds:.0f} s, "
            f"longer than {limit:g} s. See `lockstitch ingest status`."
        )
        raise Problem(503, "Not ready", said, headers={"Retry-After": "10"})
    status = "degraded" if queue.stuck else "ready"
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"status": status, "ingest": queue._asdict()})
    return PlainTextResponse(f"{status}\n{_told(queue)}")


def _told(queue: QueueStatus) -> str:
    """Return a line about the ingest queue, or nothing if it is empty."""
    if not queue.waiting and not queue.quarantined:
        return ""
    oldest = "" if queue.oldest_seconds is None else f", oldest {queue.oldest_seconds:.0f} s"
    return f"ingest: {queue.waiting} waiting{oldest}, {queue.stuck} stuck, {queue.quarantined} in quarantine\n"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(caller: Admin) -> Response:
    """Figures of this process and of the whole store, all projects, as Prometheus reads them."""
    store = caller.state.store
    text = caller.state.figures.text(await _gauges(store, await caller.state.intake.queue().status()))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _gauges(store: Store, queue: QueueStatus) -> dict[str, Any]:
    threads = [({"status": status}, await store.count(status=status, all_projects=True)) for status in get_args(Status)]
    workers = await store.table(Worker).find()
    alive = sum(not worker.dead for worker in workers)
    arrivals = queue.waiting + queue.quarantined
    return {
        "lockstitch_info": ("The version of this server.", [({"version": VERSION}, 1)]),
        "lockstitch_threads": ("Threads of all projects by status.", threads),
        "lockstitch_workers": ("Workers that are not known to be dead.", [({}, alive)]),
        "lockstitch_arrivals": ("Bodies that wait to be read, and those in quarantine.", [({}, arrivals)]),
        "lockstitch_ingest_waiting": ("Bodies of traces that wait to be read.", [({}, queue.waiting)]),
        "lockstitch_ingest_oldest_seconds": (
            "Seconds that the oldest waiting body has waited.",
            [({}, queue.oldest_seconds or 0)],
        ),
        "lockstitch_ingest_stuck": ("Bodies that have waited for more than a minute.", [({}, queue.stuck)]),
        "lockstitch_ingest_quarantined": ("Bodies that could not be read completely.", [({}, queue.quarantined)]),
        "lockstitch_memory_bytes": ("The most memory this process has had.", [({}, _peak())]),
    }


def _peak() -> int:
    """The peak of resident memory: kilobytes on Linux, bytes on macOS."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
