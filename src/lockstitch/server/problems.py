"""`Problem`: errors as application/problem+json, or as a page for browsers."""

import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from lockstitch.errors import (
    BodyTooExpensive,
    Conflict,
    LockstitchError,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreError,
    StoreFull,
    StoreUnreachable,
    Unreadable,
)
from lockstitch.model import Json, codec
from lockstitch.server import otlp_responses

_STATUS: Final[tuple[tuple[type[LockstitchError], int], ...]] = (
    (Refused, 422),
    (NotFound, 404),
    (Unreadable, 422),
    (BodyTooExpensive, 413),
    (Conflict, 409),
    (OutcomeUnknown, 503),
    (StoreUnreachable, 503),
    (StoreFull, 507),
    (StoreError, 503),
)

_AGAIN: Final = "2"
"""Value of Retry-After in seconds while the store is unreachable."""

_log = logging.getLogger("lockstitch.server")


class Problem(StarletteHTTPException):
    """An error response: a status, a title and a detail text.

    It derives from Starlette's exception, because FastAPI passes that on unchanged, also while it reads a body.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        reason: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.headers: dict[str, str] = headers or {}
        super().__init__(status, detail, self.headers)
        self.status = status
        self.title = title
        self.reason = reason
        """The class of a conflict, as `Conflict.reason` names it."""


ProblemPage = Callable[[Request, Problem], Response]
"""Renders a problem as a page."""


def handle(app: FastAPI, page: ProblemPage) -> None:
    """Register the error handlers of an app. `page` renders problems for browsers."""
    app.state.problem_page = page
    for kind in (Problem, LockstitchError, StarletteHTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)


def problem_of(exc: Exception) -> Problem:
    if isinstance(exc, Problem):
        return exc
    if isinstance(exc, LockstitchError):
        status = next((status for kind, status in _STATUS if isinstance(exc, kind)), 500)
        headers = {"Retry-After": _AGAIN} if status == 503 else {}
        reason = exc.reason if isinstance(exc, Conflict) else None
        return Problem(status, exc.wire_name, str(exc), reason=reason, headers=headers)
    if isinstance(exc, RequestValidationError):
        return Problem(422, "Refused", "; ".join(_wrong(error) for error in exc.errors()))
    if isinstance(exc, HTTPException | StarletteHTTPException):
        return Problem(exc.status_code, str(exc.detail), headers=dict(exc.headers or {}))
    return Problem(500, "Internal error", "See the server log for details.")


def as_json(problem: Problem) -> Json:
    # The texts can quote lone surrogates from the request, which UTF-8 cannot encode.
    title, detail = (text.encode(errors="replace").decode() for text in (problem.title, problem.detail))
    reason = {"reason": problem.reason} if problem.reason else {}
    return {"type": "about:blank", "title": title, "status": problem.status, "detail": detail, **reason}


async def _answer(request: Request, exc: Exception) -> Response:
    problem = problem_of(exc)
    if problem.status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=exc)
    return answer(request, problem)


def answer(request: Request, problem: Problem) -> Response:
    """Return a problem as a page for browsers, else as JSON. Browsers without a token are redirected to the login."""
    if problem.status == 401:
        _ask_for_token(request, problem)
    if otlp_responses.is_otlp(request):
        value = as_json(problem)
        return otlp_responses.status(request, problem.status, f"{value['title']}: {value['detail']}", problem.headers)
    if _reads_pages(request):
        page: ProblemPage = request.app.state.problem_page
        return page(request, problem)
    body = codec.dumps(as_json(problem))
    return Response(body, problem.status, problem.headers, media_type="application/problem+json")


def _reads_pages(request: Request) -> bool:
    """True if a browser loads a page or submits a form without JavaScript."""
    if "text/html" not in request.headers.get("accept", ""):
        return False
    content_type = request.headers.get("content-type", "")
    return request.method == "GET" or content_type.startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    )


def _ask_for_token(request: Request, problem: Problem) -> None:
    """Redirect a browser to the login. Programs get the status 401."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    if request.headers.get("hx-request") == "true":
        here = urlsplit(request.headers.get("hx-current-url", ""))
        requested = "HX-Redirect"
    else:
        here, requested = urlsplit(str(request.url)), "Location"
        path = here.path.removeprefix(base)
        if request.method != "GET" or "text/html" not in request.headers.get("accept", "") or path.startswith("/api/"):
            return
        problem.status = 303
    wanted = here.path.removeprefix(base) + (f"?{here.query}" if here.query else "")
    problem.headers = {**problem.headers, requested: f"{base}/login?{urlencode({'next': wanted})}"}


def _wrong(error: Any) -> str:
    place = ".".join(str(part) for part in error.get("loc", ()) if part not in ("body", "query", "path"))
    return f"{place}: {error.get('msg')}" if place else str(error.get("msg"))
