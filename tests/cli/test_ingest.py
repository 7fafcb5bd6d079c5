"""`lockstitch ingest`: the ingest queue and retries of bodies in quarantine."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from lockstitch.model.side_records import IngestBody
from lockstitch.store import Store
from tests.cli.calling import Call
from tests.cli.test_import import query_store


async def fill(store: Store) -> list[str]:
    """Two waiting bodies, one of which is stuck, two in quarantine, and one of another project."""
    now = store.clock.now()
    rows = [
        IngestBody(source="langsmith", headers={}, body=b"{}", at=now - timedelta(seconds=90)),
        IngestBody(source="otel", headers={}, body=b"{}", at=now),
        IngestBody(source="langsmith", headers={}, body=b"12345", at=now, problem="span a: Conflict: no"),
        IngestBody(source="otel", headers={}, body=b"1", at=now, problem="It is empty."),
        IngestBody(source="otel", headers={}, body=b"1", at=now, problem="It is empty.", project="other"),
    ]
    await store._backend.put(rows)
    return [str(row.id) for row in rows]


@pytest.fixture
def rows(lockstitch: Call, store_url: str) -> list[str]:
    return query_store(store_url, fill)


def test_status_shows_waiting_stuck_and_quarantined_bodies(lockstitch: Call, rows: list[str]) -> None:
    result = lockstitch("ingest", "status", "--json")
    assert result.code == 0
    status = json.loads(result.out)
    assert (status["waiting"], status["stuck"], status["quarantined"]) == (2, 1, 2)
    assert status["oldest_seconds"] >= 90
    assert [(body["id"], body["problem"], body["size"]) for body in status["quarantine"]] == [
        (rows[3], "It is empty.", 1),
        (rows[2], "span a: Conflict: no", 5),
    ]
    text_result = lockstitch("ingest", "status")
    assert text_result.out.startswith("Waiting: 2 bodies, the oldest for ")
    assert "Stuck: 1. In quarantine: 2." in text_result.out
    assert rows[2] in text_result.out
    assert "span a: Conflict: no" in text_result.out


def test_retry_puts_one_body_into_the_queue_again(lockstitch: Call, rows: list[str]) -> None:
    result = lockstitch("ingest", "retry", rows[2], "--json")
    assert (result.code, json.loads(result.out)) == (0, {"retried": [rows[2]]})
    status = json.loads(lockstitch("ingest", "status", "--json").out)
    assert (status["waiting"], status["quarantined"]) == (3, 1)


def test_retry_without_id_puts_all_bodies_of_the_project_into_the_queue(lockstitch: Call, rows: list[str]) -> None:
    result = lockstitch("ingest", "retry")
    assert (result.code, result.out) == (0, "2 bodies in the ingest queue again.\n")
    status = json.loads(lockstitch("ingest", "status", "--json").out)
    assert (status["waiting"], status["quarantined"]) == (4, 0)
    other_status = json.loads(lockstitch("ingest", "status", "--json", "--project", "other").out)
    assert other_status["quarantined"] == 1
    assert "no body in quarantine" in lockstitch("ingest", "retry").err


def test_retry_of_unknown_body_is_not_found(lockstitch: Call, rows: list[str]) -> None:
    for unknown in (str(uuid4()), "nonsense", rows[0], rows[4]):
        assert lockstitch("ingest", "retry", unknown).code == 3
