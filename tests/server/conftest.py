"""Fixtures of server tests: a server with a new store, and an HTTP client."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from lockstitch.store import Store
from tests.server.serving import caller, serving


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    """Return the URL of a server with the default settings."""
    async with serving(store) as address:
        yield address


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with caller(url) as client:
        yield client
