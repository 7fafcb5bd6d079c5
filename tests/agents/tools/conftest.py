"""Fixtures for tests of tools."""

from collections.abc import Iterator

import pytest

from tests.agents.tools.nursery import Nursery, nursery


@pytest.fixture(scope="session")
def web() -> Iterator[Nursery]:
    """Starts MCP servers over HTTP, each in its own process."""
    with nursery() as web_nursery:
        yield web_nursery


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
