"""`Connection`: HTTP requests, event streams that reconnect, and errors from problem+json."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast
from urllib.parse import quote

import httpx2

from lockstitch import errors
from lockstitch.client.models import StreamEvent
from lockstitch.errors import (
    Conflict,
    LockstitchError,
    NotFound,
    Refused,
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
    503: StoreUnreachable,
    507: StoreError,
}


def error_from_response(status: int, body: bytes) -> LockstitchError:
    """Return the error for a response that is not a success."""
    problem = _problem(body)
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    named: Any = getattr(errors, title, None) if title.isidentifier() else None
    if isinstance(named, type) and issubclass(named, LockstitchError):
        exact = conflict_class(problem.get("reason"))
        return exact(detail) if exact is not None and issubclass(exact, named) else named(detail)
    kind = _BY_STATUS.get(status, LockstitchError)
    return kind(f"{title}. {detail}".strip(". ") + "." if title or detail else f"The server returned status {status}.")


def unreachable(url: object, exc: httpx2.HTTPError) -> StoreUnreachable:
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
        self.url = url.rstrip("/")
        self._reached = False
        """True if the server has answered once. Then streams wait for it to return."""
        self._http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)

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
        patient: bool = False,
    ) -> Any:
        """Send a request and return the JSON of the response. `patient` disables the read timeout, for whole runs."""
        options: dict[str, Any] = {"params": _sent(parameters or {}) or None}
        if body is not None:
            options |= {"content": codec.dumps(body), "headers": {"Content-Type": "application/json"}}
        if patient:
            options["timeout"] = httpx2.Timeout(10.0, read=None)
        try:
            answer = await self._http.request(method, path, **options)
        except httpx2.HTTPError as exc:
            raise unreachable(self.url, exc) from exc
        self._reached = True
        if not answer.is_success:
            raise error_from_response(answer.status_code, answer.content)
        return codec.loads(answer.content)

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

    async def _stream(self, path: str, after: int, parameters: Mapping[str, Any]) -> AsyncGenerator[StreamEvent]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        timeout = httpx2.Timeout(10.0, read=SILENCE)
        try:
            async with self._http.stream(
                "GET", path, params=_sent(parameters) or None, headers=headers, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise error_from_response(answer.status_code, await answer.aread())
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
