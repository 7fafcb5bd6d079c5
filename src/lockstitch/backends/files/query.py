"""`Find` over files: candidates, filters, order and cursor."""

import heapq
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast
from uuid import UUID

from lockstitch.backend import AnyOf, Condition, Find, Labeled, Where, conditions_on
from lockstitch.backends.files import disk, log, tables
from lockstitch.backends.files.disk import name_of
from lockstitch.backends.files.log import extent_of
from lockstitch.backends.files.transaction import Folder
from lockstitch.errors import Refused
from lockstitch.model import ColumnKind, Delivery, Json, Record, Run, Stitch, Thread, parse_time
from lockstitch.model.figures import labels_of
from lockstitch.model.record import column_kinds, json_kind

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
    """Return the matching records in order, after the cursor, up to the limit."""
    chosen = sorted(matching(records, find), key=lambda record: _key(record, find.kind.primary_key))
    fields = [field.removeprefix("-") for field in find.order]
    descending = bool(find.order) and find.order[0].startswith("-")
    if fields:
        # The sort is stable: records that compare equal stay in the order of their key.
        chosen.sort(key=lambda record: _key(record, fields), reverse=descending)
    if find.after is not None:
        behind = [_comparable(_typed(find.kind, name, value)) for name, value in zip(fields, find.after, strict=True)]
        beyond = operator.lt if descending else operator.gt
        chosen = [record for record in chosen if beyond(_key(record, fields), behind)]
    end = None if find.limit is None else find.offset + find.limit
    return chosen[find.offset : end]


def matching(records: Iterable[R], find: Find[R]) -> list[R]:
    """Return the records that meet every condition. As in SQL, comparisons with null are false."""
    test = _test_all(find.kind, find.where)
    return [record for record in records if test(record)]


def wanted_values(find: Find[Any], field: str) -> list[Any] | None:
    """Return the values that the conditions allow for a field, or None if they do not restrict it."""
    values: list[Any] | None = None
    for condition in conditions_on(find, field):
        if condition.operator in ("=", "in"):
            allowed: Sequence[Any] = condition.value if condition.operator == "in" else [condition.value]
            allowed = [_typed(find.kind, field, value) for value in allowed if value is not None]
            values = [value for value in allowed if values is None or value in values]
    return None if values is None else list(dict.fromkeys(values))


def typed_key(kind: type[Record], key: Sequence[Any]) -> list[Any]:
    """Return the values of a primary key with the types of their fields."""
    return [_typed(kind, field, value) for field, value in zip(kind.primary_key, key, strict=True)]


def _test_all(kind: type[Record], conditions: Sequence[Condition]) -> Callable[[Record], bool]:
    # `_threads` tests labels, because they are those of runs.
    plain = [item for item in conditions if not isinstance(item, Labeled)]
    tests = [_test_any(kind, item) if isinstance(item, AnyOf) else _test(kind, item) for item in plain]
    return lambda record: all(test(record) for test in tests)


def _test_any(kind: type[Record], condition: AnyOf) -> Callable[[Record], bool]:
    tests = [
        _test_all(kind, [alternative] if isinstance(alternative, Where | AnyOf | Labeled) else alternative)
        for alternative in condition.alternatives
    ]
    return lambda record: any(test(record) for test in tests)


def _test(kind: type[Record], condition: Where) -> Callable[[Record], bool]:
    field, comparison, value, path = condition
    if path:
        return _test_json(kind, condition)
    if isinstance(field, tuple):
        return _test_together(kind, field, condition)
    _kind_of(kind, field)
    if comparison == "is null":
        return lambda record: getattr(record, field) is None
    if comparison == "is not null":
        return lambda record: getattr(record, field) is not None
    if comparison == "like":
        pattern = re.compile(re.escape(value).replace("_", ".").replace("%", ".*"))
        return lambda record: pattern.fullmatch(str(getattr(record, field))) is not None
    if comparison == "contains":
        return lambda record: str(value).lower() in str(getattr(record, field) or "").lower()
    if comparison == "not starts with":
        return lambda record: not str(getattr(record, field) or "").startswith(value)
    if comparison == "in":
        value = [_typed(kind, field, item) for item in value if item is not None]
    else:
        value = _typed(kind, field, value)
    compare = _COMPARE[comparison]

    def test(record: Record) -> bool:
        own = getattr(record, field)
        return own is not None and value is not None and compare(own, value)

    return test


def _test_together(kind: type[Record], fields: tuple[str, ...], condition: Where) -> Callable[[Record], bool]:
    if condition.operator != "in":
        raise Refused(f"Several fields can only be compared with `in`, not with `{condition.operator}`.")
    wanted = {
        tuple(_typed(kind, field, value) for field, value in zip(fields, values, strict=True))
        for values in condition.value
        if None not in values
    }
    return lambda record: tuple(getattr(record, field) for field in fields) in wanted


def _test_json(kind: type[Record], condition: Where) -> Callable[[Record], bool]:
    field, comparison, value, path = condition
    if not isinstance(field, str) or _kind_of(kind, field) is not ColumnKind.JSON:
        raise Refused(f"Only a JSON field of {kind.__name__} has parts, not {field!r}.")
    if comparison in ("like", "not starts with"):
        raise Refused(f"A part of a JSON field cannot be compared with `{comparison}`.")

    def part(record: Record) -> Any:
        item: Any = getattr(record, field)
        for key in path:
            item = cast("Json", item).get(key) if isinstance(item, dict) else None
        return item

    if comparison in ("is null", "is not null"):
        return lambda record: (part(record) is None) == (comparison == "is null")
    items: Sequence[Any] = value if comparison == "in" else [value]
    wanted = [(item, json_kind(item)) for item in items]
    compare = _COMPARE["=" if comparison in ("in", "!=") else comparison]

    def meets(own: Any) -> bool:
        kind_of_own = None if isinstance(own, dict | list) else json_kind(own)
        return any(kind_of_own is kind_of_item and compare(own, item) for item, kind_of_item in wanted)

    def test(record: Record) -> bool:
        own = part(record)
        return own is not None and meets(own) != (comparison == "!=")

    return test


def _kind_of(kind: type[Record], field: str) -> ColumnKind:
    column_kind = column_kinds(kind).get(field) or _DERIVED.get(kind, {}).get(field)
    if column_kind is None:
        raise Refused(f"{kind.__name__} has no field {field!r}.")
    return column_kind


def _typed(kind: type[Record], field: str, value: Any) -> Any:
    """Return a value with the type of the field. Ids and times may be given as text."""
    column = _kind_of(kind, field)
    if column is ColumnKind.UUID and isinstance(value, str):
        return UUID(value)
    if column is ColumnKind.TIME and isinstance(value, str):
        return parse_time(value)
    return value


def _key(record: Record, fields: Sequence[str]) -> list[Any]:
    return [_comparable(getattr(record, field)) for field in fields]


def _comparable(value: datetime | Any) -> tuple[bool, Any]:
    """Return a sort key in which None comes first."""
    return (False, 0) if value is None else (True, value)


def find(folder: Folder, wanted: Find[R]) -> list[R]:
    """Return the records that `wanted` selects."""
    return select(candidates(folder, wanted), wanted)


def get(folder: Folder, kind: type[R], key: list[Any]) -> R | None:
    """Return the record with this primary key, or None."""
    where = [Where(field, "=", value) for field, value in zip(kind.primary_key, key, strict=True)]
    matches = find(folder, Find(kind, where, limit=1))
    return matches[0] if matches else None


def count(folder: Folder, find: Find[Any]) -> int:
    """Return the number of records that `find` selects, at most its limit."""
    folder.with_contents = False
    number = len(matching(candidates(folder, find), find))
    return number if find.limit is None else min(number, find.limit)


def candidates(folder: Folder, wanted: Find[R]) -> Iterable[R]:
    """Return records that include all that `wanted` selects."""
    records: Iterable[Record]
    if wanted.kind is Thread:
        records = _threads(folder, wanted)
    elif wanted.kind is Run:
        records = _runs(folder, wanted)
    elif wanted.kind is Stitch:
        records = _stitches(folder, wanted)
    elif wanted.kind is Delivery:
        records = _deliveries(folder, wanted)
    else:
        records = _side_records(folder, wanted)
    return cast("Iterable[R]", records)


def _threads(folder: Folder, find: Find[Any]) -> Iterator[Thread]:
    ids: Iterable[UUID] | None = wanted_values(find, "id")
    projects, keys = wanted_values(find, "project"), wanted_values(find, "key")
    if ids is None and projects is not None and keys is not None:
        named = (tables.thread_of_key(folder, project, key) for project in projects for key in keys)
        ids = [thread_id for thread_id in named if thread_id is not None]
    if ids is None:
        ids = tables.ids_in(folder, disk.HEADS)
    labels = {(item.name, item.value) for item in find.where if isinstance(item, Labeled)}
    for thread_id in ids:
        head = tables.head(folder, thread_id)
        if head is not None and (not labels or labels <= _labels(folder, thread_id)):
            yield head


def _labels(folder: Folder, thread_id: UUID) -> set[tuple[str, str]]:
    return {label for run in tables.runs(folder, thread_id) for label in labels_of(run)}


def _runs(folder: Folder, find: Find[Any]) -> Iterator[Run]:
    threads, ids = wanted_values(find, "thread_id"), wanted_values(find, "id")
    if ids is None:
        for thread_id in tables.ids_in(folder, disk.RUNS) if threads is None else threads:
            yield from tables.runs(folder, thread_id)
        return
    for run_id in ids:
        owners = [tables.thread_of_run(folder, run_id)] if threads is None else threads
        for thread_id in owners:
            run = tables.run(folder, thread_id, run_id) if thread_id else None
            if run is not None:
                yield run


def _stitches(folder: Folder, find: Find[Any]) -> Iterator[Stitch]:
    lowest, highest = _bounds(find, "position")
    after, _ = _bounds(find, "log_id")
    files: list[tuple[int, str]] = []
    for path in _log_files(folder, find):
        extent = extent_of(folder, path)
        if extent and extent.last >= lowest and extent.first <= highest and extent.log_id >= after:
            files.append((extent.log_id, path))
    if tuple(find.order) == ("-log_id",) and find.limit is not None:
        yield from _newest(folder, find, sorted(files, reverse=True))
        return
    ranges = ((lowest, None if highest == float("inf") else int(highest)),)
    logs = [log.each(folder, path, ranges) for _, path in files]
    threads = wanted_values(find, "thread_id")
    if tuple(find.order) == ("position",) and find.limit is not None and find.after is None and len(threads or ()) == 1:
        # Each log is sorted by position, so that the stitches after the limit are not decoded.
        by_position = heapq.merge(*logs, key=operator.attrgetter("position"))
        yield from islice(filter(_test_all(Stitch, find.where), by_position), find.offset + find.limit)
    else:
        for stitches in logs:
            yield from stitches


def _newest(folder: Folder, find: Find[Any], files: Sequence[tuple[int, str]]) -> list[Stitch]:
    """Return the newest matching stitches. It reads files with newer stitches first and stops when it has enough."""
    stitches: list[Stitch] = []
    number = (find.limit or 0) + find.offset
    for last, path in files:
        newer = [stitch for stitch in stitches if (stitch.log_id or 0) > last]
        if len(newer) >= number:
            return newer
        stitches = select([*stitches, *log.stitches(folder, path)], replace(find, offset=0, limit=number))
    return stitches


def _log_files(folder: Folder, find: Find[Any]) -> Iterator[str]:
    threads: Iterable[UUID] | None = wanted_values(find, "thread_id")
    runs = wanted_values(find, "run_id")
    if runs is None:
        for thread_id in tables.ids_in(folder, disk.LOGS) if threads is None else threads:
            yield from log.files(folder, thread_id)
        return
    for run_id in runs:
        owners = [tables.thread_of_run(folder, run_id)] if threads is None else threads
        yield from (disk.log(thread_id, run_id) for thread_id in owners if thread_id)


def _bounds(find: Find[Any], field: str) -> tuple[int, float]:
    """Return the lowest and the highest value that the conditions allow for a number."""
    lowest, highest = 0, float("inf")
    for condition in conditions_on(find, field):
        if condition.value is not None:
            if condition.operator in ("=", ">", ">="):
                lowest = max(lowest, condition.value + (condition.operator == ">"))
            if condition.operator in ("=", "<", "<="):
                highest = min(highest, condition.value)
    return lowest, highest


def _deliveries(folder: Folder, find: Find[Any]) -> Iterator[Delivery]:
    threads, ids = wanted_values(find, "thread_id"), wanted_values(find, "id")
    for thread_id in tables.ids_in(folder, disk.INBOX) if threads is None else threads:
        if ids is None:
            yield from tables.deliveries(folder, thread_id)
            continue
        for delivery_id in ids:
            delivery = tables.delivery(folder, thread_id, delivery_id)
            if delivery is not None:
                yield delivery


def _side_records(folder: Folder, wanted: Find[R]) -> Iterator[R]:
    """Return records by file name if the conditions give the whole key, else by the prefix of the name."""
    key: list[Any] = []
    for field in wanted.kind.primary_key:
        values = wanted_values(wanted, field)
        if values is None or len(values) != 1:
            return tables.records(folder, wanted.kind, key)
        key += values
    record = tables.load(folder, wanted.kind, f"{disk.record_directory(wanted.kind)}/{name_of(key)}.json")
    return iter([record] if record is not None else [])
