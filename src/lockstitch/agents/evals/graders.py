"""The graders `exact`, `contains` and `json_schema`. `grader` returns a grader by name, also those of `judges.py`."""

from collections.abc import Callable
from typing import Any, Final, cast

from lockstitch.agents.evals.grader import Case, Grade, GradedAnswer, Grader, plain, quoted, value_of
from lockstitch.agents.evals.judges import JudgeGrader, RubricGrader
from lockstitch.errors import Refused
from lockstitch.model import Json, codec


class JsonSchemaGrader:
    """Checks the structured answer, or the text as JSON, against the `schema` of the case or of the grader.

    It does not follow references to other documents, so that a dataset cannot cause requests.
    """

    name = "json_schema"
    pass_at = 1.0

    def __init__(self, schema: Any = None) -> None:
        self._schema = schema
        self._known: dict[str, Any] = {}
        if schema is not None and (problem := self._problem(schema)):
            raise Refused(f"The schema is not a valid JSON schema: {problem}.")

    @property
    def parameters(self) -> Json:
        return {} if self._schema is None else {"schema": codec.digest(self._schema)}

    def check(self, case: Case) -> str | None:
        if case.schema is None:
            return None if self._schema is not None else "`schema` is missing, and the grader has none"
        problem = self._problem(case.schema)
        return f"`schema` is not a valid JSON schema: {problem}" if problem else None

    async def grade(self, answer: GradedAnswer) -> Grade:
        schema = self._schema if answer.case.schema is None else answer.case.schema
        try:
            value = value_of(answer)
        except ValueError:
            return Grade(0.0, f"{quoted(answer.text)} is not JSON")
        try:
            problem = next(iter(sorted(self._validator(schema).iter_errors(value), key=_where)), None)
        except Exception as exc:  # a reference that cannot be resolved
            return Grade(0.0, f"the schema cannot be resolved: {plain(str(exc))[:200]}")
        if problem is None:
            return Grade(1.0)
        return Grade(0.0, f"at {_where(problem)}: {plain(problem.message)[:200]}")

    async def close(self) -> None: ...

    def _problem(self, schema: Any) -> str | None:
        validators, _ = _library()
        kind = validators.validator_for(schema, default=validators.Draft202012Validator)
        problem = next(iter(kind(kind.META_SCHEMA).iter_errors(schema)), None)
        return None if problem is None else f"at {_where(problem)}: {plain(problem.message)[:200]}"

    def _validator(self, schema: Any) -> Any:
        digest = codec.digest(schema)
        if digest not in self._known:
            validators, registry = _library()
            kind = validators.validator_for(schema, default=validators.Draft202012Validator)
            self._known[digest] = kind(schema, registry=registry)
        return self._known[digest]


def _library() -> tuple[Any, Any]:
    """Return the validators, and a registry that loads no documents."""
    try:
        import referencing
        from jsonschema import validators
    except ModuleNotFoundError as exc:
        raise Refused("The grader json_schema needs jsonschema. Run: pip install 'lockstitch[evals]'.") from exc
    return validators, cast("Any", referencing).Registry()


def _where(problem: Any) -> str:
    return str(problem.json_path)


class ExactGrader:
    """Passes if the answer equals `expected`. Spaces are ignored in text; other values are compared as JSON."""

    name = "exact"
    pass_at = 1.0

    @property
    def parameters(self) -> Json:
        return {}

    def check(self, case: Case) -> str | None:
        return "`expected` is missing" if case.expected is None else None

    async def grade(self, answer: GradedAnswer) -> Grade:
        expected = answer.case.expected
        if isinstance(expected, str):
            right = plain(answer.text) == plain(expected)
        else:
            try:
                right = _same(value_of(answer), expected)
            except ValueError:
                right = False
        return Grade(1.0) if right else Grade(0.0, f"{quoted(answer.text)} is not {quoted(expected)}")

    async def close(self) -> None: ...


def _same(item: Any, other: Any) -> bool:
    """True if two JSON values are equal. 1 and true are different in JSON, unlike in Python."""
    if isinstance(item, dict) and isinstance(other, dict):
        ours, theirs = cast("Json", item), cast("Json", other)
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(item, list) and isinstance(other, list):
        first, second = cast("list[Any]", item), cast("list[Any]", other)
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(item, bool) == isinstance(other, bool) and item == other


class ContainsGrader:
    """Passes if the answer contains every text of `expected` (one, or a list). Case and spaces are ignored.

    The score is the fraction of texts that the answer contains.
    """

    name = "contains"
    pass_at = 1.0

    @property
    def parameters(self) -> Json:
        return {}

    def check(self, case: Case) -> str | None:
        if case.expected is None:
            return "`expected` is missing"
        return (
            None if _texts(case.expected) else "`expected` must be a text or a number, or a list of those, none empty"
        )

    async def grade(self, answer: GradedAnswer) -> Grade:
        texts = _texts(answer.case.expected)
        answer_text = plain(answer.text).casefold()
        missing = [text for text in texts if plain(text).casefold() not in answer_text]
        score = (len(texts) - len(missing)) / len(texts)
        if not missing:
            return Grade(1.0)
        return Grade(score, f"{quoted(answer.text)} lacks {', '.join(map(quoted, missing[:5]))}")

    async def close(self) -> None: ...


def _texts(expected: Any) -> list[str]:
    """Return the texts of `expected`, or an empty list if it has other values."""
    values: list[Any] = cast("list[Any]", expected) if isinstance(expected, list) else [expected]
    fit = all(
        isinstance(item, str | int | float) and not isinstance(item, bool) and str(item).strip() for item in values
    )
    return [str(item) for item in values] if fit else []


_BY_NAME: Final[dict[str, Callable[..., Grader]]] = {
    kind.name: kind for kind in (ExactGrader, ContainsGrader, JsonSchemaGrader, JudgeGrader, RubricGrader)
}

NAMES: Final = tuple(_BY_NAME)


def grader(name: str, **parameters: Any) -> Grader:
    """Return a grader by name. Raises `Refused` if the name or a parameter is unknown."""
    kind = _BY_NAME.get(name)
    if kind is None:
        raise Refused(f"Unknown grader {name!r}. Choose from: {', '.join(NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The grader {name} does not take these parameters: {exc}") from exc
