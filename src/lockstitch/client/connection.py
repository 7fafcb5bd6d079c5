"""`Connection`: HTTP requests, event streams that reconnect, and errors from problem+json."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID

import httpx2

from lockstitch import errors
from lockstitch.client.models import StreamEvent
from lockstitch.errors import (
    Conflict,
    LockstitchError,
    NotFound,
    Refused,
    SchemaMismatch,
    StoreError,
    StoreUnreachable,
    conflict_class,
)
from lockstitch.model import Json, Stitch, codec, format_time

_BY_STATUS: Final[dict[int, type[LockstitchError]]] = {
    401: Refused,
    403: Refused,
    404: NotFound,
    409: Conflict,
    413: Refused,
    422: Refused,
    502: StoreUnreachable,
    503: StoreUnreachable,
    504: StoreUnreachable,
    507: StoreError,
}


def error_from_response(status: int, body: bytes, *, url: str = "", path: str = "") -> LockstitchError:
    """Return the error for a response that is not a success. `url` is that of the server, without secrets."""
    problem = _problem(body)
    if _is_unknown_route(path, status, problem):
        return SchemaMismatch(
            f"The server at {url} has no route {path.partition('?')[0]}. Check the URL, and that the server is not "
            "older than this client."
        )
    if 300 <= status < 400:
        return StoreError(f"The server at {url} redirects to another address. Use that URL.")
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    named: Any = getattr(errors, title, None) if title.isidentifier() else None
    if isinstance(named, type) and issubclass(named, LockstitchError):
        exact = conflict_class(problem.get("reason"))
        return exact(detail) if exact is not None and issubclass(exact, named) else named(detail)
    kind = _BY_STATUS.get(status, LockstitchError)
    if not title and not detail:
        return kind(f"The server at {url} returned status {status}.")
    text = f"{title}. {detail}".strip(". ") + "."
    return kind(f"The server at {url} answered: {text}" if status in (401, 403) else text)


def _is_unknown_route(path: str, status: int, problem: Json) -> bool:
    """True if the server does not have the route. A key with a slash in a path also looks like an unknown route."""
    known = bool(problem) and (problem.get("title") not in ("Not Found", "Method Not Allowed") or problem.get("detail"))
    return status in (404, 405) and not known and "%2F" not in path


def shown_url(url: str) -> str:
    """Return a URL without user, password and query, for messages."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")).rstrip("/")


def unreachable(url: object, exc: Exception) -> StoreUnreachable:
    return StoreUnreachable(f"The server at {url} does not answer: {str(exc) or type(exc).__name__}.")


def _problem(body: bytes) -> Json:
    try:
        result: Any = codec.loads(body)
    except ValueError:
        return {}
    return cast("Json", result) if isinstance(result, dict) else {}


SILENCE: Final = 45.0
"""Seconds without data after which a stream counts as broken. A server sends something more often."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two reconnects: the first pause and the longest."""


class Connection:
    """Sends requests to a server and raises its errors as Lockstitch errors."""

    def __init__(self, url: str, token: str | None, project: str | None, timeout: float) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if project is not None:
            headers["Lockstitch-Project"] = project
        try:
            self.url = shown_url(url)
            """Address of the server, without secrets."""
            host, port = urlsplit(url).hostname, urlsplit(url).port
        except ValueError as exc:
            raise Refused(f"The URL of the server is not valid: {exc}.") from exc
        if not host or port == 0:
            raise Refused(f"{self.url} is not the URL of a server. Use http://host:8765 or https://host.")
        self._reached = False
        """True if the server has answered once. Then streams wait for it to return."""
        # Loading certificates takes longer than most responses.
        verify = not url.lower().startswith("http://")
        base = url.partition("?")[0].rstrip("/")
        self._http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=timeout, verify=verify)

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, **parameters: Any) -> Any:
        return await self.ask("GET", path, parameters=parameters)

    async def post(self, path: str, body: Json | None = None, *, patient: bool = False) -> Any:
        return await self.ask("POST", path, body=body, patient=patient)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Json | None = None,
        content: bytes | None = None,
        patient: bool = False,
    ) -> Any:
        """Send a request and return the JSON of the response. `patient` disables the read timeout, for whole runs."""
        text = await self.read(method, path, parameters=parameters, body=body, content=content, patient=patient)
        try:
            return codec.loads(text)
        except ValueError as exc:
            raise StoreError(f"The answer of {self.url} is not JSON. Check that it is the URL of a server.") from exc

    async def read(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Json | None = None,
        content: bytes | None = None,
        patient: bool = False,
    ) -> bytes:
        """Send a request with a JSON body or other content, and return the content of the response. See `ask`."""
        options: dict[str, Any] = {"params": _sent(parameters or {}) or None}
        if content is not None:
            options |= {"content": content, "headers": {"Content-Type": "text/plain"}}
        if body is not None:
            options |= {"content": codec.dumps(body), "headers": {"Content-Type": "application/json"}}
        if patient:
            options["timeout"] = httpx2.Timeout(10.0, read=None)
        try:
            answer = await self._http.request(method, path, **options)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            raise unreachable(self.url, exc) from exc
        self._reached = True
        if not answer.is_success:
            raise error_from_response(answer.status_code, answer.content, url=self.url, path=path)
        return answer.content

    async def follow(self, path: str, after: int, **parameters: Any) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a thread after a position until it ends. Reconnect as often as needed.

        Raises `StoreUnreachable` only if the server never answered. Otherwise it waits for the server to return.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._stream(path, after, parameters)) as events:
                    async for event in events:
                        pause, after = FIRST_PAUSE, event.position
                        yield event
                        if event.type == "end":
                            return
            except StoreUnreachable:
                if not self._reached:
                    raise
            # The connection broke, or the server shut down. Reconnect in both cases.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def stitches(self, path: str, **parameters: Any) -> AsyncGenerator[Stitch]:
        """Yield the stitches of a stream without positions. Raises `StoreUnreachable` when the server ends it."""
        async with aclosing(self._stream(path, 0, parameters)) as events:
            async for event in events:
                if event.stitch is not None:
                    yield event.stitch
        raise StoreUnreachable(f"The server at {self.url} ended the stream.")

    async def _stream(self, path: str, after: int, parameters: Mapping[str, Any]) -> AsyncGenerator[StreamEvent]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        timeout = httpx2.Timeout(10.0, read=SILENCE)
        try:
            async with self._http.stream(
                "GET", path, params=_sent(parameters) or None, headers=headers, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise error_from_response(answer.status_code, await answer.aread(), url=self.url, path=path)
                self._reached = True
                async for event in _events(answer, after):
                    yield event
        except httpx2.HTTPError as exc:
            raise unreachable(self.url, exc) from exc


async def _events(answer: httpx2.Response, position: int) -> AsyncGenerator[StreamEvent]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields and "event" in fields:
            data: Json = codec.loads(fields["data"])
            stitch = Stitch.from_json(data) if fields["event"] == "stitch" else None
            position = stitch.position if stitch is not None else position
            yield StreamEvent(cast("Any", fields["event"]), data, position, stitch)
            fields = {}
        else:
            fields = {}


def part(value: object) -> str:
    """Quote a value as one segment of a path."""
    return quote(str(value), safe="")


def _sent(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters as query values. Parameters that are None are omitted."""
    return {name: _plain(value) for name, value in parameters.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return format_time(value) if hasattr(value, "tzinfo") else value


def without_none(**values: Any) -> Json:
    """Return the values that are set, as JSON."""
    return {name: as_json(value) for name, value in values.items() if value is not None}


def as_json(value: Any) -> Any:
    """Return a value of a request as JSON: times and ids are text."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
