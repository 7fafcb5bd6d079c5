"""The contract of an embedder: texts go in, vectors of their meaning come out, and likeness is the angle between them.

An embedder keeps no state and retries nothing: whoever calls it knows whether trying again is worth it.
"""

from collections.abc import Sequence
from operator import mul
from typing import Final, Protocol

from lockstitch.errors import Refused
from lockstitch.runtime.provider import ProviderError

Vector = list[float]

_FORMS: Final = "hashing, hashing:DIMENSIONS or openai:MODEL, as in openai:text-embedding-3-small"


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


def embedder(which: str | Embedder) -> Embedder:
    """The embedder of this name: "hashing" needs nothing but this machine, "openai:MODEL" any server that speaks so.

    Refused when there is none; ProviderError of kind setup, before any network, when its SDK or key is missing.
    """
    if not isinstance(which, str):
        return which
    kind, _, name = which.partition(":")
    if kind == "hashing":
        from lockstitch.runtime.embedders.hashing import HashingEmbedder

        if not name:
            return HashingEmbedder()
        if name.isascii() and name.isdigit() and int(name):
            return HashingEmbedder(int(name))
    if kind == "openai" and name:
        return _openai(name)
    raise Refused(f"{which!r} names no embedder: write {_FORMS}.")


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of length one: 1 the same, 0 nothing in common."""
    return max(-1.0, min(1.0, sum(map(mul, one, other))))


def _openai(model: str) -> Embedder:
    try:
        from lockstitch.runtime.embedders.openai import OpenAIEmbedder
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError("The SDK of openai is not installed: pip install 'lockstitch[openai]'.", "setup") from exc
    return OpenAIEmbedder(model)
