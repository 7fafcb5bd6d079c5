"""LangSmith's write protocol; routes this server does not offer.

Whatever comes is taken; what it says is worked out later. A client that is refused throws away what it has, so there is
no 4xx here but for tokens and for bodies beyond all bounds.
"""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from lockstitch.server.api import responses
from lockstitch.server.auth import Ingester
from lockstitch.server.ingest.accept import accept
from lockstitch.server.ingest.body_reader import LANGSMITH, OTEL
from lockstitch.server.ingest.otlp import EXPORTED, answer
from lockstitch.server.problems import Problem

PREFIXES: Final = ("", "/api/v1")

INFO: Final[dict[str, Any]] = {
    # What newer clients ask of a server's version before they use what came with it.
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
    "instance_flags": {"zstd_compression_enabled": True, "gzip_body_enabled": True},
}

_TAKEN: Final = {"message": "Kept; it is in the record soon."}


async def info() -> JSONResponse:
    """What this server can do, as LangSmith's clients ask before they send anything."""
    return JSONResponse(INFO)


async def take(request: Request, caller: Ingester) -> JSONResponse:
    """Take in whatever LangSmith's clients send: runs, changes of runs, batches, multipart bodies, feedback."""
    await accept(request, caller, LANGSMITH)
    return JSONResponse(_TAKEN, 202)


async def take_run(request: Request, caller: Ingester, run_id: str) -> JSONResponse:
    """Take in what is new about one run."""
    return await take(request, caller)


async def take_feedback(request: Request, caller: Ingester, feedback_id: str) -> JSONResponse:
    """Take in what is new about one remark."""
    return await take(request, caller)


async def take_spans(request: Request, caller: Ingester) -> Response:
    """Take in OpenTelemetry, which LangSmith's client sends when it is told to trace that way."""
    return answer(request, await accept(request, caller, OTEL))


def routers() -> tuple[APIRouter, ...]:
    return tuple(map(_router, PREFIXES))


def _router(prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["langsmith"])
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
"""Where LangSmith's API has its parts. At the root of a server only these are answered for."""


async def unserved(request: Request, path: str = "") -> None:
    """Tell that this part of LangSmith is not here."""
    what = f"{request.method} {request.url.path}"
    raise Problem(
        501,
        "Not served",
        f"{what} is a part of LangSmith that this server has not. It takes runs and feedback, and reads runs and "
        "projects back; datasets, prompts, annotation queues and the rest stay with LangSmith.",
    )


def unsupported_routers() -> tuple[APIRouter, ...]:
    router = APIRouter(include_in_schema=False)
    for root in _ROOTS:
        for path in (f"/{root}", f"/{root}/{{path:path}}"):
            router.add_api_route(path, unserved, methods=_METHODS)
    router.add_api_route(f"{PREFIXES[1]}/{{path:path}}", unserved, methods=_METHODS)
    return (router,)
