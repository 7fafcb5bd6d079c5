"""Share links: a link reads the trace of one run without a token."""

from typing import Any, Final
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.responses import Response

from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Json, Run, ShareLink, codec
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.ingest.langsmith.runs import SETTLING
from lockstitch.server.ingest.langsmith.spans import Span, run_of_span, spans_of
from lockstitch.server.state import server_state
from lockstitch.store import Store

_UNKNOWN: Final = "Share link not found. It was deleted, or its run was."

NOT_FOUND: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "The link or the run does not exist"},
    422: {"description": "The token is not a UUID, or the body is not valid"},
    503: {"description": "The store is unreachable"},
}
"""Problems of the routes that need no token."""


class NewShare(BaseModel):
    """A new share link. `share_token` is the UUID that the client chose."""

    model_config = ConfigDict(extra="allow")

    share_token: UUID | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        # The JavaScript client sends JSON without its content type.
        return codec.loads(value) if isinstance(value, bytes) else value


class SharedQuery(BaseModel):
    """Runs of a shared trace."""

    model_config = ConfigDict(extra="allow")

    id: list[str] | None = None


async def link_of(store: Store, run: Run) -> ShareLink | None:
    """Return the share link of a run that never expires, or None. Pages create links that expire."""
    links = await store.table(ShareLink).list(thread_id=run.thread_id, run_id=run.id)
    return next((link for link in links if link.expires_at is None), None)


async def create_link(caller: Caller, ref: str, token: UUID | None = None) -> ShareLink:
    """Return the share link of the trace of a run. Create it if there is none."""
    await caller.state.intake.settled(SETTLING)
    store = caller.store
    run = await run_of_span(store, codec.check_text(ref, "The id"))
    link = await link_of(store, run)
    if link is not None:
        return link
    link = ShareLink(
        token=token or uuid4(),
        project=store.project,
        thread_id=run.thread_id,
        run_id=run.id,
        actor=caller.actor,
        created_at=store.clock.now(),
    )
    try:
        await store.table(ShareLink).put(link, new=True)
    except Conflict as exc:
        raise Conflict("The share token is already used. Choose another one. Nothing was written.") from exc
    await store.audits.record(caller.actor, "share run", str(run.id))
    return link


async def delete_link(caller: Caller, ref: str) -> None:
    """Delete the share link of the trace of a run, if there is one."""
    store = caller.store
    run = await run_of_span(store, codec.check_text(ref, "The id"))
    link = await link_of(store, run)
    if link is not None and await store.table(ShareLink).delete(token=link.token):
        await store.audits.record(caller.actor, "unshare run", str(run.id))


async def shared_spans(request: Request, token: UUID) -> list[Span]:
    """Return the spans of a shared trace, root first. Needs no token of the server. Raises `NotFound`."""
    state = server_state(request)
    link = await state.store.table(ShareLink).get_or_none(token)
    if link is None or (link.expires_at is not None and link.expires_at <= state.store.clock.now()):
        raise NotFound(_UNKNOWN)
    store = state.store.in_project(link.project)
    try:
        return await spans_of(store, await store.run(link.run_id))
    except NotFound as exc:
        raise NotFound(_UNKNOWN) from exc


def public(span: Span) -> Json:
    """Return a span for a reader without a token: without the places of the server that the reader cannot open."""
    return {**span.value, "app_path": None}


async def share_run(caller: Writer, run_id: str, new: NewShare) -> ExactJSON:
    """Create the share link of the trace of a run, or return the existing one."""
    link = await create_link(caller, run_id, new.share_token)
    return ExactJSON({"run_id": run_id, "share_token": str(link.token)})


async def read_share(caller: Reader, run_id: str) -> ExactJSON:
    """Return the share link of the trace of a run. It is null if the run is not shared."""
    await caller.state.intake.settled(SETTLING)
    link = await link_of(caller.store, await run_of_span(caller.store, codec.check_text(run_id, "The id")))
    return ExactJSON({"run_id": run_id, "share_token": str(link.token)} if link else None)


async def unshare_run(caller: Writer, run_id: str) -> Response:
    """Delete the share link of the trace of a run."""
    await delete_link(caller, run_id)
    return Response(status_code=204)


async def read_shared(request: Request, token: UUID) -> ExactJSON:
    """Return the root of a shared trace."""
    spans = await shared_spans(request, token)
    if not spans:
        raise NotFound(_UNKNOWN)
    return ExactJSON(public(spans[0]))


async def read_shared_span(request: Request, token: UUID, run_id: str) -> ExactJSON:
    """Return a run (a span) of a shared trace."""
    for span in await shared_spans(request, token):
        if span.id == run_id:
            return ExactJSON(public(span))
    raise NotFound(f"Run {run_id} is not in the shared trace.")


async def list_shared(request: Request, token: UUID, query: SharedQuery) -> ExactJSON:
    """List the runs (spans) of a shared trace."""
    spans = await shared_spans(request, token)
    wanted = [public(span) for span in spans if query.id is None or span.id in query.id]
    return ExactJSON({"runs": wanted, "cursors": {"next": None}})


async def open_shared(request: Request, token: UUID) -> ExactJSON:
    """Return all runs (spans) of a shared trace. This is the URL that the client shows to people."""
    return await list_shared(request, token, SharedQuery())


def add_routes(router: APIRouter) -> None:
    add = router.add_api_route
    run, link = responses.LangSmithRun, responses.LangSmithObject
    add("/runs/{run_id}/share", share_run, methods=["PUT"], response_model=link)
    add("/runs/{run_id}/share", read_share, methods=["GET"], response_model=link | None)
    add("/runs/{run_id}/share", unshare_run, methods=["DELETE"], status_code=204, response_class=Response)
    add("/public/{token}/run", read_shared, methods=["GET"], response_model=run, responses=NOT_FOUND)
    add("/public/{token}/run/{run_id}", read_shared_span, methods=["GET"], response_model=run, responses=NOT_FOUND)
    runs = responses.LangSmithRuns
    add("/public/{token}/runs/query", list_shared, methods=["POST"], response_model=runs, responses=NOT_FOUND)
    add("/public/{token}/r", open_shared, methods=["GET"], response_model=runs, responses=NOT_FOUND)
