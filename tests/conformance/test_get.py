"""get: read a record by its primary key, exactly as it was written."""

import pytest

from lockstitch.backend import FullBackend
from lockstitch.model import Agent, Stitch, Thread, new_id
from tests.conformance.contract import EVERY_KIND, created
from tests.conformance.every_kind import records

pytestmark = pytest.mark.anyio


@pytest.mark.req("S0-002", "S0-003")
async def test_every_record_class_is_read_back_unchanged(full_backend: FullBackend) -> None:
    written = records()
    assert {type(record) for record in written} == set(EVERY_KIND)
    for record in written:
        await full_backend.put([record])
    for record in written:
        key = [getattr(record, field) for field in record.primary_key]
        stored = await full_backend.get(type(record), key)
        assert stored is not None, record.table
        assert type(stored) is type(record)
        expected_json, stored_json = record.as_json(), stored.as_json()
        if isinstance(record, Stitch):
            # Every store numbers its own log.
            del expected_json["log_id"]
            assert stored_json.pop("log_id") is not None
        assert stored_json == expected_json, record.table
        assert {name: type(value) for name, value in stored_json.items()} == {
            name: type(value) for name, value in expected_json.items()
        }, record.table


async def test_get_of_unknown_key_returns_none(full_backend: FullBackend) -> None:
    assert await full_backend.get(Thread, (new_id(),)) is None
    assert await full_backend.get(Stitch, (new_id(), 1)) is None
    assert await full_backend.get(Agent, ("default", "../unknown")) is None


async def test_get_needs_all_fields_of_key(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    assert await full_backend.get(Stitch, (thread.id, 1)) is None
    with pytest.raises(ValueError):  # noqa: PT011 - an error of the caller, of any class
        await full_backend.get(Stitch, (thread.id,))
