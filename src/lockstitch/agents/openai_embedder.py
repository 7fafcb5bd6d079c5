"""`OpenAIEmbedder`: embeddings of OpenAI and of servers with the same API. Needs the extra `openai`."""

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Final

from lockstitch.agents.embedders import Vector
from lockstitch.agents.providers.openai_client import OpenAIClient
from lockstitch.engine.ports.provider import ProviderError

_BATCH: Final = 256
"""Maximum texts in one request."""
_SECONDS: Final = 60.0


class OpenAIEmbedder:
    """Embeds texts with the OpenAI API. Key and URL default to the environment variables of the SDK."""

    threshold = 0.7

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._client = OpenAIClient(api_key, base_url)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vectors. Empty texts are not sent, because the API rejects them, and get zeros."""
        non_empty = [text for text in texts if text.strip()]
        embedded: list[Vector] = []
        for start in range(0, len(non_empty), _BATCH):
            embedded += await self._ask(non_empty[start : start + _BATCH])
        vectors = iter(embedded)
        zeros = [0.0] * len(embedded[0]) if embedded else []
        return [next(vectors) if text.strip() else list(zeros) for text in texts]

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, texts: list[str]) -> list[Vector]:
        try:
            answer = await self._client.get().embeddings.create(
                model=self._model, input=texts, encoding_format="float", timeout=_SECONDS
            )
            embeddings = sorted(answer.data, key=lambda embedding: embedding.index)
            vectors = [_unit(embedding.embedding) for embedding in embeddings]
        except Exception as exc:
            raise self._client.translated(exc) from exc
        if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) != 1:
            raise ProviderError(f"OpenAI returned {len(vectors)} vectors for {len(texts)} texts.", "garbled")
        return vectors


def _unit(vector: Sequence[float]) -> Vector:
    length = sqrt(sum(value * value for value in vector))
    if not length or not isfinite(length):
        raise ValueError("the vector has length 0")
    return [value / length for value in vector]
