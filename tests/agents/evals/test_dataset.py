"""Datasets from files, and errors with line numbers."""

from pathlib import Path

import pytest

from lockstitch.agents.evals.dataset import digest, load
from lockstitch.errors import NotFound, Refused


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_loads_jsonl(tmp_path: Path) -> None:
    blocks = '{"id": 7, "input": [{"type": "text", "text": "x"}], "schema": {}, "metadata": {"a": 1}}'
    text = '\ufeff{"input": "Hi", "expected": "Ho"}\r\n\n' + blocks + '\n{"input": "a\u2028b"}'
    first, second, third = load(written(tmp_path, "d.jsonl", text))
    assert (first.id, first.input, first.expected, first.line) == ("1", "Hi", "Ho", 1)
    assert (second.id, second.schema, second.metadata, second.line) == ("7", {}, {"a": 1}, 3)
    assert (third.id, third.input, third.line) == ("3", "a\u2028b", 4)


def test_loads_csv(tmp_path: Path) -> None:
    rows = ('a,"Two\nlines",x,,,easy', ',Hi,,"{""type"": ""object""}","{""level"": 3}",hard')
    text = "\n".join(("id,input,expected,schema,metadata,level", *rows, ""))
    first, second = load(written(tmp_path, "d.csv", text))
    assert (first.id, first.input, first.expected, first.line) == ("a", "Two\nlines", "x", 2)
    assert first.metadata == {"level": "easy"}
    assert (second.id, second.expected, second.schema, second.metadata) == ("2", None, {"type": "object"}, {"level": 3})
    assert second.line == 4, "where it starts"


def test_digest_ignores_line_numbers(tmp_path: Path) -> None:
    cases = load(written(tmp_path, "a.jsonl", '{"id": "x", "input": "Hi", "expected": "Ho"}'))
    other_cases = load(written(tmp_path, "b.csv", "id,input,expected\nx,Hi,Ho\n"))
    assert digest(cases) == digest(other_cases)
    assert digest(cases) != digest(load(written(tmp_path, "c.jsonl", '{"id": "x", "input": "Hi"}')))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.jsonl", "", "d.jsonl has no cases"),
        ("d.jsonl", '{"input": "a"}\n{"input": ', "line 2: the line is not valid JSON"),
        ("d.jsonl", "[1]", "line 1: a case must be a JSON object"),
        ("d.jsonl", '{"expected": "a"}', "line 1: `input` is missing"),
        ("d.jsonl", '{"input": "  "}', "`input` is missing"),
        ("d.jsonl", '{"input": 5}', "`input` must be a text or a list"),
        ("d.jsonl", '{"input": [1]}', "`input` must be a text or a list"),
        ("d.jsonl", '{"input": "a", "expcted": "b"}', "no field 'expcted'"),
        ("d.jsonl", '{"input": "a", "schema": "x"}', "`schema` must be a JSON schema"),
        ("d.jsonl", '{"input": "a", "metadata": []}', "`metadata` must be a JSON object"),
        ("d.jsonl", '{"input": "a", "id": ""}', "`id` must be a text or a number"),
        ("d.jsonl", '{"input": "a", "id": true}', "`id` must be a text or a number"),
        ("d.jsonl", '{"input": "a", "id": "' + "x" * 101 + '"}', "longer than 100"),
        ("d.jsonl", '{"input": "a", "id": "x\\u0000"}', "line 1: The id contains a NUL"),
        ("d.jsonl", '{"input": "a\\ud800"}', "line 1: the line is not valid JSON"),
        (
            "d.jsonl",
            '{"input": "a", "id": 1}\n\n{"input": "b", "id": "1"}',
            "line 3: the id '1' is already used in line 1",
        ),
        ("d.jsonl", '{"input": "a"}\n{"input": "b", "id": "1"}', "line 2: the id '1' is already used in line 1"),
        ("d.jsonl", b'{"input": "a"}\n\xff', "line 2: the text is not valid UTF-8"),
        ("d.csv", "", "line 1: the header has no column `input`"),
        ("d.csv", "question,expected\na,b\n", "line 1: the header has no column `input`"),
        ("d.csv", "input,input\na,b\n", "two columns have the name 'input'"),
        ("d.csv", "input\n", "has no cases"),
        ("d.csv", "input,expected\na,b,c\n", "line 2: the row has more cells than the header"),
        ("d.csv", "input,schema\na,{\n", "line 2: `schema` is not valid JSON"),
        ("d.csv", 'input\n"a\n', "the file is not valid CSV"),
    ],
)
def test_error_names_its_line(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        load(written(tmp_path, name, text))
    assert message in str(refused.value)


def test_rejects_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load(tmp_path / "none.jsonl")
    with pytest.raises(Refused, match="cannot be read"):
        load(tmp_path)
