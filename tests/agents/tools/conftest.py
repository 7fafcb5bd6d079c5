"""What tests of tools share: where MCP servers over HTTP come from."""

from collections.abc import Iterator

import pytest

from tests.agents.tools.nursery import Nursery, nursery


@pytest.fixture(scope="session")
def web() -> Iterator[Nursery]:
    """Makes MCP servers over HTTP, each a process of its own."""
    with nursery() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
