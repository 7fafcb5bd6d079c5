"""The tables of docs/requirements/proofs: one row per line. Every named test exists, and one of them carries the id."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tools.requirements import read_list

ROOT = Path(__file__).resolve().parents[2]
LISTS = sorted((ROOT / "docs" / "requirements").glob("[0-9]*.md"))

_ROW = re.compile(r"\| (?P<id>[SX]\d-\d+) \| (?P<tests>.*?) \| .+ \| (proven|corrected|benchmark|partly: .+) \|")


def rows(path: Path) -> list[tuple[str, list[str]]]:
    """Return the id of each row of a table, and the tests that it names."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"\| [SX]\d", line)]
    matches = [_ROW.fullmatch(line) for line in lines]
    assert None not in matches, [line for line, match in zip(lines, matches, strict=True) if match is None]
    return [(match["id"], match["tests"].replace("`", "").split("<br>")) for match in matches if match is not None]


@cache
def marks(path: Path) -> dict[str, set[str]]:
    """Return the requirement ids of each test function of a file, by its name without the class."""
    ids: dict[str, set[str]] = {}

    def visit(body: list[ast.stmt], inherited: set[str]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, inherited | _ids(node.decorator_list))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                ids[node.name] = inherited | _ids(node.decorator_list)

    module = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [node.value for node in module.body if isinstance(node, ast.Assign)]
    visit(module.body, _ids(assigned))
    return ids


def _ids(nodes: list[ast.expr]) -> set[str]:
    calls = [node for expression in nodes for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return {
        str(argument.value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "req"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_line_has_one_row(path: Path) -> None:
    table = rows(path.parent / "proofs" / path.name)
    assert [id for id, _ in table] == [line.id for line in read_list(path).lines]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_named_tests_exist_and_one_carries_the_id(path: Path) -> None:
    problems: list[str] = []
    for id, tests in rows(path.parent / "proofs" / path.name):
        named = [test.partition("::") for test in tests]
        problems += [f"{id}: {file} does not exist" for file, _, _ in named if not (ROOT / file).is_file()]
        in_tests = [(ROOT / file, name.rpartition("::")[2]) for file, _, name in named if file.startswith("tests/")]
        ids = [marks(file).get(name) for file, name in in_tests]
        if None in ids:
            problems.append(f"{id}: a test of {tests} does not exist")
        elif ids and not any(id in test_ids for test_ids in ids if test_ids):
            problems.append(f"{id}: no test of {tests} carries the id")
    assert problems == []
