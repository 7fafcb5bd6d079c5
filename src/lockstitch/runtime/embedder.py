"""The contract of an embedder: texts go in, vectors of their meaning come out, and likeness is the angle between them.

An embedder keeps no state and retries nothing: whoever calls it knows whether trying again is worth it.
"""

from collections.abc import Sequence
from operator import mul
from typing import Protocol

Vector = list[float]


class Embedder(Protocol):
    """Turns texts into vectors. Every failure is a ProviderError, as a model's is."""

    name: str
    """Who made a vector, such as "hashing:512". Vectors of different names are not comparable."""
    threshold: float
    """The similarity from which on two texts are taken to speak of the same thing."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """A vector of length one for each text, in their order. One that says nothing gets zeros: it is like none."""
        ...

    async def close(self) -> None: ...


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of length one: 1 the same, 0 nothing in common."""
    return max(-1.0, min(1.0, sum(map(mul, one, other))))
