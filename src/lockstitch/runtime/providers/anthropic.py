"""Claude, through Anthropic's own SDK."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, cast

from anthropic import AsyncAnthropic, AsyncStream, Timeout
from anthropic.types import MessageParam
from anthropic.types.beta import BetaMessageParam

from lockstitch.records import Json
from lockstitch.runtime.provider import Download, ModelRequest, Piece, Provider, ProviderError, Response
from lockstitch.runtime.providers import anthropic_request
from lockstitch.runtime.providers.anthropic_errors import NO_KEY, translated
from lockstitch.runtime.providers.anthropic_reply import Reply
from lockstitch.runtime.providers.anthropic_request import CacheTime
from lockstitch.runtime.providers.transport import (
    CONNECT_SECONDS,
    DOWNLOAD_SECONDS,
    Clients,
    check_url,
    sending,
    streamed,
)


class AnthropicProvider(Provider):
    """Without arguments, key and URL come from the environment, as the SDK reads it.

    `cache` says how long the prompt cache keeps the stable beginning of a request; None: no breakpoints are set.
    """

    name = "anthropic"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        cache: CacheTime | None = "5m",
        raw_events: bool = False,
    ) -> None:
        self.raw_events = raw_events
        self._cache: CacheTime | None = cache
        self._api_key = api_key
        self._base_url = check_url(base_url)
        self._clients = Clients(self._client)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece | Response, None]:
        with sending():
            call = self._call(request, anthropic_request.build(request, self._cache))
        pieces = streamed(call, AsyncStream[object], Reply(), timeout=request.timeout, raw_events=self.raw_events)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except ProviderError:
            raise
        except Exception as exc:
            raise translated(exc) from exc

    async def download(self, file_id: str) -> Download:
        files = self._clients.get().files
        try:
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                about = await files.retrieve_metadata(file_id)
                content = await (await files.download(file_id)).read()
        except Exception as exc:
            raise translated(exc) from exc
        return Download(about.filename, content, about.mime_type)

    async def close(self) -> None:
        await self._clients.close()

    def _call(self, request: ModelRequest, body: Json) -> AbstractAsyncContextManager[Any]:
        """The call, to be entered. All but what the SDK insists on goes as extra_body, which it passes on unread."""
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
            raise translated(exc) from exc
        if not (client.api_key or client.auth_token or client.credentials):
            raise ProviderError(NO_KEY, "setup")
        return client
