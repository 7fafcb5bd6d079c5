"""Which texts have to do with another one, by the words they share."""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Scripts that put no space between words."""


def words(text: str) -> set[str]:
    """The words of a text, whatever their case; of scripts without spaces every two neighbours."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.search(word):
            found.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        else:
            found.add(word)
    return found


def ranked(query: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts that share a word with `query`, best first; equals stay in the order they are given.

    A word counts the more the fewer texts have it, so that "the" decides nothing.
    """
    wanted = words(query)
    shared = [wanted & words(text) for text in texts]
    spread = Counter(word for one in shared for word in one)
    # Fractions, since a sum of floats would depend on the order of a set.
    scores = [sum((Fraction(1, spread[word]) for word in one), Fraction(0)) for one in shared]
    return sorted((place for place, one in enumerate(shared) if one), key=lambda place: -scores[place])
