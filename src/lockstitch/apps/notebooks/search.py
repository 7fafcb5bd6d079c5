"""`find()`: search the passages of a notebook by words and by embeddings."""

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter, mul
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch import Store
from lockstitch.apps.notebooks.records import EXTENSION, FoundBy, Notebook, Passage, Source
from lockstitch.ext import Embedder, Where, run_blocking

Key = tuple[UUID, int]
"""The source and the number of a passage."""

_WORD: Final = re.compile(r"[^\W_]+")
_MOST_WORDS: Final = 24
_LONGEST: Final = 2_000
"""Number of characters of a query that are used."""

_LONG: Final = 4
"""Minimum number of letters of a word that also matches longer words."""

_WIDE: Final = 40
"""Number of passages that each of the two searches returns."""

_NEARNESS: Final = 0.4
"""Minimum similarity of a passage and a question, as a share of the threshold of the embedder."""

_FUSION: Final = 60
"""The constant of reciprocal rank fusion, with its usual value."""


class RankedPassage(NamedTuple):
    """A passage in the results of a search, with its rank from 1."""

    source: Source
    passage: Passage
    rank: int
    found_by: FoundBy


async def find(
    store: Store, notebook: Notebook, query: str, *, embedder: Embedder | None, limit: int
) -> list[RankedPassage]:
    """Return the best passages of a notebook for a query, best first."""
    by_words = await _by_words(store, notebook, query)
    by_meaning = await _by_similarity(store, notebook, query, embedder) if embedder is not None else []
    best = fused(by_words, by_meaning)[:limit]
    sources = await _sources(store, notebook, {source_id for source_id, _ in best})
    passages = await passages_of(store, best)
    words, keys = set(by_words), set(by_meaning)
    results: list[RankedPassage] = []
    for key in best:
        # Leave out passages that were removed since the search.
        if key[0] in sources and key in passages:
            how = _found_by(key in words, key in keys)
            results.append(RankedPassage(sources[key[0]], passages[key], len(results) + 1, how))
    return results


async def passages_of(store: Store, keys: Iterable[Key]) -> dict[Key, Passage]:
    """Return the passages with these keys that exist."""
    wanted: dict[UUID, list[int]] = {}
    for source_id, number in keys:
        wanted.setdefault(source_id, []).append(number)
    passages: dict[Key, Passage] = {}
    for source_id, numbers in wanted.items():
        where = (Where("source_id", "=", source_id), Where("number", "in", numbers))
        for passage in await store.table(Passage).find(*where):
            passages[source_id, passage.number] = passage
    return passages


def fused(*rankings: Sequence[Key]) -> list[Key]:
    """Merge rankings by reciprocal rank fusion."""
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for place, key in enumerate(ranking, start=1):
            scores[key] = scores.get(key, 0.0) + 1 / (_FUSION + place)
    return sorted(scores, key=lambda key: (-scores[key], str(key[0]), key[1]))


def search_terms(query: str) -> str:
    """Return the search terms of a query, separated by |. Long words match as prefixes, without a plural ending."""
    words = dict.fromkeys(_WORD.findall(query.casefold()[:_LONGEST]))
    terms = dict.fromkeys(f'"{_stem(word)}"*' if len(word) >= _LONG else f'"{word}"' for word in words)
    return "|".join(list(terms)[:_MOST_WORDS])


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as stored bytes."""
    numbers = array("f", vector)
    if _BIG_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def unpacked(vector: bytes) -> "array[float]":
    numbers = array("f")
    numbers.frombytes(vector)
    if _BIG_ENDIAN:
        numbers.byteswap()
    return numbers


_BIG_ENDIAN: Final = array("H", [1]).tobytes() == b"\x00\x01"


async def _by_words(store: Store, notebook: Notebook, query: str) -> list[Key]:
    words = search_terms(query)
    if not words:
        return []
    rows: Sequence[Any] = await store.query(
        EXTENSION, "passages_by_words", notebook=notebook.number, words=words, limit=_WIDE
    )
    return [_key(source_id, number) for source_id, number in rows]


async def _by_similarity(store: Store, notebook: Notebook, query: str, embedder: Embedder) -> list[Key]:
    rows: Sequence[Any] = await store.query(EXTENSION, "vectors", notebook=notebook.number, embedder=embedder.name)
    if not rows or not query.strip():
        return []
    (vector,) = await embedder.embed([query])
    least = embedder.threshold * _NEARNESS
    return await run_blocking(lambda: _nearest(vector, rows, least))


def _nearest(requested: Sequence[float], rows: Sequence[Any], least: float) -> list[Key]:
    """Return the passages with the highest dot product. All vectors are unit vectors."""
    # In the vector of a short question from the hashing embedder most numbers are zero. Skip them.
    places = [place for place, number in enumerate(requested) if number]
    if not places:
        return []
    near = [requested[place] for place in places]
    # With one place itemgetter would return a number, not a tuple.
    pick: Callable[[Any], Sequence[float]] = itemgetter(*places, places[0])
    scored = [(sum(map(mul, near, pick(unpacked(vector)))), source_id, number) for source_id, number, vector in rows]
    best = sorted((item for item in scored if item[0] >= least), key=lambda item: (-item[0], str(item[1]), item[2]))
    return [_key(source_id, number) for _, source_id, number in best[:_WIDE]]


async def _sources(store: Store, notebook: Notebook, ids: set[UUID]) -> Mapping[UUID, Source]:
    where = (Where("notebook_id", "=", notebook.number), Where("id", "in", list(ids)))
    return {source.id: source for source in await store.table(Source).find(*where)} if ids else {}


def _stem(word: str) -> str:
    """Return a word without an English plural ending. A wrong guess only finds more passages."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3]
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _found_by(by_words: bool, by_meaning: bool) -> FoundBy:
    if by_words and by_meaning:
        return "words and meaning"
    return "words" if by_words else "meaning"


def _key(source_id: Any, number: Any) -> Key:
    return (source_id if isinstance(source_id, UUID) else UUID(source_id)), int(number)
