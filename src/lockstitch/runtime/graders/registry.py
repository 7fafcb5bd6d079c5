"""Graders by name."""

from collections.abc import Callable
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.runtime.grader import Grader
from lockstitch.runtime.graders.contains import ContainsGrader
from lockstitch.runtime.graders.exact import ExactGrader
from lockstitch.runtime.graders.json_schema import JsonSchemaGrader
from lockstitch.runtime.graders.judge import JudgeGrader

_BY_NAME: Final[dict[str, Callable[..., Grader]]] = {
    kind.name: kind for kind in (ExactGrader, ContainsGrader, JsonSchemaGrader, JudgeGrader)
}

NAMES: Final = tuple(_BY_NAME)


def grader(name: str, **parameters: Any) -> Grader:
    """The grader of this name, made with these parameters. Refused when there is none, or it does not take them."""
    kind = _BY_NAME.get(name)
    if kind is None:
        raise Refused(f"There is no grader {name!r}; there are {', '.join(NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The grader {name} does not take these parameters: {exc}") from exc
