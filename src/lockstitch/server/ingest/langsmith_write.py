"""LangSmith's write protocol, and responses for its unsupported routes.

Bodies are accepted unread and processed later. A LangSmith client drops its data after a 4xx response, so 4xx is only
used for invalid tokens and bodies that are too large.
"""

from functools import cache
from typing import Any, Final, NoReturn

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from lockstitch.integrations.body_reader import LANGSMITH, OTEL
from lockstitch.server.api import responses
from lockstitch.server.auth import Ingester
from lockstitch.server.ingest.accept import accept
from lockstitch.server.ingest.otlp import EXPORTED, answer
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter

PREFIXES: Final = ("", "/api/v1")

INFO: Final[dict[str, Any]] = {
    # Clients check the version before they use newer features.
    "version": "0.18.0",
    "license_expiration_time": None,
    "batch_ingest_config": {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 16,
        "scale_down_nempty_trigger": 4,
        "size_limit": 100,
        "size_limit_bytes": 20_971_520,
    },
    "instance_flags": {
        "zstd_compression_enabled": True,
        "gzip_body_enabled": True,
        "dataset_examples_multipart_enabled": True,
    },
}

_ACCEPTED: Final = {"message": "Stored. It will be processed soon."}


async def info() -> JSONResponse:
    """Return the features of this server for LangSmith clients."""
    return JSONResponse(INFO)


async def take(request: Request, caller: Ingester) -> JSONResponse:
    """Accept runs, run updates, batches, multipart bodies and feedback of LangSmith clients."""
    await accept(request, caller, LANGSMITH)
    return JSONResponse(_ACCEPTED, 202)


async def take_run(request: Request, caller: Ingester, run_id: str) -> JSONResponse:
    """Accept an update of a run."""
    return await take(request, caller)


async def take_feedback(request: Request, caller: Ingester, feedback_id: str) -> JSONResponse:
    """Accept an update of feedback."""
    return await take(request, caller)


async def take_spans(request: Request, caller: Ingester) -> Response:
    """Accept OpenTelemetry spans of LangSmith clients."""
    return answer(request, await accept(request, caller, OTEL))


@cache
def routers() -> tuple[APIRouter, ...]:
    return tuple(map(_router, PREFIXES))


def _router(prefix: str) -> APIRouter:
    router = LazyRouter(prefix=prefix, tags=["langsmith"])
    router.add_api_route("/info", info, methods=["GET"], response_model=responses.Info)
    for path in ("/runs", "/runs/batch", "/runs/multipart", "/feedback"):
        router.add_api_route(path, take, methods=["POST"], status_code=202, response_model=responses.Taken)
    for path, changed in (("/runs/{run_id}", take_run), ("/feedback/{feedback_id}", take_feedback)):
        router.add_api_route(path, changed, methods=["PATCH"], status_code=202, response_model=responses.Taken)
    router.add_api_route(
        "/otel/v1/traces", take_spans, methods=["POST"], responses=EXPORTED, response_class=JSONResponse
    )
    return router


_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]

_ROOTS: Final = (
    "annotation-queues",
    "charts",
    "commits",
    "comparative",
    "datasets",
    "examples",
    "feedback",
    "feedback-configs",
    "likes",
    "orgs",
    "platform",
    "prompts",
    "public",
    "repos",
    "runs",
    "sessions",
    "settings",
    "tenants",
    "v1/metadata",
    "v1/platform",
    "v2",
    "workspaces",
)
"""The first path segments of the LangSmith API. At the server root only these paths return 501."""


async def unserved(request: Request) -> NoReturn:
    """Raise a problem 501 for an unsupported route of LangSmith."""
    what = f"{request.method} {request.url.path}"
    raise Problem(
        501,
        "Not supported",
        f"This server does not implement {what}. It implements runs, traces, threads, projects, feedback, datasets, "
        "examples, experiments and share links of LangSmith. Nothing was changed.",
    )


@cache
def unsupported_routers() -> tuple[APIRouter, ...]:
    router = LazyRouter(include_in_schema=False)
    for root in _ROOTS:
        for path in (f"/{root}", f"/{root}/{{path:path}}"):
            router.add_route(path, unserved, methods=_METHODS)
    for prefix in (PREFIXES[1], "/api/v2"):
        router.add_route(f"{prefix}/{{path:path}}", unserved, methods=_METHODS)
    return (router,)
