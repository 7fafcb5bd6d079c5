"""Shared parts of HTTP providers: clients, streams, timeouts, errors by status, and content blocks."""

import asyncio
import json
import operator
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from lockstitch.engine.ports.provider import INVALID_JSON, Chunk, ChunkKind, ErrorKind, ProviderError, Response
from lockstitch.errors import Refused
from lockstitch.model import Json, Message, codec
from lockstitch.model.message import blocks

CONNECT_SECONDS: Final = 10.0
DOWNLOAD_SECONDS: Final = 600.0

_LOCAL: Final = (".localhost", ".local", ".internal")
"""Suffixes of host names in a private network."""
_ANSWER_CHARACTERS: Final = 300
"""Maximum characters of an answer in an error."""


class Closable(Protocol):
    async def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)
Event = TypeVar("Event")


class Clients(Generic[Client]):
    """One SDK client per event loop, because a connection pool belongs to one loop."""

    def __init__(self, make: Callable[[], Client]) -> None:
        """Create the first client at once, so that a missing key raises before the first request."""
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
        """Close the client of the running loop. A loop that has ended has closed its connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        for open_client in (client, self._unused):
            if open_client is not None:
                await open_client.close()
        self._unused = None


class Reply(Protocol):
    """Builds a response from stream events. LookupError, TypeError and ValueError mean that the stream is not valid."""

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
    """Enter a call of an SDK, yield its chunks and the response, and close the connection in any case.

    Events are read as plain JSON, because fields that the SDK does not know must be sent back unchanged.
    """
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(timeout):
            with sending():
                answer = await stack.enter_async_context(call)
            if _media_type(answer.headers) in ("text/html", "application/json"):
                await _check_is_stream(answer)
            events: AsyncIterator[Json] = await answer.parse(to=stream_type)
        async for event in await stack.enter_async_context(aclosing(within(timeout, events))):
            if raw_events:
                yield Chunk("raw", data=event)
            for chunk in reply.feed(event):
                yield chunk
    yield reply.response()


async def _check_is_stream(answer: Any) -> None:
    """Raise `ProviderError` if the body of a successful answer is a page or a document. A page cannot become a stream
    by a retry, because another server sent it."""
    text: str = await answer.text()
    if text.lstrip().startswith(("data:", "event:", "id:", ":")):
        return
    kind: ErrorKind = "request" if _media_type(answer.headers) == "text/html" else "garbled"
    raise ProviderError(
        f"{rejection(str(answer.url), answer.status_code, text)} This is not a stream of events. Check the base URL.",
        kind,
        status=answer.status_code,
    )


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def rejection(url: str, status: int, body: str) -> str:
    """Return a sentence with the URL, the status and the first characters of an answer."""
    text = " ".join(body.split())
    excerpt = f"{text[:_ANSWER_CHARACTERS]}…" if len(text) > _ANSWER_CHARACTERS else text
    return f"{without_secrets(url)} answered with status {status}: {excerpt or '(empty)'}"


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def server_name(name: str, base_url: str | None) -> str:
    """Return the URL of a server for errors, or the name of the provider if it has the default URL."""
    return name if base_url is None else without_secrets(base_url)


def error_of(response: Any) -> str | None:
    """Return the error message in the body of a response of httpx, else the body, or None if it was not read."""
    try:
        text: str = response.text
    except RuntimeError:  # ResponseNotRead: an error in the middle of a stream
        return None
    try:
        body: Any = json.loads(text)
        message = body["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return text
    return message if isinstance(message, str) and message else text


def prefix_of(name: str | None, base_url: str | None, default: str) -> str:
    """Return the prefix of the model names of a provider object.

    Args:
        name: Prefix that the caller chose.
        base_url: Address of a server that is not the default one. Its host and port are the prefix if `name` is None,
            so that the models of two servers have different names.
        default: Prefix for the default server.

    Raises:
        ProviderError: Of kind `setup`, if the name is empty or has a colon, which ends the prefix.
    """
    if name is not None:
        if not name or ":" in name:
            raise ProviderError(f"{name!r} is not a name of a provider. Use a text without a colon.", "setup")
        return name
    if base_url is None:
        return default
    return urlsplit(base_url).netloc.rpartition("@")[2].replace(":", "-")


@contextmanager
def sending() -> Generator[None]:
    """Turn errors before a request is sent into permanent `ProviderError`s."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise ProviderError(f"The request cannot be sent: {type(exc).__name__}: {exc}", "request") from exc


async def within(seconds: float, events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """Yield the events. Raises `TimeoutError` if none arrives for `seconds`. The time of the reader does not count."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                event = await anext(events)
        except StopAsyncIteration:
            return
        yield event


def check_url(base_url: str | None) -> str | None:
    """Return the base URL unchanged. Raises `ProviderError` if it is not an HTTP URL."""
    if base_url is not None and not (base_url.startswith(("http://", "https://")) and urlsplit(base_url).hostname):
        raise ProviderError(
            f"{base_url!r} is not a base URL. It must start with http:// or https:// and a host.", "setup"
        )
    return base_url


def is_local(base_url: str | None) -> bool:
    """True if a base URL is on this machine or in a private network, where servers often need no key.

    Host names without a dot, such as `localhost` and those of containers, count as private.
    """
    host = urlsplit(base_url).hostname if base_url is not None else None
    if host is None:
        return False
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.endswith(_LOCAL)
    return address.is_private


def kind_of_status(status: int, headers: Mapping[str, str]) -> ErrorKind:
    """Return the kind of error of an HTTP status. The header x-should-retry has priority."""
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
            # Both SDKs retry this status: another request holds a lock.
            return "server"
        case _:
            return "server" if status >= 500 else "request"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait from the headers, which contain milliseconds, seconds or a date."""
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
    """Return the body with the parameters of the caller, which have priority. `nested` objects are merged."""
    result = {**body, **api_kwargs}
    for name in nested:
        ours, theirs = body.get(name), api_kwargs.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            result[name] = {**ours, **theirs}
    return result


def parse_input(text: str) -> Json:
    """Return the arguments of a call, or the INVALID_JSON marker if they are not a JSON object that can be stored."""
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text)
        codec.dumps(value)
    except (ValueError, RecursionError, Refused):
        return {INVALID_JSON: join_surrogates(text)}
    return cast("Json", value) if isinstance(value, dict) else {INVALID_JSON: join_surrogates(text)}


def write_input(value: Any) -> str:
    """Return the arguments as text: compact JSON, or the text of the model if that was not JSON."""
    if isinstance(value, dict) and set(cast("Json", value)) == {INVALID_JSON}:
        return str(cast("Json", value)[INVALID_JSON])
    return codec.dumps(value).decode()


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined, which a stream may split. Single surrogates are replaced."""
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
    """New ids of the last calls by their id, until their results follow."""
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


def chunk_of(block: Json) -> Chunk | None:
    """Return the chunk of a complete block if it is a call or a result, else None."""
    kind = str(block.get("type", ""))
    chunk_kind: ChunkKind
    if kind == "tool_use":
        chunk_kind = "tool_call"
    elif kind.endswith("tool_use"):
        chunk_kind = "server_tool_call"
    elif kind.endswith("tool_result"):
        chunk_kind = "server_tool_result"
    else:
        return None
    return Chunk(chunk_kind, data=block)


def result_parts(block: Json) -> list[Json]:
    """Return the content of a tool_result as blocks. Other values become JSON text."""
    content: Any = block.get("content")
    if content is None or content == "":
        return []
    if isinstance(content, str) or _are_blocks(content):
        return blocks({"content": content})
    return [{"type": "text", "text": codec.dumps(content).decode()}]


def _are_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) for part in cast("list[Any]", content))


def document_text(block: Json) -> str | None:
    """Return the title and text of a text document, or None for other documents."""
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
