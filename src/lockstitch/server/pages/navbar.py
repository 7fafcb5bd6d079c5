"""The navigation bar: sections, threads that need a person, store, workers and project."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Form, Request
from starlette.responses import Response

from lockstitch.model import Worker
from lockstitch.server.auth import PROJECT_COOKIE, Caller, FormWriter, caller_of
from lockstitch.server.extensions import NavLink
from lockstitch.server.pages.common.format import SHOWN_COUNT, TimedCache
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.store import Store, Where

_SECONDS: Final = 5.0
"""Seconds for which the list of projects is cached."""

_known = TimedCache[list[str]](_SECONDS)


@dataclass(frozen=True, slots=True)
class Bar:
    """The content of the bar for one caller."""

    sections: list[NavLink]
    project: str
    projects: list[str]
    """The projects to choose from; only the current one if a token selects the project."""
    awaiting_person: int
    """Number of threads that need a person."""
    store: str
    workers: int
    alive: bool


async def with_bar(request: Request) -> None:
    """Add the bar to the context of full pages, also of pages that show the error of a form."""
    if is_htmx_request(request):
        return
    try:
        caller = await caller_of(request)
    except Problem:
        # Unauthorized callers get pages without the bar. The route reports the error.
        return
    if caller.may("read"):
        request.state.bar = await bar_of(caller)


async def bar_of(caller: Caller) -> Bar:
    workers = await _workers(caller.store)
    open_to_all = not caller.state.settings.tokens_needed and caller.actor == "local"
    return Bar(
        sections=[section for section in caller.state.extensions.sections if caller.may(section.scope)],
        project=caller.project,
        projects=await _projects(caller.store) if open_to_all else [caller.project],
        awaiting_person=await caller.store.count_awaiting_person(most=SHOWN_COUNT + 1),
        store=caller.store.backend_name,
        workers=len(workers),
        alive=True,
    )


BarShown: Any = Depends(with_bar)


def page_router(prefix: str = "") -> LazyRouter:
    """Return a router of pages with the navigation bar."""
    return LazyRouter(include_in_schema=False, prefix=prefix, dependencies=[BarShown])


router = page_router()


@router.post("/project")
async def switch_project(
    request: Request, caller: FormWriter, project: Annotated[str, Form(max_length=255)]
) -> Response:
    """Switch the project, on a server without tokens."""
    if caller.state.settings.tokens_needed or caller.actor != "local":
        raise Problem(409, "Project is fixed", "The token selects the project. Use another token for another project.")
    response = redirect_to(request, "/")
    path = f"{base_path(request)}/"
    response.set_cookie(PROJECT_COOKIE, project, path=path, max_age=31_536_000, samesite="strict", httponly=True)
    return response


async def _workers(store: Store) -> list[Worker]:
    """Return the workers with a valid lease."""
    now = store.clock.now()
    rows = await store.table(Worker).find(Where("dead", "=", False))
    return [worker for worker in rows if (now - worker.beat_at).total_seconds() <= worker.lease_seconds]


async def _projects(store: Store) -> list[str]:
    """Return the names of all projects with threads. Each costs one index lookup."""
    return sorted({*await _known.get(store.identity, store.projects), store.project})
