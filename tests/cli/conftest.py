"""What tests of the command line share."""

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story, tell


@pytest.fixture
def lockstitch(call: Call, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`lockstitch` in this process on a fresh store of every backend."""
    monkeypatch.setenv("LOCKSTITCH_STORE", store_url)
    return call


@pytest.fixture
def story(store_url: str) -> Story:
    return tell(store_url)
