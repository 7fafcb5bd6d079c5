"""Administration: tokens, audit log, workers and projects."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from lockstitch.model import Json, Token
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Limit, Name, TextParam, TimeParam, rows
from lockstitch.server.auth import Admin, Reader
from lockstitch.server.routing import LazyRouter
from lockstitch.store.reports.dashboard import DashboardReader
from lockstitch.version import VERSION

router = LazyRouter(prefix="/api", tags=["administration"], default_response_class=ExactJSON)


class NewToken(Body):
    """A new token for this project."""

    name: Name
    scopes: Annotated[list[str], Field(min_length=1, max_length=4)]
    expires_at: TimeParam | None = None


@router.get("/tokens", response_model=list[responses.Token])
async def tokens(caller: Admin) -> ExactJSON:
    """List all tokens of the project, oldest first, including revoked tokens. Secrets are not included."""
    return ExactJSON([_shown(token) for token in await caller.store.tokens.all()])


@router.post("/tokens", status_code=201, response_model=responses.NewToken)
async def make_token(caller: Admin, wanted: NewToken) -> ExactJSON:
    """Create a token. Only this response contains the secret."""
    token, secret = await caller.store.tokens.create(wanted.name, wanted.scopes, expires_at=wanted.expires_at)
    await caller.store.audits.record(caller.actor, "make token", token.name, scopes=token.scopes)
    return ExactJSON({**_shown(token), "token": secret}, 201)


@router.delete("/tokens/{name}", response_model=responses.Token)
async def revoke_token(caller: Admin, name: Annotated[Name, Path()]) -> ExactJSON:
    """Revoke a token. It is invalid from the next request on."""
    token = await caller.store.tokens.revoke(name)
    await caller.store.audits.record(caller.actor, "revoke token", token.name)
    return ExactJSON(_shown(token))


@router.get("/audit", response_model=list[responses.Audit])
async def audit(caller: Admin, limit: Limit = 50) -> ExactJSON:
    """List the audit log of the project, newest first."""
    return ExactJSON(rows(await caller.store.audits.latest(limit)))


@router.get("/workers", response_model=responses.Workers)
async def workers(caller: Reader) -> ExactJSON:
    """List the workers, and the threads of this project that they hold."""
    dashboard = await DashboardReader(caller.store, all_projects=False).read()
    own = {thread.id for held in dashboard.held.values() for thread in held if thread.project == caller.project}
    matches: list[Json] = []
    for worker, row in zip(dashboard.workers, dashboard.as_json()["workers"], strict=True):
        mine = [thread.id for thread in dashboard.held.get(worker.id, []) if thread.id in own]
        # Threads of other projects are only counted.
        doing = {name: act for name, act in worker.doing.items() if name in {str(item_id) for item_id in own}}
        held = len(dashboard.held.get(worker.id, []))
        matches.append({**row, "holds": [str(item_id) for item_id in mine], "doing": doing, "threads": held})
    return ExactJSON({"workers": matches, "open": dashboard.counts})


@router.get("/dashboard", response_model=responses.Dashboard)
async def dashboard(
    caller: Reader,
    thread: Annotated[
        TextParam | None, Query(max_length=300, description="Only this thread and its descendants.")
    ] = None,
) -> ExactJSON:
    """Return the open threads of the project, the workers, and the threads of this project that they hold."""
    head = await caller.store.thread(thread) if thread is not None else None
    reader = DashboardReader(caller.store, all_projects=False, thread_id=head.id if head is not None else None)
    snapshot = await reader.read()
    held = {
        worker.id: [item for item in snapshot.held.get(worker.id, []) if item.project == caller.project]
        for worker in snapshot.workers
    }
    own = {str(item.id) for threads in held.values() for item in threads}
    workers = [
        worker.changed(doing={name: act for name, act in worker.doing.items() if name in own})
        for worker in snapshot.workers
    ]
    return ExactJSON(
        {
            **snapshot.as_json(),
            "threads": [tree.as_json(full=True) for tree in snapshot.trees],
            "workers": rows(workers),
            "held": {str(worker_id): rows(threads) for worker_id, threads in held.items()},
        }
    )


@router.get("/whoami", response_model=responses.WhoAmI)
async def whoami(caller: Reader) -> ExactJSON:
    """Return the project and the scopes of the caller, the agents of the loaded app, and the version of the server."""
    return ExactJSON(
        {
            "project": caller.project,
            "actor": caller.actor,
            "scopes": sorted(caller.scopes),
            "agents": caller.state.app.agent_names if caller.state.app is not None else [],
            "version": VERSION,
        }
    )


@router.get("/projects", response_model=responses.Projects)
async def projects(caller: Reader) -> ExactJSON:
    """List the projects of the caller: the project of the token, or without tokens all projects with runs."""
    if caller.state.settings.tokens_needed or caller.actor != "local":
        return ExactJSON({"projects": [caller.project], "project": caller.project})
    table = await caller.store.statistics.usage("project", all_projects=True)
    names = {str(row.group[0]) for row in table.rows if row.group[0]} | {caller.project}
    return ExactJSON({"projects": sorted(names), "project": caller.project})


def _shown(token: Token) -> Json:
    return {name: value for name, value in token.as_json().items() if name != "sha256"}
