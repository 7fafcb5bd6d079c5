"""Fixtures: the story on every backend, written once per session, because these tests only read."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from lockstitch.store import Store, open_store
from tests.lenses.story import Story, tell
from tests.servers import PostgresServer

Stories = Callable[[str], tuple[str, Story]]


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stories:
    """The URL of a store of a backend with the story in it, and the ids of its threads."""
    written: dict[str, tuple[str, Story]] = {}

    def story_of(backend: str) -> tuple[str, Story]:
        if backend not in written:
            folder = tmp_path_factory.mktemp(f"story-{backend}")
            if backend == "postgres":
                server: PostgresServer = request.getfixturevalue("postgres_server")
                url = server.create_database(request.getfixturevalue("postgres_template"))
                if not server.own:
                    request.addfinalizer(lambda: server.drop_database(url))
            else:
                url = f"file:///{folder}/store" if backend == "files" else f"sqlite:///{folder}/store.db"

            async def write() -> Story:
                async with open_store(url) as store:
                    return await tell(store, folder / "files")

            written[backend] = url, asyncio.run(write())
        return written[backend]

    return story_of


@pytest.fixture
def story_url(stories: Stories, backend: str) -> str:
    return stories(backend)[0]


@pytest.fixture
def story(stories: Stories, backend: str) -> Story:
    return stories(backend)[1]


@pytest.fixture
async def story_store(story_url: str) -> AsyncIterator[Store]:
    """The store that contains the story."""
    async with open_store(story_url) as store:
        yield store
