"""The story on every backend, written once per session, because these tests only read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from lockstitch.store import Store, open_store
from lockstitch.store.store import _copied as anew
from tests.lenses.story import Story, tell
from tests.servers import PostgresServer

Telling = Callable[[str], tuple[str, Story]]


@pytest.fixture(scope="session")
def telling(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Telling:
    """The URL of a store of a backend with the story in it, and who is who."""
    known: dict[str, tuple[str, Story]] = {}

    def told(backend: str) -> tuple[str, Story]:
        if backend not in known:
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
                    story = await tell(store, folder / "files")
                    if backend == "files":
                        async with open_store(_copy_of(url)) as copy:
                            await store.copy_to(copy)
                    return story

            known[backend] = url, asyncio.run(write())
        return known[backend]

    return told


@pytest.fixture
def told_url(telling: Telling, backend: str) -> str:
    return telling(backend)[0]


@pytest.fixture
def story(telling: Telling, backend: str) -> Story:
    return telling(backend)[1]


@pytest.fixture
async def told(told_url: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """The store that the story stands in. One of files is copied for every question; here once for all of them."""

    @asynccontextmanager
    async def copied(store: Store, scratch: Callable[[], Store]) -> AsyncGenerator[Store]:
        ours = store.backend is told.backend
        async with open_store(_copy_of(told_url)) if ours else anew(store, scratch) as copy:
            yield copy

    async with open_store(told_url) as told:
        if backend == "files":
            monkeypatch.setattr("lockstitch.store.store._copied", copied)
        yield told


def _copy_of(url: str) -> str:
    """Where the copy in SQLite of a store of files is."""
    return f"{url.replace('file:', 'sqlite:', 1)}.db"
