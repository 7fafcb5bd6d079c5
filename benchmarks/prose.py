"""Generated text, the same in every run and as compressible as prose."""

import random
from collections.abc import Iterator
from pathlib import Path

# The most frequent first, by Zipf's law.
_COMMON = Path(__file__).with_name("vocabulary.txt").read_text().split()
_SYLLABLES = ("ba", "ble", "con", "di", "fo", "gu", "ha", "ji", "ke", "lo", "ment", "na", "pre", "ster", "tion", "vi")


class Prose:
    """An endless text, returned in pieces."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._weights = [1 / (rank + 3) for rank in range(len(_COMMON))]
        self._words = self._endless()
        self._rest = ""

    def take(self, length: int) -> str:
        """Return the next `length` characters, all ASCII."""
        parts, have = [self._rest], len(self._rest)
        while have < length:
            sentence = self._sentence()
            parts.append(sentence)
            have += len(sentence)
        text = "".join(parts)
        self._rest = text[length:]
        return text[:length]

    def _sentence(self) -> str:
        words = [next(self._words) for _ in range(self._random.randint(5, 18))]
        if self._random.random() < 0.3:
            words.insert(len(words) // 2, f"{words.pop()},")
        end = self._random.choice((".", ".", ".", "?", ":\n- "))
        return f"{words[0].capitalize()} {' '.join(words[1:])}{end} "

    def _endless(self) -> Iterator[str]:
        while True:
            common = iter(self._random.choices(_COMMON, self._weights, k=64))
            for word in common:
                chance = self._random.random()
                if chance < 0.03:
                    yield str(self._random.randint(2, 99_999))
                elif chance < 0.12:
                    # Many rare words, most of them used once.
                    yield "".join(self._random.choices(_SYLLABLES, k=self._random.choice((2, 2, 3, 4))))
                else:
                    yield word
