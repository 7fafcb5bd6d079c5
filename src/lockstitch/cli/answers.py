"""The rows of a query, as people and programs want them: a table, JSON, CSV."""

import csv
import sys
from decimal import Decimal

from lockstitch.backend import Answer
from lockstitch.cli.output import Output
from lockstitch.cli.table import Column
from lockstitch.cli.text import one_line
from lockstitch.errors import Refused
from lockstitch.records import as_id
from lockstitch.records.cells import distinct, plain, shown

FORMS = ("table", "json", "csv")


def check_form(form: str) -> None:
    if form not in FORMS:
        raise Refused(f"--format {form!r} is unknown; it is one of {', '.join(FORMS)}.")


def show(out: Output, answer: Answer, form: str) -> None:
    names = distinct(answer.columns)
    if form == "json":
        out.json([dict(zip(names, map(plain, row), strict=True)) for row in answer.rows])
    elif form == "csv":
        _write_csv(answer)
    else:
        rows = [[one_line(shown(value)) for value in row] for row in answer.rows]
        columns = [_column(answer, place, one_line(name)) for place, name in enumerate(names)]
        out.table(columns, rows)


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
