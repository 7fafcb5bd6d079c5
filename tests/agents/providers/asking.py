"""How tests of providers ask: whole answers, and the requests they send."""

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
    """A request of these messages; a text is one of the user's."""
    given = [{"role": "user", "content": one} if isinstance(one, str | list) else one for one in messages or ("Hi",)]
    settings.setdefault("model", "model-1")
    settings.setdefault("timeout", 5.0)
    return ModelRequest(messages=given, **settings)


async def ask(provider: Provider, asked: ModelRequest) -> tuple[list[Chunk], Response]:
    """All pieces of an answer, and the response, which comes last."""
    parts = [part async for part in provider.stream(asked)]
    pieces = [part for part in parts if isinstance(part, Chunk)]
    assert parts[-1] is not None
    assert len(pieces) == len(parts) - 1
    response = parts[-1]
    assert isinstance(response, Response)
    return pieces, response


async def answer(provider: Provider, asked: ModelRequest) -> Response:
    return (await ask(provider, asked))[1]


async def failure(provider: Provider, asked: ModelRequest) -> ProviderError:
    """The error with which an answer ends."""
    with pytest.raises(ProviderError) as caught:
        await ask(provider, asked)
    return caught.value


def joined(pieces: list[Chunk], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


async def first_text(pieces: AsyncIterator[Chunk | Response]) -> str:
    async for piece in pieces:
        if isinstance(piece, Chunk) and piece.kind == "text":
            return piece.text
    raise AssertionError("no text came")
