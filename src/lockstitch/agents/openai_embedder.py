"""Embeddings of OpenAI, and of the many servers that speak as it does. Needs the extra `openai`."""

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Final

from lockstitch.agents.embedders import Vector
from lockstitch.agents.providers.openai_client import OpenAIClient, translated
from lockstitch.engine.ports.provider import ProviderError

_BATCH: Final = 256
"""Texts in one request."""
_SECONDS: Final = 60.0


class OpenAIEmbedder:
    """Without arguments, key and URL come from the environment, as the SDK reads it."""

    threshold = 0.7

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._client = OpenAIClient(api_key, base_url)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Texts that say nothing are not sent: the API refuses a request with such a one."""
        telling = [text for text in texts if text.strip()]
        matches: list[Vector] = []
        for start in range(0, len(telling), _BATCH):
            matches += await self._ask(telling[start : start + _BATCH])
        vectors = iter(matches)
        nothing = [0.0] * len(matches[0]) if matches else []
        return [next(vectors) if text.strip() else list(nothing) for text in texts]

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
            raise translated(exc) from exc
        if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) != 1:
            raise ProviderError(f"{len(texts)} texts were to be embedded, and {len(vectors)} vectors came.", "garbled")
        return vectors


def _unit(vector: Sequence[float]) -> Vector:
    length = sqrt(sum(value * value for value in vector))
    if not length or not isfinite(length):
        raise ValueError("a vector of no length")
    return [value / length for value in vector]
