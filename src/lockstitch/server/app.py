"""`create_app()` and `router()`: the server as an ASGI app or as a FastAPI router."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from lockstitch.agents import App
from lockstitch.engine.alerts import alerts_checked
from lockstitch.engine.report_preparation import reports_prepared
from lockstitch.engine.worker import WorkerLoop
from lockstitch.server import api, health, ingest, mcp, openapi, pages, problems
from lockstitch.server.extensions import server_extensions_of
from lockstitch.server.ingest.processor import ingest_running
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.server.middleware import RequestGuard
from lockstitch.server.pages.common.render import problem_page
from lockstitch.server.pages.navbar import BarShown
from lockstitch.server.scripts import with_digests
from lockstitch.server.settings import Settings
from lockstitch.server.state import ServerState
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.store import Store
from lockstitch.version import VERSION

_COMPRESSION: Final = 5
"""The level of compressed responses. Higher levels take twice the time and save two percent of a page."""


@asynccontextmanager
async def worker_running(state: ServerState) -> AsyncGenerator[None]:
    """Execute threads while the context is open. On exit, release each thread at its next commit."""
    if state.app is None or not state.settings.work:
        # A worker also checks alerts.
        async with alerts_checked(state.store):
            yield
        return
    loop = WorkerLoop(state.app, state.store, concurrency=state.settings.concurrency)
    task = asyncio.create_task(loop.run(), name="lockstitch-server-worker")
    try:
        yield
    finally:
        loop.stop()
        with suppress(asyncio.CancelledError):
            await task


def create_app(store: Store, app: App | None = None, settings: Settings | None = None) -> FastAPI:
    """Return the server of an open store as an ASGI app.

    Args:
        store: The open store.
        app: App with the agents that the server can run. None: the server only reads and controls threads.
        settings: Access, limits and timeouts. None: the defaults, for one user on the local machine.
    """
    settings = settings or Settings()
    state = ServerState(
        store,
        app,
        settings,
        ChangeFeed(store),
        IngestBuffer(store, settings),
        extensions=server_extensions_of(app),
    )
    extensions = state.extensions.by_name.values()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            if app is not None:
                await app.setup(store)
            await stack.enter_async_context(worker_running(state))
            await stack.enter_async_context(reports_prepared(store))
            await stack.enter_async_context(state.evaluations.running(app if settings.work else None, store))
            await stack.enter_async_context(state.changes.open())
            await stack.enter_async_context(ingest_running(store, state.intake, settings))
            yield

    server = FastAPI(
        title="Lockstitch",
        version=VERSION,
        description="One durable record of everything AI agents do.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    server.state.lockstitch = state
    server.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=_COMPRESSION)
    server.add_middleware(RequestGuard, settings=settings, figures=state.figures)
    problems.handle(server, problem_page)
    added = [router for extension in extensions for router in extension.api]
    served = (health.router, *api.routers(), *ingest.routers(), mcp.router, *added)
    # Not include_router: it would analyze the parameters of every route again, for each server of this process.
    server.router.routes.extend(route for router in served for route in router.routes)
    openapi.document(server, served, "/api/openapi.json")
    server.router.routes.extend(route for router in pages.routers() for route in router.routes)
    for router in [router for extension in extensions for router in extension.pages]:
        server.include_router(router, dependencies=[BarShown])
    scripts = state.extensions.scripts_digest
    for name, package in state.extensions.static.items():
        server.mount(f"/static/{name}", _Files(package, scripts), name=f"static-{name}")
    server.mount("/static", _Files("lockstitch.server", scripts), name="static")
    return server


def router(store: Store, app: App | None = None, settings: Settings | None = None) -> APIRouter:
    """Return the server as a router for another FastAPI app.

    Use `server.include_router(router(store, app), prefix="/agents")`. The lifespan of the router executes the threads
    of the app, unless `Settings(work=False)` leaves them to workers.

    Args:
        store: The open store.
        app: App with the agents that the server can run. None: the server only reads and controls threads.
        settings: Access, limits and timeouts. None: the defaults, for one user on the local machine.
    """
    inner = create_app(store, app, settings)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    outer = APIRouter(lifespan=lifespan)
    methods = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"]
    outer.add_route("/{path:path}", _Below(inner), methods=methods, include_in_schema=False)  # pyright: ignore[reportArgumentType]
    return outer


class _Files(StaticFiles):
    """Static files of a package. Browsers cache them forever, because their URLs contain a digest."""

    def __init__(self, package: str, scripts: str) -> None:
        super().__init__(packages=[(package, "static")])
        self._scripts = scripts

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        scope: Scope = args[2] if len(args) > 2 else options["scope"]
        if not scope.get("query_string"):
            response.headers["Cache-Control"] = "no-cache"
            return response
        path = Path(args[0] if args else options["full_path"])
        current = True
        if path.suffix == ".js" and path.parent.name != "vendor":
            # During an update, pages of another version of the server can request its scripts here.
            current = scope["query_string"].decode("latin-1") == self._scripts
            response = Response(with_digests(path.read_text("utf-8"), self._scripts), media_type="text/javascript")
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if current else "no-cache"
        return response


class _Below:
    """Calls an ASGI app below a prefix, which is taken from the request."""

    def __init__(self, inner: FastAPI) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = str(scope["path_params"]["path"])
        prefix = scope["path"].removesuffix(below).rstrip("/")
        await self._inner({**scope, "root_path": prefix, "path_params": {}}, receive, send)
