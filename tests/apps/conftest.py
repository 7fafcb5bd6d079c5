"""Stores with the tables of both applications, which are copies of a template."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.apps import notebooks
from lockstitch.apps.prioritizer import retention
from lockstitch.store import open_store
from tests.servers import Databases, PostgresServer


async def _extend(url: str) -> None:
    async with open_store(url) as store:
        await store.extend(notebooks.EXTENSION)
        await store.extend(retention.EXTENSION)


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
