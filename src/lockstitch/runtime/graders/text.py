"""Answers as graders look at them, and as they quote them."""

import re
from typing import Any, Final

from lockstitch.records import codec
from lockstitch.runtime.grader import Answered

QUOTED: Final = 80
"""Characters of an answer in the reason of a grade; the whole of it stands in its run."""

# No two repeats in a row may match the same character: a long answer would be tried in every way there is.
_FENCE: Final = re.compile(r"^\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*$", re.DOTALL)


def plain(text: str) -> str:
    """Text whose breaks and spaces are no difference."""
    return " ".join(text.split())


def quoted(value: Any) -> str:
    text = plain(value if isinstance(value, str) else codec.dumps(value).decode())
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + '…'}”"


def value_of(answered: Answered) -> Any:
    """The structured answer, or the JSON that the text is. ValueError when it is none."""
    if answered.output is not None:
        return answered.output
    fenced = _FENCE.match(answered.text)
    try:
        return codec.loads(fenced.group(1) if fenced else answered.text)
    except RecursionError as exc:
        raise ValueError("it is nested too deep") from exc
