"""`Record`: base class of every stored row. Frozen, one table, one primary key."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from lockstitch.errors import Refused
from lockstitch.model.clock import format_time

Json = dict[str, Any]
"""A JSON object."""

# Factories for fields of dataclasses that are created often. `dict[str, Any]()` takes ten times as long as `dict()`.
new_dict: Final = cast("Callable[[], dict[Any, Any]]", dict)
new_list: Final = cast("Callable[[], list[Any]]", list)
new_set: Final = cast("Callable[[], set[Any]]", set)


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone")
    return value.astimezone(UTC)


Text = Annotated[str, Field(strict=True, pattern=r"^[^\x00]*$")]
"""Text that every store can keep in a plain column.

The pattern makes the same check as `codec.check_text`, without a Python call per value.
"""

_TEXT_REASONS = {
    "string_pattern_mismatch": "A text field contains a NUL character, which cannot be stored there",
    "string_unicode": "A text field contains a lone surrogate, which is not text",
}


_COUNTS = 2**63

Count = Annotated[int, Field(ge=0, lt=_COUNTS)]
"""A whole number that every store can keep in a plain column."""


Time = Annotated[datetime, AfterValidator(_aware)]
"""A time, stored in UTC."""

Number = Annotated[float, Field(allow_inf_nan=False), AfterValidator(lambda value: value + 0.0)]
"""A number that every store can keep in a plain column: finite, and zero without a sign."""


# The slots of a pydantic model. Its class forbids to set them, and `object.__setattr__` would look each of them up.
_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class ColumnKind(StrEnum):
    """Storage type of a field. Every backend can write and read all of them."""

    UUID = "uuid"
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    JSON = "json"
    BYTES = "bytes"


class Column(NamedTuple):
    """Name and storage type of a field."""

    name: str
    kind: ColumnKind


class Record(BaseModel):
    """One row of one table. Records are immutable: a change creates a new record."""

    # Most processes use few of the classes, so each validator is built when it is first used.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        revalidate_instances="never",
        defer_build=True,
    )

    table: ClassVar[str]
    primary_key: ClassVar[tuple[str, ...]] = ("id",)
    generated: ClassVar[frozenset[str]] = frozenset()
    """Fields that the database sets if a new record has None there."""
    thread_field: ClassVar[str | None] = None
    """Field with the id of the thread that the record belongs to. The record is deleted with the thread. On SQLite and
    PostgreSQL, the foreign key of the table does this."""
    json_text_fields: ClassVar[tuple[str, ...]] = ()
    """Fields whose JSON texts the record keeps, in the order of `json_texts`."""

    def __init__(self, **values: Any) -> None:
        self._fill(values)

    def _fill(self, values: dict[str, Any]) -> None:
        """Validate `values` into this instance, as `BaseModel.__init__` does, without copying the keyword arguments."""
        try:
            self.__pydantic_validator__.validate_python(values, self_instance=self)
        except ValidationError as exc:
            raise refusal(type(self).__name__, exc) from exc

    @classmethod
    def unchecked(cls, values: dict[str, Any]) -> Self:
        """Return a record of validated values without validating them again. The record owns the dict afterwards.

        Args:
            values: Values of all fields.
        """
        record = cls.__new__(cls)
        _set_values(record, values)
        _set_fields(record, _field_names(cls))
        _set_extra(record, None)
        _set_private(record, None)
        return record

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values in some fields. The new values are not validated.

        Args:
            values: New values, by field.
        """
        return self.unchecked({**self.__dict__, **values})

    def validate_fields(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return values validated for their fields.

        Args:
            values: Values, by field.

        Raises:
            Refused: If a value is not valid, or if there is no such field.
        """
        checks = _checks(type(self))
        try:
            return {name: checks[name](value) for name, value in values.items()}
        except (KeyError, ValidationError):
            # Validation of the whole record produces the error message that names the field.
            record = type(self)(**{**self.__dict__, **values})
            return {name: getattr(record, name) for name in values}

    def json_texts(self) -> tuple[bytes | None, ...]:
        """Return the JSON texts of the fields in `json_text_fields`."""
        return ()

    def as_json(self) -> Json:
        """Return the record as plain JSON values, for files, archives, hashes and the command line."""
        return {name: _plain(value) for name, value in self.__dict__.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the record of values that `as_json` returned. They are not validated.

        Args:
            values: JSON values, by field.
        """
        return cls.unchecked({column.name: _rich(column.kind, values.get(column.name)) for column in columns(cls)})


def refusal(what: str, exc: ValidationError) -> Refused:
    """Return a validation error as `Refused`, with a message that names the fields."""
    problems = "; ".join(f"{'.'.join(map(str, error['loc'])) or what}: {_reason(error)}" for error in exc.errors())
    return Refused(f"{what} cannot be stored: {problems}. Nothing was written.")


def _reason(error: ErrorDetails) -> str:
    text = _TEXT_REASONS.get(error["type"], error["msg"])
    return text.removeprefix("Value error, ").removesuffix(". Nothing was written.")


@cache
def _field_names(kind: type[Record]) -> set[str]:
    # All records of a class share one set. They are frozen, so it never changes.
    return set(kind.model_fields)


@cache
def _checks(kind: type[Record]) -> dict[str, Callable[[Any], Any]]:
    """Return the validator of each field."""
    hints = get_type_hints(kind, include_extras=True)
    checks: dict[str, Callable[[Any], Any]] = {}
    for name in kind.model_fields:
        check = TypeAdapter[Any](hints[name]).validator.validate_python
        checks[name] = _count_check(check) if Count in (hints[name], *get_args(hints[name])) else check
    return checks


def _count_check(validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a validator of counts that calls `validate` only for values that are no plain number."""

    def check(value: Any) -> Any:
        return value if type(value) is int and 0 <= value < _COUNTS else validate(value)

    return check


@cache
def columns(kind: type[Record]) -> tuple[Column, ...]:
    """Return the columns of a record class, in the order of its fields."""
    return tuple(Column(name, _kind_of(field.annotation)) for name, field in kind.model_fields.items())


@cache
def column_kinds(kind: type[Record]) -> dict[str, ColumnKind]:
    """Return the storage type of each column, by name."""
    return dict(columns(kind))


_KINDS: dict[Any, ColumnKind] = {
    UUID: ColumnKind.UUID,
    str: ColumnKind.TEXT,
    int: ColumnKind.INTEGER,
    float: ColumnKind.NUMBER,
    bool: ColumnKind.BOOLEAN,
    datetime: ColumnKind.TIME,
    bytes: ColumnKind.BYTES,
}


def json_kind(value: Any) -> ColumnKind:
    """Return the type of a JSON value that a condition can compare: text, a number or a boolean.

    Raises `Refused` for any other value.
    """
    if isinstance(value, bool):
        return ColumnKind.BOOLEAN
    if isinstance(value, str):
        return ColumnKind.TEXT
    if isinstance(value, int | float) and math.isfinite(value):
        return ColumnKind.NUMBER
    raise Refused(f"A part of a JSON field can be compared with text, a number or a boolean, not with {value!r}.")


def _kind_of(annotation: Any) -> ColumnKind:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        return _kind_of(inner[0])
    if origin is Annotated:
        return _kind_of(get_args(annotation)[0])
    if origin is list or origin is dict:
        return ColumnKind.JSON
    if origin is Literal:
        return ColumnKind.TEXT
    return _KINDS.get(annotation, ColumnKind.JSON)


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return format_time(value)
    return value


def _rich(kind: ColumnKind, value: Any) -> Any:
    if value is None:
        return None
    if kind is ColumnKind.UUID:
        return UUID(value)
    if kind is ColumnKind.TIME:
        return datetime.fromisoformat(value)
    return value
