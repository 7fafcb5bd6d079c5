"""`Embedder`, cosine similarity; offline and OpenAI embedders.

An embedder keeps no state and retries nothing: whoever calls it knows whether trying again is worth it.

It knows no synonyms. For lists of tasks and paragraphs of one subject, which use the same words for the same things,
that goes far; where it does not, another embedder does.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import log, sqrt
from operator import mul
from typing import Final, Protocol
from zlib import crc32

from lockstitch.errors import Refused

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


def similarity(item: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of length one: 1 the same, 0 nothing in common."""
    return max(-1.0, min(1.0, sum(map(mul, item, other))))


DIMENSIONS: Final = 512

_WORD: Final = re.compile(r"[^\W_]+")
_GRAM: Final = 4
"""Characters in a part of a word. Its ends count, so that what "plans" begins with is not what "explains" ends with."""
_SPACELESS: Final = "\u2e80"
"""From this character on there are scripts that put no spaces between words: there any two characters are one."""
_LONGEST: Final = 40
"""Characters of a word that are looked at: what is longer is no word."""
_WEIGHTS: Final = {"word": 1.0, "gram": 0.35, "pair": 0.5}
"""What it counts that two texts share a word, a part of one, or two words in a row."""
_FILLING: Final = 0.15
"""What a word that stands in any text counts."""
_FILLERS: Final = frozenset(
    word
    for words in (
        "a about after all also an and any are as at be been before but by can could do does each for from get had",
        "has have he her here his how i if in into is it its just may me more most must my need needs new no not of on",
        "once one only or other our out over own per shall she should so some such than that the their them then there",
        "these they this those through to under until up us use was we were what when where which while who will with",
        "would you your aber als am auch auf aus bei bis das dass dem den der des die durch ein eine einem einen einer",
        "es für hat im ist mit nach nicht noch nur oder sich sie sind um und von vor wenn wie wir zu zum zur",
    )
    for word in words.split()
)
_ENDINGS: Final = (
    *(("ies", "y"), ("sses", "ss"), ("ations", "at"), ("ation", "at"), ("ingly", ""), ("ings", ""), ("ing", "")),
    *(("edly", ""), ("ed", ""), ("ments", "ment"), ("ly", ""), ("es", "e"), ("s", "")),
)
_SHORTEST: Final = 3
"""Characters that must stay of a word when its ending goes."""


class HashingEmbedder:
    """Words and parts of words, each at a place that its hash says. The same everywhere and always."""

    threshold = 0.25

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        if dimensions < 2:
            raise Refused("A vector of fewer than 2 dimensions tells nothing apart.")
        self.name = f"hashing:{dimensions}"
        self._dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vector(text) for text in texts]

    async def close(self) -> None:
        pass

    def _vector(self, text: str) -> Vector:
        vector = [0.0] * self._dimensions
        size = self._dimensions
        for (feature, weight), times in Counter(_features(text)).items():
            # The tenth time says less than the first. The sign has what meets at one place cancel out, not add up.
            value = weight * (1 + log(times))
            vector[(feature >> 1) % size] += value if feature & 1 else -value
        length = sqrt(sum(value * value for value in vector))
        return [value / length for value in vector] if length else vector


def _features(text: str) -> Iterator[tuple[int, float]]:
    """The hashes of what a text holds, each with what it counts."""
    before: str | None = None
    for word in _words(unicodedata.normalize("NFKC", text).casefold()):
        yield from _word_features(word)
        if word in _FILLERS:
            continue
        root = stem(word)
        if before is not None:
            yield crc32(f"pair {before} {root}".encode()), _WEIGHTS["pair"]
        before = root


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if max(word) < _SPACELESS:
            yield word[:_LONGEST]
        else:
            yield from _parts(word, 2)


def _parts(word: str, size: int) -> list[str]:
    return [word[start : start + size] for start in range(max(1, len(word) - size + 1))]


@lru_cache(maxsize=20_000)
def _word_features(word: str) -> tuple[tuple[int, float], ...]:
    if word in _FILLERS:
        return ((crc32(f"word {word}".encode()), _FILLING),)
    root = stem(word)
    marked = f"<{root}>"
    grams = _parts(marked, _GRAM)
    # So that a long word counts no more than a short one.
    weight = _WEIGHTS["gram"] / sqrt(len(grams)) * 2
    return (
        (crc32(f"word {root}".encode()), _WEIGHTS["word"]),
        *((crc32(f"gram {gram}".encode()), weight) for gram in grams),
    )


def stem(word: str) -> str:
    """A word without its ending: "planning", "planned" and "plans" are one."""
    if word.endswith("ss"):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            root = word.removesuffix(ending) + instead
            if (
                ending in ("ing", "ings", "ed")
                and len(root) > _SHORTEST
                and root[-1] == root[-2]
                and root[-1] not in "lsz"
            ):
                root = root[:-1]
            return root.removesuffix("e") if len(root) > _SHORTEST else root
    return word.removesuffix("e") if len(word) > _SHORTEST else word
