"""Each recorded body is sent to a server, and the lens shows its runs."""

import httpx2
import pytest

from lockstitch.store import Store
from tests.integrations.test_fixtures import each_body, shows
from tests.server.ingest.sending import requests_of, settled

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    """One backend: other tests import the bodies on all backends."""
    return request.param


@each_body
async def test_recorded_request_is_stored(store: Store, http: httpx2.AsyncClient, source: str, name: str) -> None:
    for request in requests_of(source, name):
        prefix = "/api/v1" if source == "langsmith" and len(name) % 2 else ""
        answer = await http.request(
            request.method, prefix + request.path, headers=request.headers, content=request.body
        )
        assert answer.status_code == (202 if source == "langsmith" else 200), answer.text
    queue = await settled(http)
    assert queue["quarantine"] == []
    await shows(store, source, name)
