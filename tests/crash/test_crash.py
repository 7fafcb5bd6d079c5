"""A dozen kills per backend; `make crash` does two hundred."""

from typing import Any

import pytest

from tests.races.processes import call

KILLS = 12


def crash(url: str, kills: int, **environment: str) -> dict[str, Any]:
    """Run in a separate process, which forks. A test process has threads and must not fork."""
    return call("tests.crash.killing:killed", url, kills, seconds=300, environment=environment)


@pytest.mark.req("S0-089", "S3-031")
def test_keeps_acknowledged_commits_after_kill(store_url: str) -> None:
    report = crash(store_url, KILLS)
    assert report.pop("acknowledged") >= KILLS
    assert report == {"kills": KILLS, "lost": 0, "repeated": 0, "problems": []}


def test_check_fails_without_fence(store_url: str) -> None:
    """A check that cannot fail would prove nothing."""
    report = crash(store_url, 1, LOCKSTITCH_UNSAFE="fence")
    assert report["repeated"] == 5, report
