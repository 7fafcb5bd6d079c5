"""Shared fixtures: a new store on every backend, and the servers that they need."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import httpcore2
import pytest

from lockstitch.backend import FullBackend
from lockstitch.model import FakeClock
from lockstitch.store import Store, open_store
from tests.servers import Databases, PostgresServer

BACKENDS = ("files", "sqlite", "postgres")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Module scope, because the connection to the browser belongs to an event loop.

    It is not longer: a loop that lives on reports the errors of abandoned tasks in other tests.
    """
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Every HTTP client reads those of the machine, which takes longer than many a test; here none speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server per test process. Nothing here cuts the power, so it need not wait for the disk."""
    server = PostgresServer(fsync="off")
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a migrated database that fresh ones are copied from."""

    async def migrate(url: str) -> None:
        async with open_store(url):
            pass

    url = postgres_server.create_database()
    asyncio.run(migrate(url))
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture(scope="session")
def databases(postgres_server: PostgresServer, postgres_template: str) -> Iterator[Databases]:
    """Migrated databases, each for one test at a time."""
    with Databases(postgres_server, postgres_template) as databases:
        yield databases


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file that fresh ones are copied from."""
    path = tmp_path_factory.mktemp("template") / "store.db"

    async def migrate() -> None:
        async with open_store(f"sqlite:///{path}"):
            pass

    asyncio.run(migrate())
    return path


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh, empty database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend. A test with this fixture, also through `store_url`, runs on all three backends."""
    return request.param


@pytest.fixture
def store_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new store of the current backend, in the temporary folder of the test."""
    if backend == "files":
        yield f"file:///{tmp_path / 'store'}"
    elif backend == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "store.db")
        yield f"sqlite:///{tmp_path / 'store.db'}"
    else:
        databases: Databases = request.getfixturevalue("databases")
        url = databases.take()
        yield url
        databases.give_back(url)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed_store(store_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A store that uses `clock`."""
    async with open_store(store_url, clock=clock) as opened:
        yield opened


@pytest.fixture
async def full_backend(store: Store) -> FullBackend:
    """The migrated backend of `store`, for tests of the backend contract."""
    return store._backend
