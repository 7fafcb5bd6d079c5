"""`RequestGuard`: host, origin and size checks, security headers, access log and metrics of requests.

It is a plain ASGI middleware, so it does not buffer streams.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstitch.model import new_id
from lockstitch.server.problems import Problem, answer
from lockstitch.server.settings import LOOPBACK, Settings

BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds of the latency histogram, in seconds."""

_OTHER: Final = "other"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Counts requests by route and status, and their durations."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        # Only known routes and methods become labels. Otherwise clients could create labels without limit.
        where = route or _OTHER
        self._requests[(method if method in _METHODS else _OTHER, where, status)] += 1
        self._seconds[where] += seconds  # pyright: ignore[reportArgumentType]
        for bound in BUCKETS:
            if seconds <= bound:
                self._within[(where, bound)] += 1

    def text(self, gauges: Mapping[str, tuple[str, Iterable[tuple[Mapping[str, str], float]]]]) -> str:
        """Return the metrics as Prometheus text. `gauges` maps a name to its help and its values by label."""
        lines = [
            "# HELP lockstitch_requests_total Number of answered requests.",
            "# TYPE lockstitch_requests_total counter",
        ]
        for (method, route, status), number in sorted(self._requests.items()):
            labels = {"method": method, "route": route, "status": str(status)}
            lines.append(f"lockstitch_requests_total{_labels(labels)} {number}")
        lines += ["# HELP lockstitch_request_seconds Seconds until the end of the response, including streams."]
        lines += ["# TYPE lockstitch_request_seconds histogram"]
        for route in sorted(self._seconds):
            total = sum(number for (_, where, _), number in self._requests.items() if where == route)
            for bound in BUCKETS:
                labels = {"route": route, "le": f"{bound:g}"}
                lines.append(f"lockstitch_request_seconds_bucket{_labels(labels)} {self._within[(route, bound)]}")
            lines.append(f"lockstitch_request_seconds_bucket{_labels({'route': route, 'le': '+Inf'})} {total}")
            lines.append(f"lockstitch_request_seconds_sum{_labels({'route': route})} {self._seconds[route]:.6f}")
            lines.append(f"lockstitch_request_seconds_count{_labels({'route': route})} {total}")
        for name, (description, values) in gauges.items():
            lines += [f"# HELP {name} {description}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in values]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


_FIELDS: Final = "fields"


def fields(**named: Any) -> dict[str, Any]:
    """Return the `extra` argument of a log call that adds these fields to its line."""
    return {_FIELDS: named}


class JsonLogFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to(stream: TextIO) -> Generator[None]:
    """Write the log of Lockstitch to a stream while the context is open."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLogFormatter())
    logger = logging.getLogger("lockstitch")
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)


CSP: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Pages can load only files of this server, so stored content cannot run scripts."""

HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger("lockstitch.access")

about: ContextVar[dict[str, Any] | None] = ContextVar("about", default=None)
"""Additional fields of the access log line of the current request, such as thread and run ids."""


def add_log_fields(**ids: Any) -> None:
    """Add fields to the access log line of the current request."""
    known = about.get()
    if known is not None:
        known.update({name: str(value) for name, value in ids.items() if value is not None})


class RequestGuard:
    """Rejects invalid requests before they reach a route, and logs every request."""

    def __init__(self, app: ASGIApp, *, settings: Settings, figures: RequestMetrics) -> None:
        self._app = app
        self._settings = settings
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(new_id())
        body: dict[str, Any] = {}
        token = about.set(body)
        began = time.monotonic()
        method, status = scope["method"], 0
        if method == "HEAD":
            # Routes answer GET. The response to HEAD has the same headers and no body.
            scope = {**scope, "method": "GET"}

        async def leave(message: Message) -> None:
            nonlocal status
            if method == "HEAD" and message["type"] == "http.response.body":
                if message.get("more_body"):
                    running.cancel()
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Request-Id"] = request_id
            await send(message)
            if method == "HEAD":
                await send({"type": "http.response.body", "body": b""})

        try:
            problem = self._wrong(scope)
            with anyio.CancelScope() as running:
                if problem is not None:
                    await answer(Request(scope), problem)(scope, receive, leave)
                else:
                    await self._app(scope, self._measured(scope, receive), leave)
        finally:
            about.reset(token)
            seconds = time.monotonic() - began
            self._figures.count(method, getattr(scope.get("route"), "path", None), status, seconds)
            path = scope["path"]
            # The token of a share link is a secret.
            if link := scope.get("path_params", {}).get("token"):
                path = path.replace(str(link), "…")
            line = {"method": method, "path": path, "status": status, "ms": round(seconds * 1000, 1)}
            _log.info("request", extra=fields(**line, request=request_id, **body))

    def _wrong(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if not self._known(host):
            return Problem(
                421, "Unknown host name", f"The host {host or '(none)'} is not allowed. Add it with --host-name."
            )
        if scope["method"] not in _SAFE and not _same_origin(headers):
            return Problem(403, "Cross-site request", "Requests from pages of other sites are not allowed.")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._settings.body_limit:
            return _too_large(self._settings.body_limit)
        return None

    def _known(self, host: str) -> bool:
        if host in LOOPBACK or host in self._settings.hosts:
            return True
        # With tokens, another host name is harmless because it has no cookie. So only an explicit list restricts.
        return self._settings.tokens_needed and not self._settings.hosts

    def _measured(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that limits the size of the body, and the time for its next part and for all of it."""
        received = 0
        is_complete = False
        settings = self._settings
        clock = asyncio.get_running_loop().time
        began = clock()

        async def measured() -> Message:
            nonlocal received, is_complete
            if is_complete:
                # The body is complete. The next message is the disconnect, for which streams wait without a limit.
                return await receive()
            # Otherwise a slow client could keep the connection forever.
            whole_by = began + settings.body_seconds + received / settings.body_rate
            try:
                async with asyncio.timeout_at(min(clock() + settings.body_seconds, whole_by)):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "Request timeout", "The request body was not received in time.") from None
            received += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if received > settings.body_limit:
                raise _too_large(settings.body_limit)
            return message

        return measured


def _too_large(limit: int) -> Problem:
    return Problem(413, "Too large", f"A request body has at most {limit:,} bytes.")


def _same_origin(headers: Headers) -> bool:
    """True if the request does not come from a page of another site. Only browsers send these headers."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


def _name(host: str) -> str:
    """Return the name of a Host header without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
