"""The run page and its parts on every backend."""

import httpx2
import pytest

from lockstitch.store import Store
from tests.server.pages import runs

pytestmark = pytest.mark.anyio


async def test_run_page_works_on_every_backend(store: Store, http: httpx2.AsyncClient) -> None:
    run = await runs.waiting(store)
    page = await http.get(f"/run/{run.id}")
    assert page.status_code == 200
    assert "needs you" in page.text
    call = next(stitch for stitch in await store.log(run.id) if stitch.type == "llm_call")
    for path, expected in (
        ("/rows", '"pay"'),
        (f"/panel?at={call.position}", "identical bytes"),
        (f"/panel?at={call.position}-0", "Needs you"),
        (f"/difference/{run.id}", "identical"),
    ):
        answer = await http.get(f"/run/{run.id}{path}", headers={"HX-Request": "true"})
        assert answer.status_code == 200, path
        assert expected.encode() in answer.content, path
