"""Every recorded body, sent to a server as its client sent it: the lens shows what it tells of."""

import httpx2
import pytest

from lockstitch.store import Store
from tests.integrations.test_fixtures import each_body, shows
from tests.server.ingest.sending import requests_of, settled

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    """The import of each body is tested on all backends; here it is the way to it that matters."""
    return request.param


@each_body
async def test_a_recorded_request(store: Store, http: httpx2.AsyncClient, source: str, name: str) -> None:
    for sent in requests_of(source, name):
        prefix = "/api/v1" if source == "langsmith" and len(name) % 2 else ""
        answer = await http.request(sent.method, prefix + sent.path, headers=sent.headers, content=sent.body)
        assert answer.status_code == (202 if source == "langsmith" else 200), answer.text
    said = await settled(http)
    assert said["quarantine"] == []
    await shows(store, source, name)
