"""What LangSmith has and this server has not: said clearly, so that nobody looks for a mistake of their own."""

from typing import Final

from fastapi import APIRouter, Request

from lockstitch.server.ingest.langsmith import PREFIXES
from lockstitch.server.problems import Problem

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
