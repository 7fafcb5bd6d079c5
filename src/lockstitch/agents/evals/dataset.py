"""Load the cases of an evaluation from a JSONL or CSV file. Errors name the line."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from lockstitch.agents.evals.grader import Case
from lockstitch.agents.evals.judges import criteria_of
from lockstitch.agents.evals.recorded_runs import MAX_ID
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, codec

_FIELDS: Final = ("id", "input", "expected", "schema", "rubric", "metadata")
_JSON_FIELDS: Final = ("schema", "rubric", "metadata")


def load(path: str | Path) -> list[Case]:
    """Return the cases of a file: JSONL with one case per line, or CSV with a header and one case per row.

    A case has `input` (a text, or a list of content blocks) and, if its graders need them, `expected`, `schema`
    and `rubric`. Its id is `id`, or its number. The run of the case gets its `metadata`. In CSV, `schema`, `rubric` and
    `metadata` are JSON, and other columns become metadata. Raises `NotFound` if the file does not exist, `Refused` with
    the line of an error.
    """
    file = Path(path)
    return cases(rows_of(file.name, read_file(file)), file.name)


def read_file(path: str | Path) -> bytes:
    """Return the content of a file. Raises `NotFound` if it does not exist, `Refused` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"File {path} not found.") from None
    except OSError as exc:
        raise Refused(f"{path} cannot be read: {exc.strerror or exc}.") from exc


def rows_of(name: str, content: bytes) -> list[tuple[int, Json]]:
    """Return the rows of a file with the numbers of their lines. The name ends in `.csv` if the file is CSV."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise Refused(f"{name}, line {line}: the text is not valid UTF-8.") from exc
    return list(_csv(name, text) if name.lower().endswith(".csv") else _jsonl(name, text))


def cases(rows: Iterable[tuple[int, Json]], name: str = "dataset") -> list[Case]:
    """Return the cases of numbered rows. Raises `Refused` if there are none, or two have the same id."""
    result: dict[str, Case] = {}
    for number, (line, row) in enumerate(rows, start=1):
        case = _case(name, line, number, row)
        if case.id in result:
            _refuse(name, line, f"the id {case.id!r} is already used in line {result[case.id].line}")
        result[case.id] = case
    if not result:
        raise Refused(f"{name} has no cases.")
    return list(result.values())


def digest(cases: Sequence[Case]) -> str:
    """Return a digest that is equal for datasets with the same cases in the same order."""
    values = [[case.id, case.input, case.expected, case.schema, case.metadata, case.rubric] for case in cases]
    return codec.digest([value if value[-1] is not None else value[:-1] for value in values])


def _jsonl(name: str, text: str) -> Iterator[tuple[int, Json]]:
    # Split at line feeds only: a JSON string may contain other line breaks.
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            row = codec.loads(content)
        except (ValueError, RecursionError) as exc:
            reason = exc.msg if isinstance(exc, json.JSONDecodeError) else str(exc)
            raise Refused(f"{name}, line {line}: the line is not valid JSON: {reason}.") from exc
        if not isinstance(row, dict):
            _refuse(name, line, 'a case must be a JSON object, such as {"input": "…", "expected": "…"}')
        yield line, cast("Json", row)


def _csv(name: str, text: str) -> Iterator[tuple[int, Json]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    last = 1
    try:
        header = [column.strip() for column in reader.fieldnames or ()]
        if "input" not in header:
            _refuse(name, 1, "the header has no column `input`")
        if twice := next((column for column in header if header.count(column) > 1), None):
            _refuse(name, 1, f"two columns have the name {twice!r}")
        reader.fieldnames = header
        for row in reader:
            # A row may have several lines. Errors name its first line.
            line, last = last + 1, reader.line_num
            yield line, _cells(name, line, cast("dict[str | None, Any]", row))
    except csv.Error as exc:
        raise Refused(f"{name}, line {reader.line_num}: the file is not valid CSV: {exc}.") from exc


def _cells(name: str, line: int, row: dict[str | None, Any]) -> Json:
    if None in row:
        _refuse(name, line, "the row has more cells than the header")
    result: Json = {key: value for key, value in row.items() if key in _FIELDS and value not in (None, "")}
    for field in _JSON_FIELDS:
        if field in result:
            try:
                result[field] = codec.loads(result[field])
            except (ValueError, RecursionError) as exc:
                raise Refused(f"{name}, line {line}: `{field}` is not valid JSON: {exc}.") from exc
    others = {key: value for key, value in row.items() if key and key not in _FIELDS and value not in (None, "")}
    if others and isinstance(result.get("metadata", {}), dict):
        result["metadata"] = {**others, **result.get("metadata", {})}
    return result


def _case(name: str, line: int, number: int, row: Json) -> Case:
    unknown = [key for key in row if key not in _FIELDS]
    if unknown:
        known = ", ".join(_FIELDS)
        _refuse(name, line, f"a case has no field {unknown[0]!r}. Fields: {known}. Put other data into metadata")
    value, schema, metadata = row.get("input"), row.get("schema"), row.get("metadata")
    if value is None or value in ("", []) or (isinstance(value, str) and not value.strip()):
        _refuse(name, line, "`input` is missing")
    blocks = isinstance(value, list) and all(isinstance(item, dict) for item in cast("list[Any]", value))
    if not isinstance(value, str) and not blocks:
        _refuse(name, line, "`input` must be a text or a list of content blocks")
    if schema is not None and not isinstance(schema, dict | bool):
        _refuse(name, line, "`schema` must be a JSON schema")
    if metadata is not None and not isinstance(metadata, dict):
        _refuse(name, line, "`metadata` must be a JSON object")
    if row.get("rubric") is not None:
        try:
            criteria_of(row["rubric"])
        except ValueError as exc:
            _refuse(name, line, f"`rubric` is not valid: {exc}")
    id_ = row.get("id")
    if id_ is not None and (isinstance(id_, bool) or not isinstance(id_, str | int) or not str(id_).strip()):
        _refuse(name, line, "`id` must be a text or a number")
    if id_ is not None and len(str(id_)) > MAX_ID:
        _refuse(name, line, f"`id` is longer than {MAX_ID} characters")
    try:
        codec.check_text(str(id_ or ""), "The id")
        codec.dumps(row)
    except Refused as exc:
        raise Refused(f"{name}, line {line}: {exc}") from exc
    return Case(
        id=str(number if id_ is None else id_).strip(),
        input=cast("str | list[Json]", value),
        expected=row.get("expected"),
        schema=schema,
        metadata=cast("Json", metadata or {}),
        line=line,
        rubric=row.get("rubric"),
    )


def _refuse(name: str, line: int, reason: str) -> NoReturn:
    raise Refused(f"{name}, line {line}: {reason}.")
