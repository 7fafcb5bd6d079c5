"""Links that show one run to readers without a token, until they expire."""

from datetime import timedelta
from typing import Annotated, Final
from uuid import UUID, uuid4

from fastapi import Form, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.errors import NotFound, Refused
from lockstitch.model import Run, ShareLink, Thread
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.run import parts
from lockstitch.server.pages.run.routes import RunPageView, first_rows, panel_at, view_of
from lockstitch.server.routing import LazyRouter
from lockstitch.server.state import server_state
from lockstitch.store import Store, Where

DAYS: Final = {1: "1 day", 7: "7 days", 30: "30 days"}
"""The periods for which a link can work."""

_MOST_LINKS: Final = 100
"""Maximum number of links of a run that are listed."""

UNKNOWN: Final = "This link has expired, was revoked, or its run was deleted."

router = page_router()
public_router = LazyRouter(include_in_schema=False)
"""Routes of readers without a token. The random token of the link is their only right."""


@router.get("/run/{ref}/shares")
async def run_shares(request: Request, caller: Reader, ref: str) -> HTMLResponse:
    """Render the links of a run."""
    return await _render_shares(request, caller, await caller.store.run(ref))


@router.post("/run/{ref}/shares")
async def share(request: Request, caller: FormWriter, ref: str, days: Annotated[int, Form()] = 7) -> Response:
    """Create a link that expires."""
    if days not in DAYS:
        raise Refused(f"A link cannot work for {days} days. Choose one of: {', '.join(DAYS.values())}.")
    store = caller.store
    run = await store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    now = store.clock.now()
    for old in await links_of(store, run):
        if old.expires_at is not None and old.expires_at <= now:
            await store.table(ShareLink).delete(token=old.token)
    link = ShareLink(
        token=uuid4(),
        project=store.project,
        thread_id=run.thread_id,
        run_id=run.id,
        actor=caller.actor,
        created_at=now,
        expires_at=now + timedelta(days=days),
    )
    await store.table(ShareLink).put(link, new=True)
    await store.audits.record(caller.actor, "share run", str(run.id))
    return await _answer(request, caller, run, "Link created")


@router.post("/run/{ref}/shares/{token}/revoke")
async def revoke(request: Request, caller: FormWriter, ref: str, token: UUID) -> Response:
    """Delete a link of a run."""
    run = await caller.store.run(ref)
    if await caller.store.table(ShareLink).delete(token=token, thread_id=run.thread_id, run_id=run.id):
        await caller.store.audits.record(caller.actor, "unshare run", str(run.id))
    return await _answer(request, caller, run, "Link revoked")


@public_router.get("/share/{token}")
async def shared_run(request: Request, token: UUID, at: str = "") -> HTMLResponse:
    """Render a shared run, without the parts that lead to other pages."""
    link, reader, run, head = await _open(request, token)
    view = await view_of(reader, run, head)
    return render_page(
        request,
        reader,
        "run/shared.html",
        link=link,
        run=run,
        thread=head,
        sums=view.sums,
        at=at,
        panel=await panel_at(reader, run, _in_view(view, at or "run")),
        run_path=_path(request, token),
        shared=True,
        **first_rows(view),
    )


@public_router.get("/share/{token}/rows")
async def shared_rows(request: Request, token: UUID) -> Response:
    """Return all rows of the waterfall of a shared run."""
    _, reader, run, head = await _open(request, token)
    return Response((await view_of(reader, run, head)).rows.packed(), media_type="application/octet-stream")


@public_router.get("/share/{token}/panel")
async def shared_panel(request: Request, token: UUID, at: str = "run") -> HTMLResponse:
    """Render the panel of a row of a shared run."""
    _, reader, run, head = await _open(request, token)
    panel = await panel_at(reader, run, _in_view(await view_of(reader, run, head), at))
    path = _path(request, token)
    return render_page(request, reader, "run/panel.html", run=run, at=at, panel=panel, run_path=path, shared=True)


@public_router.get("/share/{token}/text")
async def shared_text(request: Request, token: UUID, at: str, of: str = "stitch", pointer: str = "") -> Response:
    """Return a full text of a shared run."""
    _, reader, run, head = await _open(request, token)
    at = _in_view(await view_of(reader, run, head), at)
    return Response(await parts.text_at(reader.store, run, at, of, pointer), media_type="text/plain; charset=utf-8")


async def links_of(store: Store, run: Run) -> list[ShareLink]:
    """Return the newest links of a run, also those that have expired."""
    where = (Where("thread_id", "=", run.thread_id), Where("run_id", "=", run.id))
    return await store.table(ShareLink).find(*where, order=("-created_at",), limit=_MOST_LINKS)


async def _render_shares(request: Request, caller: Caller, run: Run) -> HTMLResponse:
    now = caller.store.clock.now()
    links = [link for link in await links_of(caller.store, run) if link.expires_at is None or link.expires_at > now]
    address = f"{request.url.scheme}://{request.url.netloc}{base_path(request)}/share/"
    return render_page(request, caller, "run/share_list.html", run=run, links=links, address=address, days=DAYS)


async def _answer(request: Request, caller: Caller, run: Run, text: str) -> Response:
    if not is_htmx_request(request):
        return redirect_to(request, f"/run/{run.id}", text)
    return await _render_shares(request, caller, run)


async def _open(request: Request, token: UUID) -> tuple[ShareLink, Caller, Run, Thread]:
    """Return the link, a reader of its project without scopes, and its run. Raises `NotFound`."""
    state = server_state(request)
    link = await state.store.table(ShareLink).get_or_none(token)
    if link is None or (link.expires_at is not None and link.expires_at <= state.store.clock.now()):
        raise NotFound(UNKNOWN)
    reader = Caller(state, state.store.in_project(link.project), "reader of a shared run", frozenset())
    try:
        run = await reader.store.run(link.run_id)
        head = await reader.store.thread(run.thread_id)
    except NotFound as exc:
        raise NotFound(UNKNOWN) from exc
    add_log_fields(run=run.id, thread=run.thread_id)
    return link, reader, run, head


def _in_view(view: RunPageView, at: str) -> str:
    """Return the name of a row. Raises `NotFound` if the shared run does not have it."""
    rows = view.rows
    if all(rows.at(row) != at for row in range(len(rows))):
        raise NotFound(f"Row {at[:80]} not found in this run.")
    return at


def _path(request: Request, token: UUID) -> str:
    return f"{base_path(request)}/share/{token}"
