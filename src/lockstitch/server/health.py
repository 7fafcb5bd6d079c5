"""Health: whether the server lives, whether it can do its work, and its figures."""

import asyncio
import resource
import sys
from typing import Any, Final, get_args

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from lockstitch.backend import Find
from lockstitch.errors import LockstitchError
from lockstitch.records import Worker
from lockstitch.records.shelves import RawBody
from lockstitch.records.thread import Status
from lockstitch.server.access import Admin
from lockstitch.server.house import house_of
from lockstitch.server.problems import Problem
from lockstitch.store import Store
from lockstitch.version import VERSION

PATIENCE: Final = 5.0
"""Seconds in which a store that is well answers."""

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> PlainTextResponse:
    """Whether the process answers. It asks nobody else, so that a database that is away does not get it restarted."""
    return PlainTextResponse("ok\n")


@router.get("/readyz", response_class=PlainTextResponse, responses={503: {"description": "The store does not answer."}})
async def readyz(request: Request) -> PlainTextResponse:
    """Whether requests are worth sending here: the store answers."""
    store = house_of(request).store
    try:
        async with asyncio.timeout(PATIENCE):
            await store.backend.find(Find(Worker, limit=1))
    except (LockstitchError, TimeoutError) as exc:
        said = str(exc) or f"The store did not answer within {PATIENCE:g} s."
        raise Problem(503, "Not ready", said, headers={"Retry-After": "2"}) from exc
    return PlainTextResponse("ready\n")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(caller: Admin) -> Response:
    """Figures of this process and of the whole store, all projects, as Prometheus reads them."""
    store = caller.house.store
    text = caller.house.figures.text(await _gauges(store))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _gauges(store: Store) -> dict[str, Any]:
    threads = [({"status": status}, await store.count(status=status, all_projects=True)) for status in get_args(Status)]
    workers = await store.backend.find(Find(Worker))
    alive = sum(not worker.dead for worker in workers)
    waiting = await store.backend.count(Find(RawBody))
    return {
        "lockstitch_info": ("The version of this server.", [({"version": VERSION}, 1)]),
        "lockstitch_threads": ("Threads of all projects by status.", threads),
        "lockstitch_workers": ("Workers that are not known to be dead.", [({}, alive)]),
        "lockstitch_arrivals": ("Bodies that wait to be read, and those in quarantine.", [({}, waiting)]),
        "lockstitch_memory_bytes": ("The most memory this process has had.", [({}, _peak())]),
    }


def _peak() -> int:
    """The peak of resident memory: kilobytes on Linux, bytes on macOS."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
