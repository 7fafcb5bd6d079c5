"""Contains: what was expected stands somewhere in the answer."""

from typing import Any, cast

from lockstitch.records import Json
from lockstitch.runtime.grader import Answered, Case, Grade
from lockstitch.runtime.graders.text import plain, quoted


class ContainsGrader:
    """Every text of `expected` (one, or a list) stands in the answer; case, spaces and breaks are no difference.

    The score is the part of them that does.
    """

    name = "contains"
    pass_at = 1.0

    @property
    def parameters(self) -> Json:
        return {}

    def check(self, case: Case) -> str | None:
        if case.expected is None:
            return "`expected` is missing"
        return None if _wanted(case.expected) else "`expected` is a text or a number, or a list of those, none empty"

    async def grade(self, answered: Answered) -> Grade:
        wanted = _wanted(answered.case.expected)
        said = plain(answered.text).casefold()
        missing = [text for text in wanted if plain(text).casefold() not in said]
        score = (len(wanted) - len(missing)) / len(wanted)
        if not missing:
            return Grade(1.0)
        return Grade(score, f"{quoted(answered.text)} lacks {', '.join(map(quoted, missing[:5]))}")

    async def close(self) -> None: ...


def _wanted(expected: Any) -> list[str]:
    """The texts to look for; none when `expected` holds something else."""
    given: list[Any] = cast("list[Any]", expected) if isinstance(expected, list) else [expected]
    fit = all(isinstance(one, str | int | float) and not isinstance(one, bool) and str(one).strip() for one in given)
    return [str(one) for one in given] if fit else []
