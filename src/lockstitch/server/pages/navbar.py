"""The bar at the top: where one can go, how many wait for a person, how the store is, and which project is seen."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import Response

from lockstitch.model import Worker
from lockstitch.server.auth import PROJECT_COOKIE, Caller, FormWriter, caller_of
from lockstitch.server.extensions import NavLink
from lockstitch.server.pages.common.format import TimedCache
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to
from lockstitch.server.problems import Problem
from lockstitch.store import Store, Where

router = APIRouter(include_in_schema=False)

_SECONDS: Final = 5.0
"""How long the list of projects is good for."""

_known = TimedCache[list[str]](_SECONDS)


@dataclass(frozen=True, slots=True)
class Bar:
    """What the bar shows to one caller."""

    sections: list[NavLink]
    project: str
    projects: list[str]
    """Those one can go to; none besides this where a token fixes it."""
    wants: int
    """How many threads wait for a person."""
    store: str
    workers: int
    alive: bool


async def with_bar(request: Request) -> None:
    """Have a whole page show the bar, also one that answers a form and says what is wrong with it. Parts have none."""
    if is_htmx_request(request):
        return
    try:
        caller = await caller_of(request)
    except Problem:
        # Whoever is not let in sees pages without it; the route says why.
        return
    if caller.may("read"):
        request.state.bar = await bar_of(caller)


async def bar_of(caller: Caller) -> Bar:
    workers = await _workers(caller.store)
    open_to_all = not caller.state.settings.tokens_needed and caller.actor == "local"
    return Bar(
        sections=[one for one in caller.state.extensions.sections if caller.may(one.scope)],
        project=caller.project,
        projects=await _projects(caller.store) if open_to_all else [caller.project],
        wants=await caller.store.count_awaiting_person(),
        store=caller.store.backend_name,
        workers=len(workers),
        alive=True,
    )


@router.post("/project")
async def switch_project(
    request: Request, caller: FormWriter, project: Annotated[str, Form(max_length=255)]
) -> Response:
    """See another project, on a server that anybody who reaches it may use."""
    if caller.state.settings.tokens_needed or caller.actor != "local":
        raise Problem(409, "Fixed", "The project comes from the token; another token opens another.")
    response = redirect_to(request, "/")
    path = f"{base_path(request)}/"
    response.set_cookie(PROJECT_COOKIE, project, path=path, max_age=31_536_000, samesite="strict", httponly=True)
    return response


BarShown: Any = Depends(with_bar)


async def _workers(store: Store) -> list[Worker]:
    """Those that beat: a lease that has run out is as good as dead."""
    now = store.clock.now()
    found = await store.table(Worker).find(Where("dead", "=", False))
    return [one for one in found if (now - one.beat_at).total_seconds() <= one.lease_seconds]


async def _projects(store: Store) -> list[str]:
    """The names of all projects that have threads, each found by one step in the index."""
    return sorted({*await _known.get(store.identity, store.projects), store.project})
