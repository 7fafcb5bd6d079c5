"""Clients, timeouts, status meanings, content helpers of HTTP providers."""

import asyncio
import json
import operator
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from lockstitch.engine.ports.provider import INVALID_JSON, Chunk, ErrorKind, PieceKind, ProviderError, Response
from lockstitch.errors import Refused
from lockstitch.model import Json, Message, codec
from lockstitch.model.message import blocks

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
        for item in (client, self._unused):
            if item is not None:
                await item.close()
        self._unused = None


class Reply(Protocol):
    """An answer put together from events; LookupError, TypeError and ValueError mean that these cannot be right."""

    def feed(self, event: Json) -> Iterator[Chunk]: ...

    def response(self) -> Response: ...


async def streamed(
    call: AbstractAsyncContextManager[Any],
    stream_type: type[Any],
    reply: Reply,
    *,
    timeout: float,
    raw_events: bool,
) -> AsyncGenerator[Chunk | Response, None]:
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
                yield Chunk("raw", data=event)
            for chunk in reply.feed(event):
                yield chunk
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
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return max(0.0, seconds)
    return _seconds_until(text) if text else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
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


def parse_input(text: str) -> Json:
    """A call's arguments; the INVALID_JSON marker when they are no JSON object or cannot be kept exactly."""
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text)
        codec.dumps(value)
    except (ValueError, RecursionError, Refused):
        return {INVALID_JSON: parse_json_arguments(text)}
    return cast("Json", value) if isinstance(value, dict) else {INVALID_JSON: parse_json_arguments(text)}


def write_input(value: Any) -> str:
    """Arguments as the text of a call: what the model wrote when that was no JSON, else compact JSON."""
    if isinstance(value, dict) and set(cast("Json", value)) == {INVALID_JSON}:
        return str(cast("Json", value)[INVALID_JSON])
    return codec.dumps(value).decode()


def parse_json_arguments(text: str) -> str:
    """Text whose surrogates, which a stream may bring one by one, are joined; what stays alone is replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def with_unique_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a request so that no two calls in it have the same id.

    Servers that number their calls from 0 in each response repeat ids, and the record keeps them. The Anthropic API
    rejects a request with a repeated id, and no API allows it within one response. The first call keeps its id. Later
    calls get a number behind it, and so do their results. Only the messages before a call decide about its id, so the
    prefix of a conversation stays the same while it grows.
    """
    counts: dict[str, int] = {}
    used: set[str] = set()
    values: dict[str, list[str]] = {}
    """The new ids of the last calls with an id whose results are still to come."""
    return [_renamed(message, counts, used, values) for message in messages]


def _renamed(message: Message, counts: dict[str, int], used: set[str], values: dict[str, list[str]]) -> Message:
    content: Any = message.get("content")
    if not isinstance(content, list):
        return message
    parts: list[Any] = []
    fresh: set[str] = set()
    for part in cast("list[Any]", content):
        block = cast("Json", part) if isinstance(part, dict) else {}
        if block.get("type") == "tool_use":
            known = new = str(block.get("id"))
            while new in used:
                counts[known] = counts.get(known, 1) + 1
                new = f"{known}_{counts[known]}"
            used.add(new)
            values[known] = [*values[known], new] if known in fresh else [new]
            fresh.add(known)
            parts.append(part if new == known else {**block, "id": new})
        elif block.get("type") == "tool_result" and (names := values.get(str(block.get("tool_use_id")))):
            new = names.pop(0) if len(names) > 1 else names[0]
            parts.append(part if new == block["tool_use_id"] else {**block, "tool_use_id": new})
        else:
            parts.append(part)
    return message if all(map(operator.is_, parts, cast("list[Any]", content))) else {**message, "content": parts}


def piece_of(block: Json) -> Chunk | None:
    """The piece that tells of a complete block, if it is a call or a result."""
    kind = str(block.get("type", ""))
    piece_kind: PieceKind
    if kind == "tool_use":
        piece_kind = "tool_call"
    elif kind.endswith("tool_use"):
        piece_kind = "server_tool_call"
    elif kind.endswith("tool_result"):
        piece_kind = "server_tool_result"
    else:
        return None
    return Chunk(piece_kind, data=block)


def result_parts(block: Json) -> list[Json]:
    """The content of a tool_result as blocks; a value that is neither text nor blocks is its JSON."""
    content: Any = block.get("content")
    if content is None or content == "":
        return []
    if isinstance(content, str) or _are_blocks(content):
        return blocks({"content": content})
    return [{"type": "text", "text": codec.dumps(content).decode()}]


def _are_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) for part in cast("list[Any]", content))


def document_text(block: Json) -> str | None:
    """The text of a document that is text, under its title; None of any other document."""
    source: Json = block.get("source") or {}
    if source.get("type") == "text":
        text = str(source.get("data", ""))
    elif source.get("type") == "content":
        parts = blocks({"content": source.get("content")})
        text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    else:
        return None
    title = block.get("title")
    return f"{title}\n\n{text}" if title else text


def data_url(source: Json) -> str:
    return f"data:{source.get('media_type', 'application/octet-stream')};base64,{source.get('data', '')}"
