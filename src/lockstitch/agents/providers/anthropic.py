"""`AnthropicProvider`: Claude through the SDK of Anthropic. `translated` maps its errors."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, cast

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, Timeout
from anthropic.lib.credentials import WorkloadIdentityError
from anthropic.types import MessageParam
from anthropic.types.beta import BetaMessageParam

from lockstitch.agents.providers import anthropic_wire
from lockstitch.agents.providers.anthropic_wire import CacheTime, Reply
from lockstitch.agents.providers.http import (
    CONNECT_SECONDS,
    DOWNLOAD_SECONDS,
    Clients,
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
)
from lockstitch.engine.ports.provider import Chunk, Download, ErrorKind, ModelRequest, Provider, ProviderError, Response
from lockstitch.model import Json

NO_KEY: Final = "needs a key. Set ANTHROPIC_API_KEY, or pass api_key."

_ANTHROPIC_HOST: Final = "api.anthropic.com"

# An error in the middle of a stream has status 200, so its type decides.
_TYPES: Final[dict[str, ErrorKind]] = {
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limit",
    "api_error": "server",
    "timeout_error": "timeout",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "request",
    "invalid_request_error": "request",
    "not_found_error": "request",
    "request_too_large": "request",
}
# Waiting does not help against a spending limit.
_PERMANENT: Final = ("enforced_spend_limit_reached",)


def translated(exc: Exception, server: str = "Anthropic") -> ProviderError:
    """Return the `ProviderError` for an exception of the SDK, the connection or the stream. `server` is its URL."""
    match exc:
        case ProviderError():
            return exc
        case anthropic.APIStatusError():
            return _of_status(exc)
        case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            return ProviderError(f"{server} did not answer in time.", "timeout")
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return ProviderError(f"The connection to {server} broke: {_cause(exc)}", "connection")
        case anthropic.RetryableError():
            return ProviderError(f"{server} could not answer: {exc}", "server")
        case WorkloadIdentityError():
            temporary = exc.status_code is not None and exc.status_code >= 500
            return ProviderError(f"{server} rejected the credentials: {exc}", "server" if temporary else "auth")
        case anthropic.CredentialsError():
            return ProviderError(f"{server} {NO_KEY} The SDK found no other credentials: {exc}", "setup")
        case (
            anthropic.APIResponseValidationError()
            | anthropic.APIWebhookValidationError()
            | ValueError()
            | LookupError()
            | TypeError()
            | AttributeError()
            | httpx2.HTTPError()
            | httpx2.StreamError()
        ):
            return ProviderError(f"The response of {server} cannot be read: {_cause(exc)}", "garbled")
        case _:
            return ProviderError(f"The request to {server} failed: {_cause(exc)}", "request")


def _of_status(exc: anthropic.APIStatusError) -> ProviderError:
    headers = exc.response.headers
    kind = _TYPES.get(str(exc.type)) if exc.status_code < 400 else None
    if exc.error_code in _PERMANENT:
        kind = "request"
    kind = kind or (kind_of_status(exc.status_code, headers) if exc.status_code >= 400 else "server")
    url = str(exc.response.request.url)
    body = error_of(exc.response)
    message = rejection(url, exc.status_code, (exc.api_message or exc.message) if body is None else body)
    if exc.status_code == 404 and "/v1/v1/" in url:
        message += " Check the base URL: it must not end in /v1."
    return ProviderError(message, kind, status=exc.status_code, retry_after=retry_after(headers))


def _cause(exc: Exception) -> str:
    cause = exc.__cause__ or exc
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


class AnthropicProvider(Provider):
    """Calls the Messages API of Anthropic or of a server with the same API.

    Args:
        model: Name of the model, if the provider is the `model` of an agent.
        api_key: Key of the API. None: from the environment.
        base_url: Address of the API, without `/v1`. None: from the environment.
        name: Prefix of the model in the record. None: `anthropic`, or host and port of another server.
        cache: Time for which the prompt cache keeps the stable start of a request. None: no cache breakpoints.
        raw_events: True to yield the events of the API among the chunks.

    Raises:
        ProviderError: Of kind `setup`, if the key is missing, or the URL or the name is not valid.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        name: str | None = None,
        cache: CacheTime | None = "5m",
        raw_events: bool = False,
    ) -> None:
        self.model = model
        self.raw_events = raw_events
        self._cache: CacheTime | None = cache
        self._api_key = api_key
        self._base_url = check_url(base_url or os.environ.get("ANTHROPIC_BASE_URL") or None)
        self._server = server_name("Anthropic", self._base_url)
        is_custom = self._base_url is not None and _ANTHROPIC_HOST not in self._base_url
        self.name = prefix_of(name, self._base_url if is_custom else None, "anthropic")
        self.is_local = is_local(self._base_url)
        self._clients = Clients(self._client)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        with sending():
            call = self._call(request, anthropic_wire.build(request, self._cache))
        chunks = streamed(call, AsyncStream[object], Reply(), timeout=request.timeout, raw_events=self.raw_events)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except ProviderError:
            raise
        except Exception as exc:
            raise translated(exc, self._server) from exc

    async def download(self, file_id: str) -> Download:
        files = self._clients.get().files
        try:
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                about = await files.retrieve_metadata(file_id)
                content = await (await files.download(file_id)).read()
        except Exception as exc:
            raise translated(exc, self._server) from exc
        return Download(about.filename, content, about.mime_type)

    async def close(self) -> None:
        await self._clients.close()

    def _call(self, request: ModelRequest, body: Json) -> AbstractAsyncContextManager[Any]:
        """Return the call as a context manager. The SDK sends `extra_body` unchanged, so most of the body is there."""
        client = self._clients.get()
        timeout = Timeout(request.timeout, connect=min(CONNECT_SECONDS, request.timeout))
        messages, model, max_tokens = body.pop("messages"), body.pop("model"), body.pop("max_tokens")
        if request.beta_headers:
            return client.beta.messages.with_streaming_response.create(
                model=model,
                max_tokens=max_tokens,
                messages=cast("list[BetaMessageParam]", messages),
                betas=list(request.beta_headers),
                stream=True,
                extra_body=body,
                timeout=timeout,
            )
        return client.messages.with_streaming_response.create(
            model=model,
            max_tokens=max_tokens,
            messages=cast("list[MessageParam]", messages),
            stream=True,
            extra_body=body,
            timeout=timeout,
        )

    def _client(self) -> AsyncAnthropic:
        try:
            client = AsyncAnthropic(api_key=self._api_key, base_url=self._base_url, max_retries=0)
        except Exception as exc:
            raise translated(exc, self._server) from exc
        if not (client.api_key or client.auth_token or client.credentials):
            raise ProviderError(f"{self._server} {NO_KEY}", "setup")
        return client
