"""What every provider over HTTP needs: a client per event loop, a limit on silence, and the meaning of a status."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from lockstitch.records import Json
from lockstitch.runtime.provider import ErrorKind, Piece, ProviderError, Response

CONNECT_SECONDS: Final = 10.0
DOWNLOAD_SECONDS: Final = 600.0

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class Closable(Protocol):
    async def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)
Event = TypeVar("Event")


class Clients(Generic[Client]):
    """One SDK client per event loop, since a pool of connections cannot cross from one loop to another."""

    def __init__(self, make: Callable[[], Client]) -> None:
        """Makes the first client at once, so that what is missing is told before it is needed."""
        self._make = make
        self._unused: Client | None = make()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    def get(self) -> Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._unused or self._make()
            self._unused = None
        return client

    async def close(self) -> None:
        """Close what the running loop uses; a loop that ended has closed its connections itself."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        for one in (client, self._unused):
            if one is not None:
                await one.close()
        self._unused = None


class Reply(Protocol):
    """An answer put together from events; LookupError, TypeError and ValueError mean that these cannot be right."""

    def feed(self, event: Json) -> Iterator[Piece]: ...

    def response(self) -> Response: ...


async def streamed(
    call: AbstractAsyncContextManager[Any],
    stream_type: type[Any],
    reply: Reply,
    *,
    timeout: float,
    raw_events: bool,
) -> AsyncGenerator[Piece | Response, None]:
    """Enter a call of an SDK, read its events as plain JSON, and end the connection however reading ends.

    Plain, because what an SDK does not know yet must go back to its provider verbatim too.
    """
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(timeout):
            with sending():
                answer = await stack.enter_async_context(call)
            events: AsyncIterator[Json] = await answer.parse(to=stream_type)
        async for event in await stack.enter_async_context(aclosing(within(timeout, events))):
            if raw_events:
                yield Piece("raw", data=event)
            for piece in reply.feed(event):
                yield piece
    yield reply.response()


@contextmanager
def sending() -> Generator[None]:
    """Whatever is wrong with a request before it is sent is wrong for good."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise ProviderError(f"This request cannot be sent: {type(exc).__name__}: {exc}", "request") from exc


async def within(seconds: float, events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """The events, or TimeoutError as soon as none came for so long. The time a reader takes does not count."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                event = await anext(events)
        except StopAsyncIteration:
            return
        yield event


def check_url(base_url: str | None) -> str | None:
    """A base URL as it is, if it can be one."""
    if base_url is not None and not (base_url.startswith(("http://", "https://")) and urlsplit(base_url).hostname):
        raise ProviderError(f"{base_url!r} is no base URL: it begins with http:// or https:// and a host.", "setup")
    return base_url


def is_local(base_url: str | None) -> bool:
    """Whether a base URL is on this machine, where servers often ask for no key."""
    return base_url is not None and urlsplit(base_url).hostname in _LOCAL


def kind_of_status(status: int, headers: Mapping[str, str]) -> ErrorKind:
    """What an HTTP status says about trying again; a provider's own word on it (x-should-retry) wins."""
    kind = _kind_of_status(status)
    if headers.get("x-should-retry") == "false" and kind not in ("auth", "request"):
        return "request"
    return kind


def _kind_of_status(status: int) -> ErrorKind:
    match status:
        case 401 | 403:
            return "auth"
        case 408 | 504:
            return "timeout"
        case 429:
            return "rate_limit"
        case 503 | 529:
            return "overloaded"
        case 499:
            return "connection"
        case 409:
            # Both SDKs try this again: another request holds a lock for a moment.
            return "server"
        case _:
            return "server" if status >= 500 else "request"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a provider asks us to wait, which it may say in milliseconds, in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is not None:
        return max(0.0, seconds)
    return _seconds_until(said) if said else None


def _number(said: str | None) -> float | None:
    try:
        number = float(said) if said else None
    except ValueError:
        return None
    return number if number is not None and number < float("inf") else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def merged(body: dict[str, Any], api_kwargs: Mapping[str, Any], nested: tuple[str, ...]) -> dict[str, Any]:
    """The body with a caller's own parameters, which win; those named in `nested` are merged one level deep."""
    result = {**body, **api_kwargs}
    for name in nested:
        ours, theirs = body.get(name), api_kwargs.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            result[name] = {**ours, **theirs}
    return result
