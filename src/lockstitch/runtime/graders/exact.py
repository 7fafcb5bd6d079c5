"""Exact: the answer is what was expected."""

from typing import Any, cast

from lockstitch.records import Json
from lockstitch.runtime.grader import Answered, Case, Grade
from lockstitch.runtime.graders.text import plain, quoted, value_of


class ExactGrader:
    """The same text, but for spaces and breaks; where a number, list or object is expected, the same JSON."""

    name = "exact"
    pass_at = 1.0

    @property
    def parameters(self) -> Json:
        return {}

    def check(self, case: Case) -> str | None:
        return "`expected` is missing" if case.expected is None else None

    async def grade(self, answered: Answered) -> Grade:
        expected = answered.case.expected
        if isinstance(expected, str):
            right = plain(answered.text) == plain(expected)
        else:
            try:
                right = _same(value_of(answered), expected)
            except ValueError:
                right = False
        return Grade(1.0) if right else Grade(0.0, f"{quoted(answered.text)} is not {quoted(expected)}")

    async def close(self) -> None: ...


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same. To Python, 1 is True; to JSON it is not."""
    if isinstance(one, dict) and isinstance(other, dict):
        ours, theirs = cast("Json", one), cast("Json", other)
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(one, list) and isinstance(other, list):
        first, second = cast("list[Any]", one), cast("list[Any]", other)
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(one, bool) == isinstance(other, bool) and one == other
