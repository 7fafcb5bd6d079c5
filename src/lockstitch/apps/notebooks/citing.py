"""Citations in an answer: the numbers in brackets, as models write them."""

import re
from collections import deque
from typing import Final, NamedTuple

_GROUP: Final = re.compile(
    r"(?<![\\!])\[\s*(\d{1,4}(?:\s*(?:[,;\u2013-]|and)\s*\d{1,4})*)\s*\](?!\(|:\s*\S+://)"
    r"|【\s*(\d{1,4})[^】]{0,40}】"
)
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")
_RANGE: Final = re.compile(r"(\d+)\s*[\u2013-]\s*(\d+)")
_MOST: Final = 50
"""Numbers that one bracket may stand for."""


class Mention(NamedTuple):
    """Where an answer cites: the characters of the bracket, and the numbers in it."""

    start: int
    end: int
    numbers: tuple[int, ...]


def mentions(answer: str) -> list[Mention]:
    """The citations of an answer, in order. What stands in code, or is a link, is none."""
    code = deque(match.span() for match in _CODE.finditer(answer))
    found: list[Mention] = []
    for match in _GROUP.finditer(answer):
        # Both come in the order of the text.
        while code and code[0][1] <= match.start():
            code.popleft()
        if code and code[0][0] <= match.start():
            continue
        numbers = _numbers(match[1] or match[2])
        if numbers:
            found.append(Mention(match.start(), match.end(), numbers))
    return found


def cited_numbers(answer: str) -> list[int]:
    """The numbers that an answer cites, each once, in the order in which they are first named."""
    return list(dict.fromkeys(number for mention in mentions(answer) for number in mention.numbers))


def _numbers(group: str) -> tuple[int, ...]:
    spread = _RANGE.sub(lambda match: _spread(int(match[1]), int(match[2])), group)
    return tuple(dict.fromkeys(int(number) for number in _NUMBER.findall(spread) if int(number) > 0))


def _spread(first: int, last: int) -> str:
    if not first <= last < first + _MOST:
        return f"{first} {last}"
    return " ".join(str(number) for number in range(first, last + 1))
