"""JSON schema: the answer is JSON of a certain shape. Needs the extra `evals`, from the first use on."""

from typing import Any, cast

from lockstitch.errors import Refused
from lockstitch.records import Json, codec
from lockstitch.runtime.grader import Answered, Case, Grade
from lockstitch.runtime.graders.text import plain, quoted, value_of


class JsonSchemaGrader:
    """The structured answer, or the text as JSON, follows the case's `schema`, or the one for all cases.

    References to other documents are not followed: a dataset makes nobody call anywhere.
    """

    name = "json_schema"
    pass_at = 1.0

    def __init__(self, schema: Any = None) -> None:
        self._schema = schema
        self._known: dict[str, Any] = {}
        if schema is not None and (problem := self._problem(schema)):
            raise Refused(f"This is no JSON schema: {problem}.")

    @property
    def parameters(self) -> Json:
        return {} if self._schema is None else {"schema": codec.digest(self._schema)}

    def check(self, case: Case) -> str | None:
        if case.schema is None:
            return None if self._schema is not None else "`schema` is missing, and none is given for all cases"
        problem = self._problem(case.schema)
        return f"`schema` is no JSON schema: {problem}" if problem else None

    async def grade(self, answered: Answered) -> Grade:
        schema = self._schema if answered.case.schema is None else answered.case.schema
        try:
            value = value_of(answered)
        except ValueError:
            return Grade(0.0, f"{quoted(answered.text)} is no JSON")
        try:
            problem = next(iter(sorted(self._validator(schema).iter_errors(value), key=_where)), None)
        except Exception as exc:  # a reference that leads nowhere, or to another document
            return Grade(0.0, f"the schema cannot be followed: {plain(str(exc))[:200]}")
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
        mark = codec.digest(schema)
        if mark not in self._known:
            validators, registry = _library()
            kind = validators.validator_for(schema, default=validators.Draft202012Validator)
            self._known[mark] = kind(schema, registry=registry)
        return self._known[mark]


def _library() -> tuple[Any, Any]:
    """The validators, and a registry that looks nowhere else."""
    try:
        import referencing
        from jsonschema import validators
    except ModuleNotFoundError as exc:
        raise Refused("Grading by a JSON schema needs jsonschema: pip install 'lockstitch[evals]'.") from exc
    return validators, cast("Any", referencing).Registry()


def _where(problem: Any) -> str:
    return str(problem.json_path)
