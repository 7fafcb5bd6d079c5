"""Workers and health: who acts, what waits for work, how the store is, who may call and who did what."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from lockstitch.errors import LockstitchError
from lockstitch.server.access import Admin, Caller, Reader
from lockstitch.server.pages.bar import kind_of
from lockstitch.server.pages.crew import crew_of, limits_of
from lockstitch.server.pages.frame import page
from lockstitch.server.problems import problem_of
from lockstitch.version import VERSION

router = APIRouter(include_in_schema=False)


@router.get("/workers", name="workers")
async def workers(request: Request, caller: Reader) -> HTMLResponse:
    return page(
        request,
        caller,
        "workers/workers.html",
        **await _now(caller),
        **await _kept(caller),
        settings=caller.house.settings,
        agents=sorted(caller.house.app.agents) if caller.house.app else [],
        version=VERSION,
        store_kind=kind_of(caller.store),
    )


@router.get("/workers/now")
async def now(request: Request, caller: Reader) -> HTMLResponse:
    """What changes by itself."""
    return page(request, caller, "workers/now.html", **await _now(caller))


@router.get("/workers/store")
async def measured(request: Request, caller: Admin) -> HTMLResponse:
    """What a look at the whole store tells. It counts everything, so it is made when somebody asks."""
    store = caller.store
    found: dict[str, Any] = {"problem": None}
    try:
        found["report"] = await store.glance()
        found["sizes"] = await store.size()
        found["schema"] = await store.migrate()
    except LockstitchError as exc:
        found["problem"] = problem_of(exc)
    return page(request, caller, "workers/store.html", **found)


async def _now(caller: Caller) -> dict[str, Any]:
    """The crew, and what has come in from others; a store that is away is said, and the page stays."""
    try:
        found: dict[str, Any] = {"crew": await crew_of(caller.store), "trouble": None, "limits": [], "came": None}
        if caller.may("admin"):
            found["limits"] = await limits_of(caller.store)
            found["came"] = await caller.house.intake.counts(caller.project)
            found["quarantine"] = await caller.house.intake.quarantine(caller.project, 10) if found["came"] else []
    except LockstitchError as exc:
        return {"crew": None, "trouble": problem_of(exc), "limits": [], "came": None, "quarantine": []}
    return {"quarantine": [], **found}


async def _kept(caller: Caller) -> dict[str, Any]:
    """Who may call and who did what, for admins."""
    if not caller.may("admin"):
        return {"tokens": [], "audits": []}
    try:
        return {"tokens": await caller.store.tokens.listed(), "audits": await caller.store.audits.latest(20)}
    except LockstitchError:
        # The part above says already that the store is away.
        return {"tokens": [], "audits": []}
