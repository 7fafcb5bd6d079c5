"""The graders exact, contains and JSON schema."""

import socket
from typing import Any, cast

import pytest

from lockstitch.agents.evals.grader import Case, GradedAnswer
from lockstitch.agents.evals.graders import NAMES, JsonSchemaGrader, JudgeGrader, grader
from lockstitch.errors import Refused
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def graded(text: str, expected: Any = None, schema: Any = None, output: Any = None) -> GradedAnswer:
    return GradedAnswer(Case("c", "?", expected, schema), text, output, cast("Store", None), "t")


@pytest.mark.parametrize(
    ("text", "expected", "score"),
    [
        ("4", "4", 1),
        (" four\n or so ", "four or so", 1),
        ("Four", "four", 0),
        ("4", 4, 1),
        ("4.0", 4, 1),
        ("true", 1, 0),
        ("none", 4, 0),
        ('```json\n{"b": [1, true], "a": null}\n```', {"a": None, "b": [1, True]}, 1),
        ('{"b": [1, 1]}', {"b": [1, True]}, 0),
        ('{"b": [1]}', {"b": [1, 2]}, 0),
        ('{"a": 1}', {"b": 1}, 0),
    ],
)
async def test_exact_compares_text_or_json(text: str, expected: Any, score: float) -> None:
    grade = await grader("exact").grade(graded(text, expected))
    assert grade.score == score
    assert bool(grade.reason) == (score == 0)


@pytest.mark.parametrize(
    ("text", "expected", "score"),
    [
        ("It is PARIS,\n of course", "paris, of", 1),
        ("Paris and 4", ["paris", 4], 1),
        ("Paris and Rome", ["paris", "oslo", "rome", "bonn"], 0.5),
        ("Nothing", "paris", 0),
    ],
)
async def test_contains_finds_expected_texts(text: str, expected: Any, score: float) -> None:
    assert (await grader("contains").grade(graded(text, expected))).score == score


@pytest.mark.parametrize("expected", [None, "", [], ["a", " "], {"a": 1}, True, [["a"]]])
def test_contains_rejects_invalid_expected(expected: Any) -> None:
    assert "`expected`" in (grader("contains").check(Case("c", "?", expected)) or "")


@pytest.mark.parametrize(
    ("text", "output", "reason"),
    [
        ('{"age": 3}', None, ""),
        ('```\n{"age": 3}\n```', None, ""),
        ("ignored", {"age": 3}, ""),
        ('{"age": "3"}', None, "at $.age: '3' is not of type 'integer'"),
        ("{}", None, "at $: 'age' is a required property"),
        ("no idea", None, "“no idea” is not JSON"),
    ],
)
async def test_json_schema_validates_answer(text: str, output: Any, reason: str) -> None:
    for grade in (
        await grader("json_schema").grade(graded(text, schema=PERSON, output=output)),
        await grader("json_schema", schema=PERSON).grade(graded(text, output=output)),
    ):
        assert (grade.score, grade.reason) == (0 if reason else 1, reason)


async def test_json_schema_rejects_invalid_and_remote_schemas() -> None:
    by_case = JsonSchemaGrader()
    assert "missing" in (by_case.check(Case("c", "?")) or "")
    assert "is not a valid JSON schema" in (by_case.check(Case("c", "?", schema={"type": "person"})) or "")
    assert by_case.check(Case("c", "?", schema=True)) is None
    with pytest.raises(Refused, match="not a valid JSON schema"):
        JsonSchemaGrader(schema={"type": 3})
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/person.json"
        grade = await by_case.grade(graded("{}", schema={"$ref": address}))
        assert (grade.score, "cannot be resolved" in grade.reason) == (0.0, True)
        with pytest.raises(TimeoutError):
            server.accept()


def test_grader_is_found_by_name() -> None:
    assert NAMES == ("exact", "contains", "json_schema", "judge", "rubric")
    with pytest.raises(Refused, match="Choose from: exact, contains"):
        grader("nonsense")
    with pytest.raises(Refused, match="does not take"):
        grader("exact", colour="red")
    for wrong in (0, 1.5):
        with pytest.raises(Refused, match="at most 1"):
            JudgeGrader("scripted:x.json", pass_at=wrong)
