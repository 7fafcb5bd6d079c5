"""OpenAI's Responses API."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

from lockstitch.runtime.provider import Download, ModelRequest, Piece, Provider, Response
from lockstitch.runtime.providers import openai_responses_request
from lockstitch.runtime.providers.openai_client import OpenAIClient, headers_of, timeout_of
from lockstitch.runtime.providers.openai_responses_reply import Reply


class OpenAIResponsesProvider(Provider):
    """Without arguments, key and URL come from the environment, as the SDK reads it."""

    name = "openai"

    def __init__(self, *, api_key: str | None = None, base_url: str | None = None, raw_events: bool = False) -> None:
        self.raw_events = raw_events
        self._client = OpenAIClient(api_key, base_url)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece | Response, None]:
        return self._client.stream(request, self._call, Reply(), raw_events=self.raw_events)

    async def download(self, file_id: str) -> Download:
        return await self._client.download(file_id)

    async def close(self) -> None:
        await self._client.close()

    def _call(self, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        """The call, to be entered. All but the model goes as extra_body, which the SDK passes on unread."""
        body = openai_responses_request.build(request)
        return self._client.get().responses.with_streaming_response.create(
            model=body.pop("model"),
            stream=True,
            extra_body=body,
            extra_headers=headers_of(request),
            timeout=timeout_of(request),
        )
