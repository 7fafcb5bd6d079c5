"""Failures: what a server says went wrong, as the error that the store itself would raise."""

from typing import Any, Final, cast

import httpx2

from lockstitch import errors
from lockstitch.errors import Conflict, LockstitchError, NotFound, Refused, StoreError, StoreUnreachable
from lockstitch.records import Json, codec

_BY_STATUS: Final[dict[int, type[LockstitchError]]] = {
    401: Refused,
    403: Refused,
    404: NotFound,
    409: Conflict,
    413: Refused,
    422: Refused,
    503: StoreUnreachable,
    507: StoreError,
}


def failure(status: int, body: bytes) -> LockstitchError:
    """The error of an answer that is no success."""
    problem = _problem(body)
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    named: Any = getattr(errors, title, None) if title.isidentifier() else None
    if isinstance(named, type) and issubclass(named, LockstitchError):
        return named(detail)
    kind = _BY_STATUS.get(status, LockstitchError)
    return kind(f"{title}. {detail}".strip(". ") + "." if title or detail else f"The server answered {status}.")


def unreachable(url: object, exc: httpx2.HTTPError) -> StoreUnreachable:
    return StoreUnreachable(f"The server at {url} does not answer: {str(exc) or type(exc).__name__}.")


def _problem(body: bytes) -> Json:
    try:
        found: Any = codec.loads(body)
    except ValueError:
        return {}
    return cast("Json", found) if isinstance(found, dict) else {}
