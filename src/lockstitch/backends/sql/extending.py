"""Named queries of an application, asked as those of the record are."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import Refused
from lockstitch.extension import Extension
from lockstitch.records import ColumnKind, Record

_KINDS: Final[Mapping[type[Any], ColumnKind]] = {
    UUID: ColumnKind.UUID,
    bool: ColumnKind.BOOLEAN,
    int: ColumnKind.INTEGER,
    float: ColumnKind.NUMBER,
    datetime: ColumnKind.TIME,
    dict: ColumnKind.JSON,
    list: ColumnKind.JSON,
}
"""How a value is kept that is no field of a record; text and bytes go as they are."""


def asked(
    dialect: Dialect, extension: Extension, name: str, parameters: Mapping[str, Any], into: type[Record] | None
) -> Script[list[Any]]:
    """The rows of a query of an extension, as tuples or as records; `dialect` is one that `speaking` made."""
    if name not in dialect.queries:
        raise Refused(f"{extension.name} has no query {name}. It has {', '.join(sorted(dialect.queries)) or 'none'}.")
    values = {key: _encoded(dialect, value) for key, value in parameters.items()}
    parts = {} if into is None else {"columns": dialect.names(into)}
    rows = yield dialect.statement(name, values, **parts)
    return [tuple(row) if into is None else dialect.decode(into, row) for row in rows]


@lru_cache(maxsize=64)
def speaking(dialect: Dialect, extension: Extension, which: str) -> Dialect:
    """The dialect with the queries of an extension instead of the record's."""
    return replace(dialect, queries=extension.queries(which))


def _encoded(dialect: Dialect, value: Any) -> Any:
    kind = next((kind for known, kind in _KINDS.items() if isinstance(value, known)), None)
    convert = None if kind is None else dialect.encoders.get(kind)
    return convert(value) if convert else value
