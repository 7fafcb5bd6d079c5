"""The list of threads: routes, filters and paging."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.errors import NotFound
from lockstitch.model import Thread
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages import navbar
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common import rows as waiting
from lockstitch.server.pages.common.format import TimedCache
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.common.rows import rows
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.problems import Problem
from lockstitch.store import Store
from lockstitch.store.reports.dashboard import Costs

PAGE: Final = 50
SEARCH_LIMIT: Final = 100
"""Maximum number of search results."""

TABS: Final = (
    ("", "All"),
    ("person", "Needs you"),
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("pending", "Pending"),
    ("failed", "Failed"),
    ("completed", "Completed"),
    ("cancelled", "Cancelled"),
)
KINDS: Final = ("chat", "goal", "task", "trace")
SPANS: Final = {
    "1h": ("Last hour", 1),
    "24h": ("Last 24 hours", 24),
    "7d": ("Last 7 days", 168),
    "30d": ("Last 30 days", 720),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the list. Empty filters match all threads."""

    status: str = ""
    q: str = ""
    agent: str = ""
    kind: str = ""
    since: str = ""
    user: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "Filters":
        """Return the filters of a query string. Invalid values are ignored."""
        values = {name: parameters.get(name, "").replace("\0", "").strip()[:255] for name in cls.__dataclass_fields__}
        if values["status"] not in dict(TABS):
            values["status"] = ""
        if values["kind"] not in KINDS:
            values["kind"] = ""
        if values["since"] not in SPANS:
            values["since"] = ""
        return cls(**values)

    @property
    def narrowed(self) -> bool:
        """True if a filter other than the status is set."""
        return replace(self, status="") != Filters()

    def address(self, **changes: str) -> str:
        """Return the query string of the filters, with the changes in `other`."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__} | changes
        text = urlencode({name: value for name, value in values.items() if value})
        return f"?{text}" if text else ""

    def begin(self, now: datetime) -> datetime | None:
        return now - timedelta(hours=SPANS[self.since][1]) if self.since else None

    def equal(self) -> dict[str, Any]:
        """Return the conditions for the store. Without filters only root threads match."""
        values: dict[str, Any] = {"agent": self.agent, "kind": self.kind, "user_id": self.user}
        values["status"] = "" if self.status == "person" else self.status
        requested = {name: value for name, value in values.items() if value}
        return requested or {"depth": 0}

    def fits(self, thread: Thread, now: datetime) -> bool:
        """True if a thread from a search matches the filters."""
        begin = self.begin(now)
        return (
            (not self.agent or thread.agent == self.agent)
            and (not self.kind or thread.kind == self.kind)
            and (not self.user or thread.user_id == self.user)
            and (begin is None or thread.recent_at >= begin)
            and (not self.status or thread.status == self.status or self.status == "person")
        )


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of the list: threads that need a person, longest first, and other threads, newest first."""

    needing: list[Thread]
    others: list[Thread]
    has_more: bool
    """True if there are older threads."""


async def listed(store: Store, filters: Filters, *, after: str = "") -> ThreadPage:
    """Return the page after a thread, or the first page."""
    now = store.clock.now()
    if filters.q:
        threads = [thread for thread in await _searched(store, filters.q) if filters.fits(thread, now)]
        wanting = [thread for thread in threads if waiting.person_waits_of(thread)]
        if filters.status == "person":
            return ThreadPage(wanting, [], has_more=False)
        return ThreadPage(wanting, [thread for thread in threads if thread not in wanting], has_more=False)
    needing: list[Thread] = []
    if not after and filters.status in ("", "person", "waiting"):
        needing = [thread for thread in (await waiting.needing(store))[0] if filters.fits(thread, now)]
    if filters.status == "person":
        return ThreadPage(needing, [], has_more=False)
    last = await store.thread(after) if after else None
    threads = await store.threads(limit=PAGE + 1, after=last, since=filters.begin(now), **filters.equal())
    # Threads that need a person are in the first group.
    others = [
        thread
        for thread in threads[:PAGE]
        if not waiting.person_waits_of(thread) or filters.status not in ("", "waiting")
    ]
    return ThreadPage(needing, others, has_more=len(threads) > PAGE)


async def _searched(store: Store, text: str) -> list[Thread]:
    """Return the threads with this id or key, or with these words, best matches first."""
    try:
        named = [await store.thread(text)]
    except NotFound:
        named = []
    hits = await store.search(text, limit=SEARCH_LIMIT)
    fromkeys = list(dict.fromkeys(hit.thread_id for hit in hits))
    threads = await store.threads_by_id(fromkeys)
    matches = [threads[item_id] for item_id in fromkeys if item_id in threads]
    return [*named, *(thread for thread in matches if thread not in named)]


router = page_router()

_counts = TimedCache[dict[str, int]](2.0)
_costs = TimedCache["float | None"](10.0)

Lines = Annotated[str, Query(pattern="^[01]{0,40}$")]

_SHOWN: Final = 200
"""Maximum number of rows in the group that needs a person."""


@router.get("/", name="threads")
async def threads(request: Request, caller: Reader, after: str = "") -> HTMLResponse:
    """Render the list; for htmx only its rows."""
    store = caller.store
    filters = Filters.of(request.query_params)
    result = await listed(store, filters, after=after)
    shown: dict[str, Any] = {
        "filters": filters,
        "needing": await rows(store, result.needing[:_SHOWN]),
        "needing_count": len(result.needing),
        "others": await rows(store, result.others),
        "more": result.has_more,
        "after": after,
    }
    if after and is_htmx_request(request):
        return render_page(request, caller, "threads/rows.html", rows=shown["others"], **shown)
    shown |= {"tabs": TABS, "counts": await counts_of(store)}
    if is_htmx_request(request):
        response = render_page(request, caller, "threads/list.html", oob=True, bar=await navbar.bar_of(caller), **shown)
        response.headers["HX-Push-Url"] = f"{base_path(request)}/{filters.address()}"
        return response
    if not shown["counts"][""] and not filters.narrowed:
        return render_page(request, caller, "threads/welcome.html", **_first(request, caller))
    agents = await store.agents.list(project=store.project)
    shown |= {
        "agents": sorted(agent.name for agent in agents),
        "kinds": KINDS,
        "spans": [(name, word) for name, (word, _) in SPANS.items()],
        "code": forms.agents_of(caller),
        "cost": await _costs.get((store.identity, store.project), lambda: Costs(store, all_projects=False).today()),
    }
    return render_page(request, caller, "threads/page.html", **shown)


@router.get("/counts")
async def counts(request: Request, caller: Reader) -> HTMLResponse:
    """Render the counts of the tabs."""
    filters = Filters.of(request.query_params)
    shown: dict[str, Any] = {"filters": filters, "tabs": TABS, "counts": await counts_of(caller.store)}
    return render_page(request, caller, "threads/counts.html", bar=await navbar.bar_of(caller), oob=True, **shown)


@router.get("/next")
async def following(request: Request, caller: Reader, after: str = "") -> Response:
    """Redirect to the next thread that needs a person, longest first."""
    threads, _ = await waiting.needing(caller.store)
    if not threads:
        return redirect_to(request, "/", "No threads need you.")
    names = [str(thread.id) for thread in threads]
    place = (names.index(after) + 1) % len(names) if after in names else 0
    return redirect_to(request, f"/threads/{names[place]}#needs")


@router.get("/threads/{ref}/row")
async def row(request: Request, caller: Reader, ref: UUID, lines: Lines | None = None, last: bool = False) -> Response:
    """Render one row."""
    thread_list_row = (await rows(caller.store, [await caller.store.thread(ref)], lines=lines))[0]
    if thread_list_row.guides and not last:
        thread_list_row = forms.changed(thread_list_row, guides=(*thread_list_row.guides[:-1], "tee"), last=False)
    return render_page(request, caller, "threads/row.html", row=thread_list_row)


@router.get("/threads/{ref}/children")
async def children(request: Request, caller: Reader, ref: UUID, lines: Lines = "") -> Response:
    """Render the rows of the children of a thread."""
    threads = await caller.store.children(ref)
    return render_page(
        request, caller, "threads/rows.html", rows=await rows(caller.store, threads, lines=lines), more=False
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


async def counts_of(store: Store) -> dict[str, int]:
    """Return the number of threads by status, and of threads that need a person."""
    return await _counts.get((store.identity, store.project), lambda: _count(store))


def forget() -> None:
    """Clear the cached counts."""
    _counts.forget()


async def _count(store: Store) -> dict[str, int]:
    words = [word for word, _ in TABS if word not in ("", "person")]
    result = {word: await store.count(status=word) for word in words}
    return {**result, "": sum(result.values()), "person": await store.count_awaiting_person()}


def _first(request: Request, caller: Caller) -> dict[str, Any]:
    """Return the context of the page without threads."""
    return {
        "address": str(request.base_url).rstrip("/"),
        "code": forms.agents_of(caller),
    }
