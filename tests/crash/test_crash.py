"""A dozen kills per backend; `make crash` does two hundred."""

from typing import Any

import pytest

from tests.races.processes import call

KILLS = 12


def crash(url: str, kills: int, **environment: str) -> dict[str, Any]:
    """In a process of its own, which forks: a test process has threads and must not."""
    return call("tests.crash.killing:killed", url, kills, seconds=300, environment=environment)


@pytest.mark.req("S0-089", "S3-031")
def test_nothing_acknowledged_is_lost_or_half_there(store_url: str) -> None:
    toll = crash(store_url, KILLS)
    assert toll.pop("acknowledged") >= KILLS
    assert toll == {"kills": KILLS, "lost": 0, "repeated": 0, "problems": []}


def test_without_the_fence_it_fails(store_url: str) -> None:
    """A check that could not fail would prove nothing."""
    toll = crash(store_url, 1, LOCKSTITCH_UNSAFE="fence")
    assert toll["repeated"] == 5, toll
