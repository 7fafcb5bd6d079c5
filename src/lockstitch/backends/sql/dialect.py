"""`Dialect`: the differences between SQLite and PostgreSQL in queries, conversions and expressions."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from lockstitch.backend import AnyOf, Condition, Find, Labeled, RecordChange, Where
from lockstitch.backends.sql.queries import Row, Statement
from lockstitch.errors import Refused
from lockstitch.model import ColumnKind, Record, columns
from lockstitch.model.record import column_kinds, json_kind

R = TypeVar("R", bound=Record)
Convert = Callable[[Any], Any]

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_VOCABULARIES = frozenset({"type", "status", "kind"})
"""Fields with fixed words as values.

The words are part of the SQL text, so that the planner can use partial indexes.
"""

_WORD = re.compile(r"[a-z_]+")
_DERIVED = {"recent_at": ColumnKind.TIME}

MANY = 500
"""Number of values above which a list becomes one array parameter, if the database supports it.

The number of parameters of a statement is limited.
"""


@lru_cache(maxsize=512)
def id_text(value: UUID) -> str:
    """Return the text of an id. A commit encodes most of the ids of the commit before it."""
    try:
        # The same text as str(value), in a third of the time.
        return orjson.dumps(value)[1:-1].decode()
    except TypeError:  # a subclass of UUID
        return str(value)


class RowEncoders(NamedTuple):
    """The conversion of a record to a row: the values of its columns, the places of those that are converted, and the
    places of those whose JSON texts the record keeps."""

    values: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    converted: Sequence[tuple[int, Convert]]
    texts: Sequence[int]


@dataclass(frozen=True)
class Target:
    """Where records of a class are written: the table, the value expression of each column, and the key."""

    table: str
    values: Mapping[str, str]
    key: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dialect:
    """Queries, conversions and expressions of one database."""

    queries: Mapping[str, str]
    now: str
    expired: str
    words: Mapping[str, str]
    """Replacements for the parts of a query that all statements fill in the same way, such as hints and collations."""
    encoders: Mapping[ColumnKind, Convert]
    decoders: Mapping[ColumnKind, Convert]
    mark: Callable[[str], str]
    """Return a named parameter in the notation of the driver."""
    clock_parameters: Callable[[], dict[str, Any]]
    """Return the parameters that `now` refers to."""
    targets: Mapping[type[Record], Target]
    """Targets of record classes that are not written directly to their own table."""
    json_path: Callable[[str, Sequence[str], str], tuple[str, dict[str, Any]]]
    """Return the place in a JSON field, for the queries `json_…`, and its parameters. The last argument is a prefix of
    their names."""
    unnest: Callable[[str, ColumnKind], str] | None = None
    """Return a query for the values of an array parameter. None if the database has no arrays."""
    list_index: Callable[[Find[Any]], str] | None = None
    """Return the index that a list or a count of threads reads, or an empty text. None if the planner chooses."""

    def target(self, kind: type[Record]) -> Target:
        """Return where records of a class are written."""
        value = self.targets.get(kind)
        if value is not None:
            return value
        return Target(kind.table, {name: f":{name}" for name, _ in columns(kind)}, kind.primary_key)

    def statement(self, name: str, parameters: dict[str, Any], **parts: str) -> Statement:
        """Return a named query with its parts filled in and its parameters."""
        return self.bound(self.text(name, **parts), parameters)

    def text(self, name: str, **parts: str) -> str:
        """Return the text of a named query with its parts filled in, in the notation of the driver."""
        return self._text(name, tuple(parts.items()))

    def bound(self, text: str, parameters: dict[str, Any]) -> Statement:
        """Return a text with its parameters, and with those of the clock if the text uses the time."""
        if self._uses_clock(text):
            parameters = {**self.clock_parameters(), **parameters}
        return Statement(text, parameters)

    def encode(self, kind: type[Record], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields of a record as values for the driver."""
        encoded, encoders = dict(values), self._encoders(kind)
        for name, value in values.items():
            if value is not None and (convert := encoders[name]) is not None:
                encoded[name] = convert(value)
        return encoded

    def row(self, record: Record, left_out: frozenset[str]) -> list[Any]:
        """Return the values of a record for the driver, in the order of its columns, without those in `left_out`."""
        values, converted, texts = self._row_encoders(type(record), left_out)
        row = list(values(record.__dict__))
        for place, convert in converted:
            value = row[place]
            if value is not None:
                row[place] = convert(value)
        if texts:
            for place, text in zip(texts, record.json_texts(), strict=True):
                row[place] = None if text is None else text.decode()
        return row

    def decode(self, kind: type[R], row: Row) -> R:
        """Return the record of a row with the columns `names(kind)`."""
        names, converted = self._decoders(kind)
        values = dict(zip(names, row, strict=True))
        for name, convert in converted:
            value = values[name]
            if value is not None:
                values[name] = convert(value)
        return kind.unchecked(values)

    def decode_time(self, value: Any) -> Any:
        """Return a time of a row, or None."""
        convert = self.decoders.get(ColumnKind.TIME)
        return value if value is None or convert is None else convert(value)

    def decode_id(self, value: Any) -> UUID:
        """Return the UUID of a value that the driver returned."""
        convert = self.decoders.get(ColumnKind.UUID)
        return convert(value) if convert else value

    @cached_property
    def encode_id(self) -> Callable[[UUID], Any]:
        """The function that converts a UUID for the driver."""
        return self.encoders[ColumnKind.UUID]

    # Statements from the columns of a record

    def insert(self, record: Record, name: str = "insert") -> Statement:
        """Return the statement that inserts a record (`insert`, `upsert` or `keep`), without empty generated fields."""
        kind, values = type(record), record.__dict__
        unset = frozenset(field for field in kind.generated if values[field] is None)
        return Statement(self._insert_text(kind, name, unset), self.encode(kind, values))

    def upsert_name(self, kind: type[Record]) -> str:
        """Return the query that replaces a record: `keep` if its class has only key columns."""
        return "upsert" if set(self.target(kind).values) - set(self.target(kind).key) else "keep"

    def changes(self, names: Sequence[str]) -> str:
        """Return the assignments of an UPDATE."""
        return ", ".join(f"{name} = :{name}" for name in names)

    def select(self, find: Find[Any]) -> Statement:
        """Return the SELECT of the records that `find` selects."""
        where, parameters = self._where(find)
        if find.after is not None:
            comparison, values = self._after(find)
            where = f"{where} AND {comparison}" if where else f" WHERE {comparison}"
            parameters |= values
        limit = ""
        if find.limit is not None:
            limit = " LIMIT :row_limit"
            parameters["row_limit"] = find.limit
        if find.offset:
            # SQLite accepts OFFSET only after a LIMIT.
            limit = f"{limit or ' LIMIT 9223372036854775807'} OFFSET :row_offset"
            parameters["row_offset"] = find.offset
        index = self.list_index(find) if self.list_index is not None else ""
        return self.statement(
            "select_listed" if index else "select",
            parameters,
            index=index,
            columns=self.names(find.kind),
            table=find.kind.table,
            where=where,
            order=_order(find.order),
            limit=limit,
        )

    def count(self, find: Find[Any]) -> Statement:
        """Return the statement that counts the records that `find` selects, at most its limit."""
        where, parameters = self._where(find)
        # A view joins other tables, which a count of all records does not need.
        table = find.kind.table if find.where else self.target(find.kind).table
        if find.limit is None:
            return self.statement("count", parameters, table=table, where=where)
        index = self.list_index(find) if self.list_index is not None else ""
        by_index = f" INDEXED BY {index}" if index else ""
        parameters["row_limit"] = find.limit
        return self.statement("count_some", parameters, table=table, by_index=by_index, where=where)

    def delete(self, find: Find[Any], table: str | None = None) -> Statement:
        """Return the statement that deletes the records that `find` selects."""
        where, parameters = self._where(find)
        return self.statement("delete", parameters, table=table or find.kind.table, where=where)

    def change_record(self, change: RecordChange) -> Statement:
        """Return the statement that changes a record that is as its writer saw it. It returns a row if there is one."""
        where, parameters = self._where(change.find)
        parameters |= self.encode(change.kind, change.fields)
        changes = self.changes(list(change.fields))
        return self.statement("record_change", parameters, table=change.kind.table, changes=changes, where=where)

    def among(
        self, ids: Sequence[Any], prefix: str = "id", kind: ColumnKind = ColumnKind.UUID
    ) -> tuple[str, dict[str, Any]]:
        """Return the inside of an `IN (…)` and its parameters."""
        if self.unnest is not None and len(ids) > MANY:
            return self.unnest(prefix, kind), {prefix: list(ids)}
        named = {f"{prefix}_{number}": value for number, value in enumerate(ids)}
        return ", ".join(f":{name}" for name in named), named

    @staticmethod
    def names(kind: type[Record]) -> str:
        """Return the columns of a class, for a SELECT."""
        return ", ".join(name for name, _ in columns(kind))

    def _where(self, find: Find[Any]) -> tuple[str, dict[str, Any]]:
        text, parameters = self._all_of(find.kind, find.where, "w")
        return (f" WHERE {text}" if text else ""), parameters

    def _all_of(self, kind: type[Record], conditions: Sequence[Condition], name: str) -> tuple[str, dict[str, Any]]:
        texts: list[str] = []
        parameters: dict[str, Any] = {}
        labeled = "labeled_each" if any(_of_ids(condition) for condition in conditions) else "labeled"
        for number, condition in enumerate(conditions):
            mark = f"{name}{number}"
            if isinstance(condition, AnyOf):
                text, values = self._any_of(kind, condition, mark)
            elif isinstance(condition, Labeled):
                text = self.queries[labeled].replace("{mark}", mark)
                values = {f"{mark}_name": condition.name, f"{mark}_value": condition.value}
            else:
                text, values = self._condition(kind, condition, mark)
            texts.append(text)
            parameters |= values
        return " AND ".join(texts), parameters

    def _any_of(self, kind: type[Record], condition: AnyOf, name: str) -> tuple[str, dict[str, Any]]:
        texts: list[str] = []
        parameters: dict[str, Any] = {}
        for number, alternative in enumerate(condition.alternatives):
            conditions = [alternative] if isinstance(alternative, Where | AnyOf | Labeled) else alternative
            text, values = self._all_of(kind, conditions, f"{name}_{number}_")
            texts.append(f"({text or '1 = 1'})")
            parameters |= values
        return f"({' OR '.join(texts) or '1 = 0'})", parameters

    def _condition(self, kind: type[Record], condition: Where, name: str) -> tuple[str, dict[str, Any]]:
        field, operator, value, path = condition
        if path:
            return self._json_condition(kind, condition, name)
        if isinstance(field, tuple):
            return self._together(kind, field, condition, name)
        if operator in ("is null", "is not null"):
            return f"{field} {operator.upper()}", {}
        if field in _VOCABULARIES and (words := _words(value)):
            return f"{field} {operator} {words}", {}
        if operator == "like":
            return f"CAST({field} AS TEXT) LIKE :{name}", {name: value}
        if operator == "contains":
            return self.queries["contains"].replace("{field}", field).replace("{mark}", name), {name: value}
        if operator == "not starts with":
            return f"coalesce(substr({field}, 1, {len(value)}), '') <> :{name}", {name: value}
        if operator != "in":
            return f"{field} {operator} :{name}", {name: self._encode_value(kind, field, value)}
        values = [self._encode_value(kind, field, item) for item in value]
        if not values:
            return "1 = 0", {}
        marks, parameters = self.among(values, name, self._column(kind, field))
        return f"{field} IN ({marks})", parameters

    def _together(
        self, kind: type[Record], fields: tuple[str, ...], condition: Where, name: str
    ) -> tuple[str, dict[str, Any]]:
        """Return the condition that several fields together have one of several values."""
        if condition.operator != "in":
            raise Refused(f"Several fields can only be compared with `in`, not with `{condition.operator}`.")
        rows: list[str] = []
        parameters: dict[str, Any] = {}
        for number, values in enumerate(condition.value):
            row = {
                f"{name}_{number}_{place}": self._encode_value(kind, field, value)
                for place, (field, value) in enumerate(zip(fields, values, strict=True))
            }
            rows.append(f"({', '.join(f':{mark}' for mark in row)})")
            parameters |= row
        return (f"({', '.join(fields)}) IN ({{rows}}{', '.join(rows)})" if rows else "1 = 0"), parameters

    def _json_condition(self, kind: type[Record], condition: Where, name: str) -> tuple[str, dict[str, Any]]:
        field, operator, value, path = condition
        if not isinstance(field, str) or self._column(kind, field) is not ColumnKind.JSON:
            raise Refused(f"Only a JSON field of {kind.__name__} has parts, not {field!r}.")
        place, parameters = self.json_path(field, path, name)

        def part(json: str) -> str:
            return self.queries[f"json_{json}"].replace("{place}", place)

        def compared(mark: str, item: Any, comparison: str) -> str:
            kind_of_item = json_kind(item)
            convert = self.encoders.get(kind_of_item)
            parameters[mark] = convert(item) if convert else item
            return f"{part(kind_of_item)} {comparison} :{mark}"

        if operator == "is null":
            return f"NOT coalesce({part('present')}, FALSE)", parameters
        if operator == "is not null":
            return f"coalesce({part('present')}, FALSE)", parameters
        if operator == "!=":
            return f"({part('present')} AND NOT coalesce({compared(name, value, '=')}, FALSE))", parameters
        if operator in ("like", "not starts with"):
            raise Refused(f"A part of a JSON field cannot be compared with `{operator}`.")
        if operator != "in":
            return compared(name, value, operator), parameters
        texts = [compared(f"{name}_{number}", item, "=") for number, item in enumerate(value)]
        return f"({' OR '.join(texts) or '1 = 0'})", parameters

    def _after(self, find: Find[Any]) -> tuple[str, dict[str, Any]]:
        fields = [field.removeprefix("-") for field in find.order]
        sign = "<" if find.order[0].startswith("-") else ">"
        parameters = {
            f"after_{field}": self._encode_value(find.kind, field, value)
            for field, value in zip(fields, find.after or (), strict=True)
        }
        return (
            f"({', '.join(fields)}) {sign} ({', '.join(f':after_{field}' for field in fields)})",
            parameters,
        )

    def _encode_value(self, kind: type[Record], field: str, value: Any) -> Any:
        if value is None:
            return None
        convert = self.encoders.get(self._column(kind, field))
        return convert(value) if convert else value

    @staticmethod
    def _column(kind: type[Record], field: str) -> ColumnKind:
        return column_kinds(kind).get(field) or _DERIVED[field]

    # Cached per form of statement

    @cached_property
    def _text(self) -> Callable[[str, tuple[tuple[str, str], ...]], str]:
        @lru_cache(maxsize=1024)
        def text(name: str, parts: tuple[tuple[str, str], ...]) -> str:
            filled = self.queries[name]
            for part, value in (*parts, *self.words.items(), ("expired", self.expired), ("now", self.now)):
                filled = filled.replace("{" + part + "}", value)
            return _PARAMETER.sub(lambda match: self.mark(match[1]), filled)

        return text

    @cached_property
    def _uses_clock(self) -> Callable[[str], bool]:
        marks = [self.mark(name) for name in self.clock_parameters()]

        @lru_cache(maxsize=1024)
        def asks(text: str) -> bool:
            return any(mark in text for mark in marks)

        return asks

    @cached_property
    def _insert_text(self) -> Callable[[type[Record], str, frozenset[str]], str]:
        @lru_cache(maxsize=256)
        def text(kind: type[Record], name: str, unset: frozenset[str]) -> str:
            target = self.target(kind)
            values = {column: value for column, value in target.values.items() if column not in unset}
            changed = [column for column in values if column not in target.key]
            parts = {
                "table": target.table,
                "columns": ", ".join(values),
                "values": ", ".join(values.values()),
                "key": ", ".join(target.key),
                "changes": ", ".join(f"{column} = excluded.{column}" for column in changed),
            }
            return self._text(name, tuple(parts.items()))

        return text

    @cached_property
    def _encoders(self) -> Callable[[type[Record]], dict[str, Convert | None]]:
        @lru_cache(maxsize=64)
        def encoders(kind: type[Record]) -> dict[str, Convert | None]:
            return {name: self.encoders.get(column) for name, column in columns(kind)}

        return encoders

    @cached_property
    def _row_encoders(self) -> Callable[[type[Record], frozenset[str]], RowEncoders]:
        @lru_cache(maxsize=64)
        def encoders(kind: type[Record], left_out: frozenset[str]) -> RowEncoders:
            written = [column for column in columns(kind) if column.name not in left_out]
            names = [column.name for column in written]
            converts = [
                None if column.name in kind.json_text_fields else self.encoders.get(column.kind) for column in written
            ]
            return RowEncoders(
                itemgetter(*names),
                [(place, convert) for place, convert in enumerate(converts) if convert is not None],
                [names.index(name) for name in kind.json_text_fields],
            )

        return encoders

    @cached_property
    def _decoders(self) -> Callable[[type[Record]], tuple[Sequence[str], Sequence[tuple[str, Convert]]]]:
        @lru_cache(maxsize=64)
        def decoders(kind: type[Record]) -> tuple[Sequence[str], Sequence[tuple[str, Convert]]]:
            known = columns(kind)
            converted = [(name, self.decoders[column]) for name, column in known if column in self.decoders]
            return [name for name, _ in known], converted

        return decoders


def _of_ids(condition: Condition) -> bool:
    """True if the condition selects records by id."""
    return isinstance(condition, Where) and condition.field == "id" and condition.operator in ("=", "in")


def _words(value: Any) -> str:
    """Return plain words as SQL literals, or an empty text if they must be parameters."""
    words: list[Any] = [value] if isinstance(value, str) else list(value)
    if not words or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        return ""
    text = ", ".join(f"'{word}'" for word in words)
    return text if isinstance(value, str) else f"({text})"


def _order(order: Sequence[str]) -> str:
    if not order:
        return ""
    fields = (f"{field[1:]} DESC" if field.startswith("-") else field for field in order)
    return f" ORDER BY {', '.join(fields)}"
