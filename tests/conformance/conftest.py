"""What the conformance suite adds to the shared fixtures: a store that was never migrated."""

from collections.abc import Iterator

import pytest

from tests.servers import PostgresServer


@pytest.fixture
def empty_url(backend: str, store_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a place where no store has ever been."""
    if backend != "postgres":
        yield store_url
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)
