"""`OpenAIClient`: client, settings and errors of both OpenAI APIs."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, ClassVar, Final, cast

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream, Timeout

from lockstitch.agents.providers.http import (
    CONNECT_SECONDS,
    DOWNLOAD_SECONDS,
    Clients,
    Reply,
    check_url,
    error_of,
    is_local,
    kind_of_status,
    prefix_of,
    rejection,
    retry_after,
    sending,
    server_name,
    streamed,
    write_input,
)
from lockstitch.engine.ports.provider import Chunk, Download, ErrorKind, ModelRequest, Provider, ProviderError, Response
from lockstitch.model import Json, codec

# Error kinds by the code or type of an error in the middle of a stream, which has no status.
_KINDS: Final[dict[str, ErrorKind]] = {
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "api_error": "server",
    "overloaded_error": "overloaded",
    "server_overloaded": "overloaded",
    "service_unavailable": "overloaded",
    "vector_store_timeout": "timeout",
    "timeout": "timeout",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "insufficient_quota": "request",
    "invalid_request_error": "request",
    "invalid_prompt": "request",
}
# Waiting does not help against a spent budget.
_PERMANENT: Final = ("insufficient_quota", "billing_hard_limit_reached")


def translated(exc: Exception, server: str = "OpenAI") -> ProviderError:
    """Return the `ProviderError` for an exception of the SDK, the connection or the stream. `server` is its URL."""
    match exc:
        case ProviderError():
            return exc
        case openai.APIStatusError():
            return _of_status(exc)
        case openai.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            return ProviderError(f"{server} did not answer in time.", "timeout")
        case openai.APIConnectionError() | openai.WebSocketConnectionClosedError() | httpx2.TransportError():
            return ProviderError(f"The connection to {server} broke: {_cause(exc)}", "connection")
        case openai.APIResponseValidationError():
            return ProviderError(f"The response of {server} cannot be read: {exc}", "garbled")
        case openai.APIError():
            return stream_error(exc.code or exc.type, exc.message, server)
        case ValueError() | LookupError() | TypeError() | AttributeError() | httpx2.HTTPError() | httpx2.StreamError():
            return ProviderError(f"The response of {server} cannot be read: {_cause(exc)}", "garbled")
        case _:
            return ProviderError(f"The request to {server} failed: {_cause(exc)}", "request")


def stream_error(code: object, message: object, server: str = "OpenAI") -> ProviderError:
    """Return the error of a stream by its code or type. An unknown code counts as a temporary error."""
    return ProviderError(f"{server} rejected the request: {message} ({code})", _KINDS.get(str(code), _unknown(code)))


def _unknown(code: object) -> ErrorKind:
    return "request" if str(code).startswith(("invalid_", "image_", "unsupported_")) else "server"


def _of_status(exc: openai.APIStatusError) -> ProviderError:
    headers = exc.response.headers
    kind = "request" if exc.code in _PERMANENT else kind_of_status(exc.status_code, headers)
    url = str(exc.response.request.url)
    body = error_of(exc.response)
    message = rejection(url, exc.status_code, exc.message if body is None else body)
    if exc.status_code == 404 and "/v1/" not in url:
        message += " Check the base URL: most servers need /v1 at its end."
    return ProviderError(message, kind, status=exc.status_code, retry_after=retry_after(headers))


def _cause(exc: Exception) -> str:
    cause = exc.__cause__ or exc
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


# Key of a block for data that is sent back to OpenAI unchanged.
PROVIDER_DATA: Final = "openai"
_OPENAI_HOST: Final = "api.openai.com"
_PLAIN: Final = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-4)")


def base_url_of(base_url: str | None) -> str | None:
    """Return the base URL: the argument, the environment variable, or None for OpenAI itself."""
    return check_url(base_url or os.environ.get("OPENAI_BASE_URL") or None)


def is_custom(base_url: str | None) -> bool:
    """True if the base URL is not that of OpenAI."""
    return base_url is not None and _OPENAI_HOST not in base_url


class OpenAIClient:
    """A client of OpenAI or of a server with the same API. A server on this machine needs no key."""

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self.base_url = base_url_of(base_url)
        self._api_key = api_key
        self._server = server_name("OpenAI", self.base_url)
        self._clients = Clients(self._client)

    def get(self) -> AsyncOpenAI:
        return self._clients.get()

    async def stream(
        self,
        request: ModelRequest,
        call: Callable[[ModelRequest], AbstractAsyncContextManager[Any]],
        reply: Reply,
        *,
        raw_events: bool,
    ) -> AsyncGenerator[Chunk | Response, None]:
        with sending():
            streaming_call = call(request)
        chunks = streamed(streaming_call, AsyncStream[object], reply, timeout=request.timeout, raw_events=raw_events)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except ProviderError:
            raise
        except Exception as exc:
            raise self.translated(exc) from exc

    async def download(self, file_id: str) -> Download:
        files = self.get().files
        try:
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                about = await files.retrieve(file_id)
                content = await files.content(file_id)
        except Exception as exc:
            raise self.translated(exc) from exc
        return Download(about.filename, content.content, content.response.headers.get("content-type"))

    def prefix(self, name: str | None) -> str:
        """Return the prefix of the model names of a provider object."""
        return prefix_of(name, self.base_url if is_custom(self.base_url) else None, "openai")

    def translated(self, exc: Exception) -> ProviderError:
        """Return the `ProviderError` for an exception. It names the URL of the server."""
        return translated(exc, self._server)

    async def close(self) -> None:
        await self._clients.close()

    def _client(self) -> AsyncOpenAI:
        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if not key and is_local(self.base_url):
            key = "none"
        if not key:
            raise ProviderError(f"{self._server} needs a key. Set OPENAI_API_KEY, or pass api_key.", "setup")
        try:
            return AsyncOpenAI(api_key=key, base_url=self.base_url, max_retries=0)
        except Exception as exc:
            raise self.translated(exc) from exc


def timeout_of(request: ModelRequest) -> Timeout:
    return Timeout(request.timeout, connect=min(CONNECT_SECONDS, request.timeout))


def headers_of(request: ModelRequest) -> dict[str, str]:
    return {"OpenAI-Beta": ",".join(request.beta_headers)} if request.beta_headers else {}


def reasons(model: str) -> bool:
    """True if a model reasons before it answers. The models that do not are a fixed list."""
    return not _PLAIN.match(model)


def effort(thinking_tokens: int) -> str:
    """Return the reasoning effort for a token budget, because OpenAI has no budget."""
    if thinking_tokens < 4096:
        return "low"
    return "medium" if thinking_tokens < 16384 else "high"


def is_strict(schema: Any) -> bool:
    """True if OpenAI can enforce a schema: every object lists and requires all its properties."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return True
    part = cast("Json", schema)
    if part.get("type") == "object" or "properties" in part:
        properties: Json = part.get("properties") or {}
        if part.get("additionalProperties") is not False or set(part.get("required") or ()) != set(properties):
            return False
    return all(is_strict(value) for value in part.values())


def raw_arguments(text: str, value: Json) -> Json:
    """Return the text of the arguments to store if it differs from our own JSON, so that it is sent back unchanged."""
    return {} if codec.dumps(value).decode() == text else {"arguments": text}


def arguments_of(block: Json) -> str:
    """Return the arguments of a call as the model wrote them."""
    stored: Json = block.get(PROVIDER_DATA) or {}
    return str(stored["arguments"]) if "arguments" in stored else write_input(block.get("input") or {})


class OpenAIProvider(Provider):
    """Base of the providers of both APIs. Subclasses document the parameters and make the call."""

    reply_class: ClassVar[type[Reply]]
    """Reads the events of the API."""

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        name: str | None = None,
        raw_events: bool = False,
    ) -> None:
        self.model = model
        self.raw_events = raw_events
        self._client = OpenAIClient(api_key, base_url)
        self.name = self._client.prefix(name)
        self.is_local = is_local(self._client.base_url)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        return self._client.stream(request, self._call, self.reply_class(), raw_events=self.raw_events)

    async def download(self, file_id: str) -> Download:
        return await self._client.download(file_id)

    async def close(self) -> None:
        await self._client.close()

    def _call(self, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        """Return the call as a context manager."""
        raise NotImplementedError
