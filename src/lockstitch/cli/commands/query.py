"""`sql`: one read-only statement over the core tables."""

import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import typer

from lockstitch.backend import Answer
from lockstitch.cli.parameters import Limit, examples
from lockstitch.cli.session import session_of
from lockstitch.cli.table import Column
from lockstitch.cli.text import one_line
from lockstitch.errors import Refused
from lockstitch.records import as_id, codec, format_time

app = typer.Typer()

_JSON = (str, int, float, bool, list, dict, type(None))


@app.command(
    epilog=examples(
        'lockstitch sql "SELECT status, count(*) FROM threads GROUP BY status"',
        'lockstitch sql "SELECT id, input_tokens FROM runs" --format csv > runs.csv',
    )
)
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT.", show_default=False)],
    limit: Limit = 1000,
    seconds: Annotated[float, typer.Option(min=0.001, max=86_400, metavar="S", help="Stop it after so long.")] = 10.0,
    form: Annotated[str, typer.Option("--format", metavar="F", help="table, json or csv.")] = "table",
) -> None:
    """Ask the core tables in SQL. It cannot write.

    The tables are threads, runs, stitches and what hangs off them. Of a store of files a copy in memory is asked.
    """
    session = session_of(context)
    if form not in ("table", "json", "csv"):
        raise Refused(f"--format {form!r} is unknown; it is one of table, json, csv.")
    if not query.strip():
        raise Refused("There is no query. Write a SELECT.")
    with session.open() as store:
        answer = store.sql(query, limit=limit, seconds=seconds)
    names = distinct(answer.columns)
    if session.as_json or form == "json":
        session.out.json([dict(zip(names, map(plain, row), strict=True)) for row in answer.rows])
    elif form == "csv":
        _write_csv(answer)
    else:
        rows = [[one_line(shown(value)) for value in row] for row in answer.rows]
        columns = [_column(answer, place, one_line(name)) for place, name in enumerate(names)]
        session.out.table(columns, rows)
    if answer.more:
        session.out.note(f"Only the first {limit} rows; --limit gives more.")


def distinct(columns: Sequence[str]) -> list[str]:
    """Names that can be the keys of an object: a second `id` becomes `id_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def plain(value: Any) -> Any:
    """A database's value as JSON has it."""
    if isinstance(value, datetime):
        return format_time(value) if value.tzinfo else value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    return value if type(value) in _JSON else str(value)


def shown(value: Any) -> str:
    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else codec.dumps(value).decode()


def _write_csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([shown(value) for value in row] for row in answer.rows)


def _column(answer: Answer, place: int, name: str) -> Column:
    """Numbers to the right; what people may want to copy, which is ids, whole."""
    values = [row[place] for row in answer.rows if row[place] is not None]
    numbers = bool(values) and all(isinstance(value, int | float | Decimal) for value in values)
    ids = bool(values) and all(as_id(str(value)) for value in values)
    return Column(name, right=numbers, flexible=not numbers and not ids)
