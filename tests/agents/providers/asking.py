"""Helpers for tests of providers: build requests and read complete answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.engine.ports.provider import Chunk, ModelRequest, Provider, ProviderError, Response

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aVZCT1I="}}
LINK = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
PDF = {
    "type": "document",
    "title": "paper.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
}
NOTE = {"type": "document", "title": "Note", "source": {"type": "text", "media_type": "text/plain", "data": "Hi."}}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}


def request(*messages: Any, **settings: Any) -> ModelRequest:
    """Return a request with these messages. A text is a user message."""
    all_messages = [
        {"role": "user", "content": message} if isinstance(message, str | list) else message
        for message in messages or ("Hi",)
    ]
    settings.setdefault("model", "model-1")
    settings.setdefault("timeout", 5.0)
    return ModelRequest(messages=all_messages, **settings)


async def ask(provider: Provider, model_request: ModelRequest) -> tuple[list[Chunk], Response]:
    """Return all chunks of an answer and its response, which is last."""
    parts = [part async for part in provider.stream(model_request)]
    chunks = [part for part in parts if isinstance(part, Chunk)]
    assert parts[-1] is not None
    assert len(chunks) == len(parts) - 1
    response = parts[-1]
    assert isinstance(response, Response)
    return chunks, response


async def answer(provider: Provider, model_request: ModelRequest) -> Response:
    return (await ask(provider, model_request))[1]


async def failure(provider: Provider, model_request: ModelRequest) -> ProviderError:
    """Return the error that ends an answer."""
    with pytest.raises(ProviderError) as caught:
        await ask(provider, model_request)
    return caught.value


def joined(chunks: list[Chunk], kind: str) -> str:
    return "".join(chunk.text for chunk in chunks if chunk.kind == kind)


async def first_text(stream: AsyncIterator[Chunk | Response]) -> str:
    async for part in stream:
        if isinstance(part, Chunk) and part.kind == "text":
            return part.text
    raise AssertionError("no text came")
