"""Fixture of the conformance suite: a store that was never migrated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import PostgresServer


@pytest.fixture
def empty_url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a place without a store."""
    if backend != "postgres":
        yield f"file:///{tmp_path / 'empty'}" if backend == "files" else f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)
