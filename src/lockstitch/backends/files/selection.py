"""Conditions, order and cursor as a database means them, over records in memory."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.errors import Refused
from lockstitch.records import ColumnKind, Record, Thread, parse_time
from lockstitch.records.record import column_kinds

R = TypeVar("R", bound=Record)

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, wanted: value in wanted,
}
_DERIVED: Mapping[type[Record], Mapping[str, ColumnKind]] = {Thread: {"recent_at": ColumnKind.TIME}}


def select(records: Iterable[R], find: Find[R]) -> list[R]:
    """The records that fit, in order, from behind the cursor, as many as wanted."""
    chosen = sorted(matching(records, find), key=lambda record: _key(record, find.kind.primary_key))
    fields = [field.removeprefix("-") for field in find.order]
    descending = bool(find.order) and find.order[0].startswith("-")
    if fields:
        # Sorting is stable: what is equal stays in the order of its key.
        chosen.sort(key=lambda record: _key(record, fields), reverse=descending)
    if find.after is not None:
        behind = [_comparable(_typed(find.kind, name, value)) for name, value in zip(fields, find.after, strict=True)]
        beyond = operator.lt if descending else operator.gt
        chosen = [record for record in chosen if beyond(_key(record, fields), behind)]
    end = None if find.limit is None else find.offset + find.limit
    return chosen[find.offset : end]


def matching(records: Iterable[R], find: Find[R]) -> list[R]:
    """The records that meet every condition; as in SQL, nothing is equal to, unequal to or beyond null."""
    tests = [_test(find.kind, condition) for condition in find.where]
    return [record for record in records if all(test(record) for test in tests)]


def wanted_values(find: Find[Any], field: str) -> list[Any] | None:
    """The values that a field can have in what `find` describes; None when it says nothing about it."""
    values: list[Any] | None = None
    for condition in find.where:
        if condition.field == field and condition.operator in ("=", "in"):
            given: Sequence[Any] = condition.value if condition.operator == "in" else [condition.value]
            given = [_typed(find.kind, field, value) for value in given if value is not None]
            values = [value for value in given if values is None or value in values]
    return None if values is None else list(dict.fromkeys(values))


def typed_key(kind: type[Record], key: Sequence[Any]) -> list[Any]:
    """The values of a primary key as the record has them."""
    return [_typed(kind, field, value) for field, value in zip(kind.primary_key, key, strict=True)]


def _test(kind: type[Record], condition: Where) -> Callable[[Record], bool]:
    field, comparison, value = condition
    _kind_of(kind, field)
    if comparison == "is null":
        return lambda record: getattr(record, field) is None
    if comparison == "is not null":
        return lambda record: getattr(record, field) is not None
    if comparison == "in":
        value = [_typed(kind, field, item) for item in value if item is not None]
    else:
        value = _typed(kind, field, value)
    compare = _COMPARE[comparison]

    def test(record: Record) -> bool:
        own = getattr(record, field)
        return own is not None and value is not None and compare(own, value)

    return test


def _kind_of(kind: type[Record], field: str) -> ColumnKind:
    found = column_kinds(kind).get(field) or _DERIVED.get(kind, {}).get(field)
    if found is None:
        raise Refused(f"{kind.__name__} has no field {field!r}.")
    return found


def _typed(kind: type[Record], field: str, value: Any) -> Any:
    """A value as the field has it: ids and times may be given as text."""
    column = _kind_of(kind, field)
    if column is ColumnKind.UUID and isinstance(value, str):
        return UUID(value)
    if column is ColumnKind.TIME and isinstance(value, str):
        return parse_time(value)
    return value


def _key(record: Record, fields: Sequence[str]) -> list[Any]:
    return [_comparable(getattr(record, field)) for field in fields]


def _comparable(value: datetime | Any) -> tuple[bool, Any]:
    """Nothing stands before everything."""
    return (False, 0) if value is None else (True, value)
