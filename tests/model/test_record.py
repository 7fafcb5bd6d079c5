"""Records: frozen, named fields, one table, one primary key."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from lockstitch.errors import Refused
from lockstitch.model import (
    OWNED_BY_THREAD,
    SIDE_RECORDS,
    Column,
    ColumnKind,
    Delivery,
    Record,
    Run,
    Stitch,
    Thread,
    Worker,
    codec,
    columns,
    new_id,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
KINDS = (Thread, Run, Stitch, Delivery, Worker, *SIDE_RECORDS)

_VALUES: dict[ColumnKind, Any] = {
    ColumnKind.UUID: UUID(int=7 << 76 | 2 << 62),
    ColumnKind.TEXT: "größer \U0001f600",
    ColumnKind.INTEGER: 2**62,
    ColumnKind.NUMBER: 0.1,
    ColumnKind.BOOLEAN: True,
    ColumnKind.TIME: NOW,
    ColumnKind.JSON: {"z": [2**70, None], "a": "\x00"},
    ColumnKind.BYTES: b"\x00\xff",
}
_LISTS = {"tasks", "waiting_for", "tags", "scopes"}


def full(kind: type[Record]) -> Record:
    """Return a record with a value in every field."""
    return kind.unchecked(
        {name: [{"of": name}] if name in _LISTS else _VALUES[column] for name, column in columns(kind)}
    )


def thread(**fields: Any) -> Thread:
    return Thread(**{"created_at": NOW, "updated_at": NOW, **fields})


@pytest.mark.parametrize("kind", KINDS)
def test_columns_have_order_of_fields(kind: type[Record]) -> None:
    assert [column.name for column in columns(kind)] == list(kind.model_fields)
    assert set(kind.primary_key) <= set(kind.model_fields)
    assert kind.table


def test_columns_have_storage_type_of_field() -> None:
    kinds = dict(columns(Thread))

    assert columns(Thread)[0] == Column("id", ColumnKind.UUID)
    assert kinds["key"] is kinds["status"] is ColumnKind.TEXT
    assert kinds["position"] is kinds["priority"] is ColumnKind.INTEGER
    assert kinds["tasks"] is kinds["result"] is kinds["extras"] is ColumnKind.JSON
    assert kinds["cancel_requested"] is ColumnKind.BOOLEAN
    assert kinds["wake_at"] is ColumnKind.TIME
    assert dict(columns(Run))["total_cost"] is ColumnKind.NUMBER


def test_every_record_class_has_separate_table() -> None:
    assert len({kind.table for kind in KINDS}) == len(KINDS)
    assert all(field in kind.model_fields for kind, field in OWNED_BY_THREAD.items())


@pytest.mark.parametrize("kind", KINDS)
def test_record_is_restored_from_its_json(kind: type[Record]) -> None:
    record = full(kind)
    values = record.as_json()

    assert kind.from_json(values) == record
    if ColumnKind.BYTES not in dict(columns(kind)).values():
        decoded = kind.from_json(codec.loads(codec.dumps(values)))
        assert decoded == record
        assert codec.dumps(decoded.as_json()) == codec.dumps(values)


@pytest.mark.parametrize("kind", KINDS)
def test_record_is_frozen(kind: type[Record]) -> None:
    record = full(kind)
    field = next(iter(kind.model_fields))

    with pytest.raises(ValidationError):
        setattr(record, field, None)


def test_changed_does_not_modify_record() -> None:
    first = thread(title="one")
    changed_thread = first.changed(title="other")

    assert (first.title, changed_thread.title) == ("one", "other")
    assert changed_thread.changed(title="one") == first
    assert type(changed_thread) is Thread


def test_records_do_not_share_default_dicts() -> None:
    first, second = thread(), thread()
    first.extras["mine"] = 1

    assert second.extras == {}
    assert thread().extras == {}


def test_times_are_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))

    assert thread(wake_at=datetime(2026, 1, 1, 2, tzinfo=east)).as_json()["wake_at"] == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"kind": "goblin"}, "kind"),
        ({"status": "aborted"}, "status"),
        ({"key": ""}, "key"),
        ({"key": "k" * 256}, "key"),
        ({"project": ""}, "project"),
        ({"goal": ""}, "goal"),
        ({"title": "a\x00b"}, "title"),
        ({"user_id": "\ud800"}, "user_id"),
        ({"position": -1}, "position"),
        ({"fence": 2**63}, "fence"),
        ({"priority": 2**31}, "priority"),
        ({"id": "not-an-id"}, "id"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"tasks": {"no": "list"}}, "tasks"),
        ({"extras": [1]}, "extras"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_error_names_field_with_invalid_value(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused) as refused:
        thread(**fields)

    assert f"{named}:" in str(refused.value)
    assert "Thread cannot be stored" in str(refused.value)
    assert "Nothing was written" in str(refused.value)


def test_error_names_every_invalid_field() -> None:
    with pytest.raises(Refused, match=r"key: .*position: "):
        thread(key="", position=-1)
    with pytest.raises(Refused, match="created_at"):
        Thread(updated_at=NOW)


def test_ids_differ_unless_set() -> None:
    thread_id = new_id()

    assert thread().id != thread().id
    assert thread(id=thread_id).id == thread_id
    assert thread(id=str(thread_id)).id == thread_id
