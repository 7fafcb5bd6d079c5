"""Embeddings of OpenAI, with the real SDK and a local server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.agents.embedders import similarity
from lockstitch.agents.openai_embedder import OpenAIEmbedder
from lockstitch.agents.registry import embedder
from lockstitch.engine.ports.provider import ProviderError
from tests.agents.fake_api import Answer, FakeApi, fake_api

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


def vectors(*values: list[float]) -> Answer:
    """Return an answer of the API. Its vectors have no order."""
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": place, "embedding": value} for place, value in enumerate(values)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Answer(body={"object": "list", "data": data[::-1], "model": "small", "usage": usage})


@pytest.fixture
async def small(api: FakeApi) -> AsyncIterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("small", base_url=f"{api.url}/v1")
    yield embedder
    await embedder.close()


async def test_vectors_have_the_order_of_texts(api: FakeApi, small: OpenAIEmbedder) -> None:
    api.answer(vectors([3.0, 4.0], [0.0, 2.0]))
    embeddings = await small.embed(["one", " ", "two"])
    assert embeddings == [[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]], "of length one; blank text is not sent"
    assert similarity(embeddings[0], embeddings[2]) == pytest.approx(0.8)
    assert (api.last["model"], api.last["input"]) == ("small", ["one", "two"])
    assert small.name == "openai:small"


async def test_sends_many_texts_in_batches(api: FakeApi, small: OpenAIEmbedder) -> None:
    api.answer(vectors(*[[1.0, 0.0]] * 256), vectors([0.0, 1.0]))
    assert (await small.embed(["text"] * 257))[-1] == [0.0, 1.0]
    assert len(api.requests) == 2
    assert await small.embed([]) == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(status=429, body={"error": {"message": "slow down"}}), "rate_limit"),
        (Answer(status=400, body={"error": {"message": "no such model"}}), "request"),
        (vectors([1.0], [1.0]), "garbled"),
        (vectors([0.0]), "garbled"),
        (Answer(body={"object": "list", "data": None}), "garbled"),
    ],
)
async def test_translates_errors(api: FakeApi, small: OpenAIEmbedder, answer: Answer, kind: str) -> None:
    api.answer(answer)
    with pytest.raises(ProviderError) as raised:
        await small.embed(["one"])
    assert raised.value.kind == kind


async def test_reads_settings_from_environment(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        embedder("openai:small")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{api.url}/v1")
    api.answer(vectors([1.0, 0.0]))
    small = embedder("openai:small")
    assert await small.embed(["one"]) == [[1.0, 0.0]]
    await small.close()
