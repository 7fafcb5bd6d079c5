"""LangSmith's protocol for reading, for datasets and for experiments: routes and JSON objects."""

from functools import cache

from fastapi import APIRouter

from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.ingest.langsmith import (
    attachments,
    datasets,
    experiments,
    feedback,
    runs,
    sessions,
    shares,
    v2,
)
from lockstitch.server.ingest.langsmith_write import PREFIXES


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return the routers: the API v1 at each of its prefixes, and the API v2."""
    return (*map(_router, PREFIXES), v2.router())


def _router(prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["langsmith"], default_response_class=ExactJSON)
    for module in (runs, sessions, feedback, shares, experiments, attachments):
        module.add_routes(router)
    # Clients add `/v1` to an address that does not have it.
    datasets.add_routes(router, "/platform" if prefix else "/v1/platform")
    return router
