"""Threads, runs, and days of side records."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from lockstitch.model import TERMINAL_STATUSES, Run, Thread, new_id
from lockstitch.model.side_records import day_of
from tests.waits import waiting

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def thread(**fields: Any) -> Thread:
    return Thread(**{"created_at": NOW, "updated_at": NOW, **fields})


def test_new_thread_has_no_progress() -> None:
    head = thread()

    assert (head.status, head.kind, head.project) == ("pending", "chat", "default")
    assert (head.position, head.first_position, head.context_from, head.fence) == (0, 1, 0, 0)
    assert not head.ended
    assert not head.held


@pytest.mark.parametrize("status", ["pending", "running", "waiting", "completed", "failed", "cancelled"])
def test_thread_has_ended_when_its_status_is_terminal(status: str) -> None:
    assert (
        thread(status=status).ended == (status in TERMINAL_STATUSES) == (status in ("completed", "failed", "cancelled"))
    )


def test_thread_is_held_while_it_has_a_worker() -> None:
    assert thread(worker_id=new_id()).held


def test_recent_at_is_last_run_or_creation() -> None:
    assert thread().recent_at == NOW
    assert thread(last_run_at=NOW + timedelta(days=1)).recent_at == NOW + timedelta(days=1)


def test_wait_for_returns_matching_wait() -> None:
    until = NOW + timedelta(hours=1)
    reasons = [waiting("approval", NOW, "c1"), waiting("timer", NOW, until=until), waiting("children", NOW, mode="any")]
    head = thread(status="waiting", waiting_for=reasons)

    assert reasons[1] == {
        "kind": "timer",
        "id": None,
        "since": "2026-01-01T00:00:00.000000Z",
        "until": "2026-01-01T01:00:00.000000Z",
    }
    assert [wait.as_json() for wait in head.waits] == reasons
    assert head.wait_for("approval", "c1") is head.wait_for("approval") is head.waits[0]
    assert head.wait_for("approval", "c2") is None
    assert head.wait_for("timer", "custom") is head.waits[1]
    assert head.wait_for("children") is head.waits[2]
    assert head.wait_for("input") is None


def test_usage_of_run_has_documented_names() -> None:
    counts = {"input_tokens": 9, "output_tokens": 4, "cache_read_tokens": 3, "cache_write_tokens": 2}
    run = Run(thread_id=new_id(), sequence=1, turn=1, first_position=1, started_at=NOW, **counts)

    assert run.usage == {
        "input_tokens": 9,
        "output_tokens": 4,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
    }


def test_day_of_returns_date() -> None:
    assert day_of(datetime(2026, 3, 4, 23, 59, tzinfo=UTC)) == day_of(date(2026, 3, 4)) == "2026-03-04"
