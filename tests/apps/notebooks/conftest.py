"""Stores with the tables of notebooks, on both databases."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lockstitch.apps.notebooks import EXTENSION, Notebooks
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.store import Store, open_store
from tests.servers import Databases, PostgresServer


async def _extend(url: str) -> None:
    async with open_store(url) as store:
        await store.extend(EXTENSION)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    url = postgres_server.create_database()
    asyncio.run(_extend(url))
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture(scope="session")
def databases(postgres_server: PostgresServer, postgres_template: str) -> Iterator[Databases]:
    with Databases(postgres_server, postgres_template) as databases:
        yield databases


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    asyncio.run(_extend(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=("sqlite", "postgres"))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def notebooks(store: Store) -> AsyncIterator[Notebooks]:
    """The plugin without a model, with its tables."""
    application = Notebooks()
    await application.setup(store)
    yield application
    await application.team.close()


@pytest.fixture
async def books(notebooks: Notebooks, store: Store) -> Notebook:
    """A notebook about books."""
    return await repository.create(store, "Books", description="For reading lists.", instructions="Be brief.")
