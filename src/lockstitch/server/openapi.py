"""`document()`: the OpenAPI document of a server, with the problems that each operation can return.

Routes describe their successful responses. The problems depend on the route: it needs a token, has a body or writes.
This module adds them. A route that returns other problems names them in `responses`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse

from lockstitch.model import Json

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_ALWAYS: Final = (400, 421)
_WITH_CALLER: Final = (401, 403, 404, 409, 422, 503)
_WITH_BODY: Final = (403, 408, 413, 422)
_WRITES: Final = (507,)

_SCHEMA: Final[Json] = {
    "title": "Problem",
    "type": "object",
    "description": "An error as defined in RFC 9457.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "reason": {"type": "string", "description": "The class of a conflict, such as `position` or `holder`."},
    },
    "required": ["type", "title", "status", "detail"],
}
_CONTENT: Final[Json] = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
    # Browsers get a page.
    "text/html": {"schema": {"type": "string"}},
}
_NO_HTTP: Final[Json] = {"text/plain": {"schema": {"type": "string"}}}
"""The response to an invalid HTTP request, such as one with a URL of more than 64 KB."""
_REPLACED: Final = ("HTTPValidationError", "ValidationError")
"""FastAPI's error schemas, which this server does not use."""


def document(app: FastAPI, routers: Sequence[APIRouter], path: str) -> None:
    """Serve the document at a path, with the problems of the operations of the routers."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = plain()
            _add_problems(routers, described)
            app.openapi_schema = described
        return app.openapi_schema

    async def serve(request: Request) -> JSONResponse:
        # Building it takes a second, so do it in a thread.
        described = await asyncio.to_thread(openapi)
        prefix = str(request.scope.get("root_path", "")).rstrip("/")
        return JSONResponse({**described, "servers": [{"url": prefix}]} if prefix else described)

    app.openapi = openapi
    app.add_route(path, serve, include_in_schema=False)


def _add_problems(routers: Sequence[APIRouter], described: Json) -> None:
    schemas: Json = described.setdefault("components", {}).setdefault("schemas", {})
    for name in _REPLACED:
        schemas.pop(name, None)
    schemas["Problem"] = _SCHEMA
    for path, method, route in _operations(routers):
        operation: Json = described["paths"][path][method.lower()]
        responses: Json = operation["responses"]
        for status in _statuses(route, method):
            responses[str(status)] = _problem(HTTPStatus(status).phrase, _NO_HTTP if status == 400 else {})
        for status, response in responses.items():
            if status >= "400" and "content" not in response:
                response |= _problem(response.get("description") or HTTPStatus(int(status)).phrase)


def _operations(routers: Sequence[APIRouter]) -> Iterator[tuple[str, str, APIRoute]]:
    for route in (route for router in routers for route in router.routes):
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield route.path_format, method, route


def _statuses(route: APIRoute, method: str) -> set[int]:
    statuses = {*_ALWAYS}
    if _needs_caller(route.dependant):
        statuses |= {*_WITH_CALLER}
    if method not in _SAFE:
        statuses |= {*_WITH_BODY, *_WRITES}
    own = {int(status) for status in route.responses if str(status).isdecimal()}
    return statuses - own


def _needs_caller(dependant: Dependant) -> bool:
    return any(
        hasattr(dependency.call, "scope_needed") or _needs_caller(dependency) for dependency in dependant.dependencies
    )


def _problem(description: str, other_content: Json | None = None) -> Json:
    return {"description": description, "content": {**_CONTENT, **(other_content or {})}}
