"""Fixtures of the store tests: a second store, of any backend."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from lockstitch.model import FakeClock
from lockstitch.store import Store, open_store
from tests.fixtures import BACKENDS
from tests.servers import Databases


@pytest.fixture
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return URLs of new stores of the named backend."""
    numbers = count(1)
    results: list[str] = []

    def make(backend: str) -> str:
        number = next(numbers)
        if backend == "files":
            return f"file://{tmp_path / f'more-{number}'}"
        if backend == "sqlite":
            return f"sqlite:///{tmp_path / f'more-{number}.db'}"
        databases: Databases = request.getfixturevalue("databases")
        results.append(databases.take())
        return results[-1]

    yield make
    for url in results:
        request.getfixturevalue("databases").give_back(url)


@pytest.fixture(params=BACKENDS)
def other(request: pytest.FixtureRequest) -> str:
    """The name of a second backend; with `backend`, every ordered pair of them."""
    return request.param


@pytest.fixture
def other_url(other: str, fresh_url: Callable[[str], str]) -> str:
    return fresh_url(other)


@pytest.fixture
async def any_target(other_url: str) -> AsyncIterator[Store]:
    """An empty store of the second backend."""
    async with open_store(other_url) as opened:
        yield opened


@pytest.fixture
async def target(backend: str, fresh_url: Callable[[str], str]) -> AsyncIterator[Store]:
    """An empty store of another backend: each of them is the first once, and once the second."""
    following = BACKENDS[(BACKENDS.index(backend) + 1) % len(BACKENDS)]
    async with open_store(fresh_url(following)) as opened:
        yield opened


@pytest.fixture
async def twin(backend: str, fresh_url: Callable[[str], str], clock: FakeClock) -> AsyncIterator[Store]:
    """A second empty store of the same backend."""
    async with open_store(fresh_url(backend), clock=clock) as opened:
        yield opened


@pytest.fixture
async def opened(store_url: str) -> AsyncIterator[Callable[..., object]]:
    """Opens the store at hand again, as often as one likes, and closes all of them in the end."""
    async with AsyncExitStack() as stack:

        async def open_again(**options: object) -> Store:
            return await stack.enter_async_context(open_store(store_url, **options))  # type: ignore[arg-type]

        yield open_again
