"""`Embedder`: texts as vectors. `HashingEmbedder` works offline.

An embedder has no state and does not retry. The caller decides about retries.

`HashingEmbedder` does not know synonyms. That is enough for task lists and paragraphs about one subject, which repeat
the same words. Use another embedder for other texts.
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
"""An embedding of a text."""


class Embedder(Protocol):
    """Returns vectors for texts. Every failure is a `ProviderError`."""

    name: str
    """Name of the embedder, for example "hashing:512". Vectors of different embedders are not comparable."""
    threshold: float
    """Minimum similarity of two texts about the same subject."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector of length 1 for each text, in order. A text without words gets a vector of zeros.

        Args:
            texts: The texts.

        Raises:
            ProviderError: If the vectors cannot be computed.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def similarity(item: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors of length 1: 1 if they are equal, 0 if they share nothing.

    Args:
        item: A vector.
        other: Another vector of the same embedder.
    """
    return max(-1.0, min(1.0, sum(map(mul, item, other))))


DIMENSIONS: Final = 512

_WORD: Final = re.compile(r"[^\W_]+")
_GRAM: Final = 4
"""Characters of a part of a word. Start and end are marked, so that the parts of "plans" and "explains" differ."""
_SPACELESS: Final = "\u2e80"
"""First character of the scripts without spaces. In these, each pair of characters is a word."""
_MAX_WORD: Final = 40
"""Maximum characters of a word. The rest is ignored."""
_WEIGHTS: Final = {"word": 1.0, "gram": 0.35, "pair": 0.5}
"""Weights of a common word, a common part of a word, and two common words in a row."""
_STOP_WORD_WEIGHT: Final = 0.15
"""Weight of a stop word."""
_STOP_WORDS: Final = frozenset(
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
_MIN_STEM: Final = 3
"""Minimum characters of a word after its ending is removed."""


class HashingEmbedder:
    """Embeds words and parts of words by their hashes. The result is the same in every process."""

    threshold = 0.25

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        if dimensions < 2:
            raise Refused("An embedding needs at least 2 dimensions.")
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
            # A repetition adds less than the first occurrence. With signs, hash collisions cancel out.
            value = weight * (1 + log(times))
            vector[(feature >> 1) % size] += value if feature & 1 else -value
        length = sqrt(sum(value * value for value in vector))
        return [value / length for value in vector] if length else vector


def _features(text: str) -> Iterator[tuple[int, float]]:
    """Yield the hashes of the words, parts and pairs of a text, with their weights."""
    before: str | None = None
    for word in _words(unicodedata.normalize("NFKC", text).casefold()):
        yield from _word_features(word)
        if word in _STOP_WORDS:
            continue
        root = stem(word)
        if before is not None:
            yield crc32(f"pair {before} {root}".encode()), _WEIGHTS["pair"]
        before = root


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if max(word) < _SPACELESS:
            yield word[:_MAX_WORD]
        else:
            yield from _parts(word, 2)


def _parts(word: str, size: int) -> list[str]:
    return [word[start : start + size] for start in range(max(1, len(word) - size + 1))]


@lru_cache(maxsize=20_000)
def _word_features(word: str) -> tuple[tuple[int, float], ...]:
    if word in _STOP_WORDS:
        return ((crc32(f"word {word}".encode()), _STOP_WORD_WEIGHT),)
    root = stem(word)
    marked = f"<{root}>"
    grams = _parts(marked, _GRAM)
    # A long word has the same weight as a short one.
    weight = _WEIGHTS["gram"] / sqrt(len(grams)) * 2
    return (
        (crc32(f"word {root}".encode()), _WEIGHTS["word"]),
        *((crc32(f"gram {gram}".encode()), weight) for gram in grams),
    )


def stem(word: str) -> str:
    """Return a word without its ending: "planning", "planned" and "plans" have the same stem."""
    if word.endswith("ss"):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM:
            root = word.removesuffix(ending) + instead
            if (
                ending in ("ing", "ings", "ed")
                and len(root) > _MIN_STEM
                and root[-1] == root[-2]
                and root[-1] not in "lsz"
            ):
                root = root[:-1]
            return root.removesuffix("e") if len(root) > _MIN_STEM else root
    return word.removesuffix("e") if len(word) > _MIN_STEM else word
