"""`Table`: the values of many records of one class for the driver, column by column.

A conversion of a whole column takes much less time than one call per value. So bulk writes convert columns, while a
single record is converted by `Dialect.row`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.model import Column, ColumnKind, Record, codec, columns, format_time

Values = Sequence[Any]
Converted = Mapping[str, Values]
"""Columns that the caller has converted, by name."""


class Table(NamedTuple):
    """Columns of equal length, without those that have no value in any record."""

    names: tuple[str, ...]
    columns: list[Values]

    @property
    def rows(self) -> Iterable[tuple[Any, ...]]:
        """The values row by row."""
        return zip(*self.columns, strict=True)


def table_of(
    dialect: Dialect, records: Sequence[Record], left_out: frozenset[str], converted: Converted | None = None
) -> Table:
    """Return the values of records of one class, without the columns in `left_out`.

    Raises `Refused` if JSON cannot represent a value exactly.
    """
    if not records:
        return Table((), [])
    written, values = _columns(type(records[0]), left_out)
    known = converted or {}
    table: dict[str, Values] = {}
    contents = zip(*[values(record.__dict__) for record in records], strict=True)
    for column, content in zip(written, contents, strict=True):
        if column.name in known:
            table[column.name] = known[column.name]
        elif content.count(None) < len(content):
            table[column.name] = _converted(dialect, column.kind, content)
    return Table(tuple(table), list(table.values()))


@lru_cache(maxsize=64)
def _columns(
    kind: type[Record], left_out: frozenset[str]
) -> tuple[list[Column], Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    written = [column for column in columns(kind) if column.name not in left_out]
    return written, itemgetter(*[column.name for column in written])


def _converted(dialect: Dialect, kind: ColumnKind, content: Values) -> Values:
    if kind not in dialect.encoders:
        return content
    if kind is ColumnKind.UUID:
        return _ids(content)
    if kind is ColumnKind.TIME:
        return _times(content)
    if kind is ColumnKind.JSON:
        return json_texts(content)
    convert = dialect.encoders[kind]
    return [None if value is None else convert(value) for value in content]


def _ids(content: Sequence[UUID | None]) -> list[str | None]:
    try:
        return orjson.loads(orjson.dumps(content))
    except TypeError:  # a subclass of UUID
        return [None if value is None else str(value) for value in content]


_LENGTH: Final = len("2026-01-01T00:00:00.000000Z")


def _times(content: Sequence[datetime | None]) -> list[str | None]:
    """Return times as `format_time` writes them. orjson omits microseconds that are zero, and keeps time zones."""
    try:
        texts: list[str | None] = orjson.loads(orjson.dumps(content, option=orjson.OPT_UTC_Z))
    except TypeError:  # a subclass of datetime
        return [None if value is None else format_time(value) for value in content]
    return [
        text if text is None or value is None or len(text) == _LENGTH else format_time(value)
        for text, value in zip(texts, content, strict=True)
    ]


def json_texts(content: Iterable[Any]) -> list[str | None]:
    """Return values as JSON texts. None stays."""
    return [None if value is None else codec.dumps(value).decode() for value in content]
