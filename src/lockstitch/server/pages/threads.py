"""The list of threads: what waits for a person first, then the others, live."""

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.server.access import Actor, Caller, Reader
from lockstitch.server.guard import mention
from lockstitch.server.pages import acting, bar, waiting
from lockstitch.server.pages.frame import back, base_of, is_part, page
from lockstitch.server.pages.keeping import Kept
from lockstitch.server.pages.listing import KINDS, SPANS, TABS, Filters, listed
from lockstitch.server.pages.rows import rows
from lockstitch.server.problems import Problem
from lockstitch.store import Store
from lockstitch.store.costs import Costs

router = APIRouter(include_in_schema=False)

_counts = Kept[dict[str, int]](2.0)
_costs = Kept["float | None"](10.0)

Lines = Annotated[str, Query(pattern="^[01]{0,40}$")]

_SHOWN: Final = 200
"""Threads that wait for a person and are shown at once."""


@router.get("/", name="threads")
async def threads(request: Request, caller: Reader, after: str = "") -> HTMLResponse:
    """The list, or with htmx its rows; those after a thread are appended by keyset."""
    store = caller.store
    filters = Filters.of(request.query_params)
    found = await listed(store, filters, after=after)
    shown: dict[str, Any] = {
        "filters": filters,
        "needing": await rows(store, found.needing[:_SHOWN]),
        "needing_count": len(found.needing),
        "others": await rows(store, found.others),
        "more": found.more,
        "after": after,
    }
    if after and is_part(request):
        return page(request, caller, "threads/rows.html", rows=shown["others"], **shown)
    shown |= {"tabs": TABS, "counts": await counts_of(store)}
    if is_part(request):
        response = page(request, caller, "threads/list.html", oob=True, bar=await bar.bar_of(caller), **shown)
        response.headers["HX-Push-Url"] = f"{base_of(request)}/{filters.address()}"
        return response
    if not shown["counts"][""] and not filters.narrowed:
        return page(request, caller, "threads/first.html", **_first(request, caller))
    agents = await store.agents.list(project=store.project)
    shown |= {
        "agents": sorted(one.name for one in agents),
        "kinds": KINDS,
        "spans": [(name, word) for name, (word, _) in SPANS.items()],
        "code": acting.agents_of(caller),
        "cost": await _costs.get((store.backend, store.project), lambda: Costs(store, all_projects=False).today()),
    }
    return page(request, caller, "threads/page.html", **shown)


@router.get("/counts")
async def counts(request: Request, caller: Reader) -> HTMLResponse:
    """The counts, to be put in place of the old ones."""
    filters = Filters.of(request.query_params)
    shown: dict[str, Any] = {"filters": filters, "tabs": TABS, "counts": await counts_of(caller.store)}
    return page(request, caller, "threads/counts.html", bar=await bar.bar_of(caller), oob=True, **shown)


@router.get("/next")
async def following(request: Request, caller: Reader, after: str = "") -> Response:
    """The next thread that waits for a person, the longest first; after one, the one behind it."""
    found, _ = await waiting.needing(caller.store)
    if not found:
        return back(request, "/", "Nothing waits for a person.")
    names = [str(thread.id) for thread in found]
    place = (names.index(after) + 1) % len(names) if after in names else 0
    return back(request, f"/threads/{names[place]}#needs")


@router.get("/threads/{ref}/row")
async def row(request: Request, caller: Reader, ref: UUID, lines: Lines | None = None, last: bool = False) -> Response:
    """One row as it is now, to be put in place of the old one."""
    made = (await rows(caller.store, [await caller.store.thread(ref)], lines=lines))[0]
    if made.guides and not last:
        made = acting.changed(made, guides=(*made.guides[:-1], "tee"), last=False)
    return page(request, caller, "threads/row.html", row=made)


@router.get("/threads/{ref}/children")
async def children(request: Request, caller: Reader, ref: UUID, lines: Lines = "") -> Response:
    """The rows below one row."""
    found = await caller.store.children(ref)
    return page(request, caller, "threads/rows.html", rows=await rows(caller.store, found, lines=lines), more=False)


@router.post("/threads")
async def begin(
    request: Request,
    caller: Actor,
    agent: Annotated[str, Form(min_length=1, max_length=255)],
    message: Annotated[str, Form(min_length=1)],
    key: Annotated[str, Form(max_length=255)] = "",
    kind: Annotated[str, Form(pattern="^(chat|goal)$")] = "chat",
) -> Response:
    """A new thread, or the next message of one that has this key; whoever drives threads here goes on with it."""
    if not message.strip():
        raise Problem(422, "Refused", "A thread begins with something said.")
    thread_id = await acting.begin(caller, agent, message, key=key.strip() or None, kind=kind)
    mention(thread=thread_id)
    forget()
    return acting.done(request, f"/threads/{thread_id}")


async def counts_of(store: Store) -> dict[str, int]:
    """How many threads there are of each status, and how many wait for a person."""
    return await _counts.get((store.backend, store.project), lambda: _count(store))


def forget() -> None:
    """Count anew: something was done."""
    _counts.forget()


async def _count(store: Store) -> dict[str, int]:
    words = [word for word, _ in TABS if word not in ("", "person")]
    found = {word: await store.count(status=word) for word in words}
    return {**found, "": sum(found.values()), "person": await store.count_asking()}


def _first(request: Request, caller: Caller) -> dict[str, Any]:
    """What somebody sees who has nothing yet."""
    return {
        "address": str(request.base_url).rstrip("/"),
        "code": acting.agents_of(caller),
    }
