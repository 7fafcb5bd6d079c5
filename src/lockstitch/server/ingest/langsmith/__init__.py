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
from lockstitch.server.routing import LazyRoute, LazyRouter

_V1 = "/v1"


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return the routers: the API v1 at each of its prefixes, and the API v2."""
    at_root = LazyRouter(tags=["langsmith"], default_response_class=ExactJSON)
    for module in (runs, sessions, feedback, shares, experiments, attachments):
        module.add_routes(at_root)
    # Clients add `/v1` to an address that does not have it.
    datasets.add_routes(at_root, f"{_V1}/platform")
    below = LazyRouter()
    routes = (route for route in at_root.routes if isinstance(route, LazyRoute))
    below.routes.extend(route.at(PREFIXES[1] + route.path.removeprefix(_V1)) for route in routes)
    return (at_root, below, v2.router())
