"""`FunctionGrader`: grade answers with a Python function. `load_function` imports one by `module:name`."""

import asyncio
import inspect
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

from lockstitch.agents.evals.grader import Case, Grade, GradedAnswer
from lockstitch.agents.evals.judges import check_pass_at
from lockstitch.errors import Refused
from lockstitch.model import Json, codec

_ARGUMENTS: Final[dict[str, Callable[[GradedAnswer], Any]]] = {
    "text": lambda answer: answer.text,
    "output": lambda answer: answer.text if answer.output is None else answer.output,
    "expected": lambda answer: answer.case.expected,
    "input": lambda answer: answer.case.input,
    "metadata": lambda answer: answer.case.metadata,
    "case": lambda answer: answer.case,
    "answer": lambda answer: answer,
}


class FunctionGrader:
    """Grades with a function, sync or async. A sync function runs in a thread.

    The function names the values that it needs as its parameters: `text` (the answer), `output` (the structured answer,
    or the text), `expected`, `input`, `metadata`, `case` (a `Case`) or `answer` (a `GradedAnswer`). It returns True or
    False, a number from 0 to 1, or a dict with `score` and `reason`. After a crash it may grade the same answer again.

    If it raises, or returns another value, the score is 0 and the reason is the problem.
    """

    def __init__(self, function: Callable[..., Any], *, name: str | None = None, pass_at: float = 0.5) -> None:
        check_pass_at(pass_at)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.pass_at = pass_at
        self._function = function
        self._arguments = _arguments_of(function, self.name)

    @property
    def parameters(self) -> Json:
        """The name of the function and the digest of its source. A changed function starts a new evaluation."""
        named = f"{getattr(self._function, '__module__', '')}:{getattr(self._function, '__qualname__', self.name)}"
        try:
            return {"function": named, "source": codec.digest(inspect.getsource(self._function))}
        except (OSError, TypeError):
            return {"function": named}

    def check(self, case: Case) -> str | None:
        return None

    async def grade(self, answer: GradedAnswer) -> Grade:
        """Return the grade of the function."""
        arguments = {name: _ARGUMENTS[name](answer) for name in self._arguments}
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**arguments)
            else:
                value = await asyncio.to_thread(self._function, **arguments)
                value = await value if inspect.isawaitable(value) else value
        except Exception as exc:
            return Grade(0.0, f"{self.name} raised {type(exc).__name__}: {exc}")
        return _grade(value, self.name)

    async def close(self) -> None: ...


def _arguments_of(function: Callable[..., Any], name: str) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise Refused(f"The grader {name} is not a function that can be called: {exc}.") from exc
    unknown = [
        parameter.name
        for parameter in parameters
        if parameter.name not in _ARGUMENTS
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if unknown:
        known = ", ".join(_ARGUMENTS)
        raise Refused(f"The grader {name} has a parameter {unknown[0]!r}. A grader can have: {known}.")
    return [parameter.name for parameter in parameters if parameter.name in _ARGUMENTS]


def _grade(value: Any, name: str) -> Grade:
    values: Json = cast("Json", value) if isinstance(value, dict) else {"score": value}
    score = values.get("score")
    if isinstance(score, bool):
        score = float(score)
    if not isinstance(score, int | float) or not math.isfinite(score) or not 0 <= score <= 1:
        return Grade(0.0, f"{name} returned {score!r}, which is neither a boolean nor a number from 0 to 1"[:300])
    return Grade(float(score), str(values.get("reason") or ""))


def load_function(reference: str) -> Callable[..., Any]:
    """Return the function that `module:name` names. Raises `Refused` if there is none."""
    module_name, _, path = reference.partition(":")
    try:
        value: Any = import_module(module_name)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise Refused(f"The grader {reference} cannot be imported: {exc}. Use module:function.") from exc
    if not callable(value):
        raise Refused(f"The grader {reference} is not a function.")
    return value
