"""Routes of the list of threads."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lockstitch.model import Thread
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages import navbar
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.format import TimedCache
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.common.rows import ThreadListRow, rows
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.columns import COLUMNS, with_cells, with_matches
from lockstitch.server.pages.threads.counts import counts_of, forget
from lockstitch.server.pages.threads.filters import KINDS, SPANS, TABS, Filters, filters_of
from lockstitch.server.pages.threads.reader import listed
from lockstitch.server.problems import Problem
from lockstitch.store import Store
from lockstitch.store.reports.dashboard import Costs
from lockstitch.store.saved_views import saved_views

router = page_router()

_MOST_AGENTS: Final = 200
"""Maximum number of agents to choose from."""

_costs = TimedCache["float | None"](10.0)

Lines = Annotated[str, Query(pattern="^[01]{0,40}$")]


@router.get("/", name="threads")
async def threads(request: Request, caller: Reader, after: str = "") -> Response:
    """Render the list; for htmx only its rows."""
    store = caller.store
    filters = filters_of(request)
    views = [] if is_htmx_request(request) else await saved_views(store)
    if not request.url.query:
        for view in views:
            if view.is_default:
                return RedirectResponse(f"{base_path(request)}/{Filters.of_view(view).address()}", 303)
    result = await listed(store, filters, after=after)
    every = await _rows(store, [*result.needing, *result.others], filters)
    shown: dict[str, Any] = {
        "filters": filters,
        "columns": filters.shown,
        "needing": every[: len(result.needing)],
        "needing_count": result.needing_count,
        "others": every[len(result.needing) :],
        "more": result.has_more,
        "after": after,
        "unindexed": result.unindexed,
    }
    if result.positions:
        for name in ("needing", "others"):
            shown[name] = await with_matches(store, shown[name], result.positions, filters.q)
    if after and is_htmx_request(request):
        return render_page(request, caller, "threads/rows.html", rows=shown["others"], **shown)
    shown |= {"tabs": TABS, "counts": await counts_of(store)}
    if is_htmx_request(request):
        response = render_page(request, caller, "threads/list.html", oob=True, bar=await navbar.bar_of(caller), **shown)
        response.headers["HX-Push-Url"] = f"{base_path(request)}/{filters.address()}"
        return response
    if not shown["counts"][""] and not filters.narrowed and not await store.threads(limit=1):
        return render_page(request, caller, "threads/welcome.html", **_first(request, caller))
    agents = await store.agents.list(project=store.project, limit=_MOST_AGENTS)
    shown |= {
        "agents": sorted({*(agent.name for agent in agents), *filter(None, [filters.agent])}),
        "kinds": KINDS,
        "spans": [(name, word) for name, (word, _) in SPANS.items()],
        "all_columns": COLUMNS.values(),
        "current_view": next((view for view in views if Filters.of_view(view) == filters), None),
        "views": [(view, Filters.of_view(view)) for view in views],
        "code": forms.agents_of(caller),
        "cost": await _costs.get((store.identity, store.project), lambda: Costs(store, all_projects=False).today()),
    }
    return render_page(request, caller, "threads/page.html", **shown)


@router.get("/counts")
async def counts(request: Request, caller: Reader) -> HTMLResponse:
    """Render the counts of the tabs."""
    shown: dict[str, Any] = {"filters": filters_of(request), "tabs": TABS, "counts": await counts_of(caller.store)}
    return render_page(request, caller, "threads/counts.html", bar=await navbar.bar_of(caller), oob=True, **shown)


@router.get("/next")
async def following(request: Request, caller: Reader, after: str = "") -> Response:
    """Redirect to the next thread that needs a person, longest first."""
    store = caller.store
    last = await store.thread(after) if after else None
    threads = await store.awaiting_person(limit=1, after=last) if last and last.awaiting_person_since else []
    threads = threads or await store.awaiting_person(limit=1)
    if not threads:
        return redirect_to(request, "/", "No threads need you.")
    return redirect_to(request, f"/threads/{threads[0].id}#needs")


@router.get("/threads/{ref}/row")
async def row(request: Request, caller: Reader, ref: UUID, lines: Lines | None = None, last: bool = False) -> Response:
    """Render one row."""
    filters = filters_of(request)
    [shown] = await _rows(caller.store, [await caller.store.thread(ref)], filters, lines=lines)
    if shown.guides and not last:
        shown = forms.changed(shown, guides=(*shown.guides[:-1], "tee"), last=False)
    return render_page(request, caller, "threads/one_row.html", row=shown, filters=filters, columns=filters.shown)


@router.get("/threads/{ref}/children")
async def children(request: Request, caller: Reader, ref: UUID, lines: Lines = "") -> Response:
    """Render the rows of the children of a thread."""
    filters = filters_of(request)
    shown = await _rows(caller.store, await caller.store.children(ref), filters, lines=lines)
    return render_page(
        request, caller, "threads/rows.html", rows=shown, more=False, filters=filters, columns=filters.shown
    )


@router.post("/threads")
async def begin(
    request: Request,
    caller: FormWriter,
    agent: Annotated[str, Form(min_length=1, max_length=255)],
    message: Annotated[str, Form(min_length=1)],
    key: Annotated[str, Form(max_length=255)] = "",
    kind: Annotated[str, Form(pattern="^(chat|goal)$")] = "chat",
    form_id: forms.FormId = "",
) -> Response:
    """Start a thread, or send a message to the thread with this key."""
    if not message.strip():
        raise Problem(422, "Refused", "Enter a message.")
    thread_id = await forms.begin(caller, agent, message, key=key.strip() or None, kind=kind, form_id=form_id)
    add_log_fields(thread=thread_id)
    forget()
    return forms.done(request, f"/threads/{thread_id}")


async def _rows(
    store: Store, threads: Sequence[Thread], filters: Filters, *, lines: str | None = None
) -> list[ThreadListRow]:
    return await with_cells(store, await rows(store, threads, lines=lines), filters.shown)


def _first(request: Request, caller: Caller) -> dict[str, Any]:
    """Return the context of the page without threads."""
    return {
        "address": str(request.base_url).rstrip("/"),
        "code": forms.agents_of(caller),
    }
