"""A LangSmith client of a server, and a function that runs its blocking calls."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from langsmith import Client

from tests.server.ingest.agents import client_of


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    """Ignore deprecation warnings of the client."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    client = client_of(url)
    yield client
    await asyncio.to_thread(client.close)


Calling = Callable[[Callable[[], Any]], Awaitable[Any]]


@pytest.fixture
def calling() -> Calling:
    """Run a function with blocking calls of a client in a thread, while the server runs in this loop."""
    return asyncio.to_thread
