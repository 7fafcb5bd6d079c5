"""LangSmith's protocol for reading, for datasets and for experiments: routes and JSON objects."""

from copy import copy
from functools import cache

from fastapi import APIRouter
from fastapi.routing import APIRoute
from fastapi.utils import generate_unique_id
from starlette.routing import compile_path

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

_V1 = "/v1"


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return the routers: the API v1 at each of its prefixes, and the API v2."""
    at_root = APIRouter(tags=["langsmith"], default_response_class=ExactJSON)
    for module in (runs, sessions, feedback, shares, experiments, attachments):
        module.add_routes(at_root)
    # Clients add `/v1` to an address that does not have it.
    datasets.add_routes(at_root, f"{_V1}/platform")
    below = APIRouter()
    below.routes.extend(_at_prefix(route, PREFIXES[1]) for route in at_root.routes if isinstance(route, APIRoute))
    return (at_root, below, v2.router())


def _at_prefix(route: APIRoute, prefix: str) -> APIRoute:
    """Return a copy of a route at a prefix. FastAPI does not analyze its parameters again, which would take a while."""
    copied = copy(route)
    copied.path = prefix + route.path.removeprefix(_V1)
    copied.path_regex, copied.path_format, copied.param_convertors = compile_path(copied.path)
    copied.unique_id = generate_unique_id(copied)
    return copied
