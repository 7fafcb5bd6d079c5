"""Fixtures: a new folder for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstitch.backends.files import FilesBackend
from lockstitch.model import FakeClock
from tests.backends.files import writing


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def files(root: Path, clock: FakeClock) -> AsyncIterator[FilesBackend]:
    """A migrated backend on the folder `root`."""
    backend = await writing.opened(root, clock)
    yield backend
    await backend.close()
