"""The pages of threads on every backend."""

import pytest

from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.pages.office import office, support
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


async def test_thread_pages_work_on_every_backend(store: Store):
    app = office()
    await support(app, store)
    async with serving(store, app, Settings(work=False)) as url, caller(url) as http:
        listed = (await http.get("/", headers={"Accept": "text/html"})).text
        assert "Refund for order 10482, charged twice" in listed
        assert "Needs you" in listed
        head = await store.thread("customer-42")
        for path in ("", "?view=context", "?view=history", "?view=runs", "?view=log", "/now", "/stitch/3", "/tree"):
            answer = await http.get(f"/threads/customer-42{path}")
            assert answer.status_code == 200, path
        assert "Approve" in (await http.get("/threads/customer-42")).text
        assert (await http.get(f"/threads/{head.id}/children")).text.count("<tr") == 1
        assert "10482" in (await http.get("/?q=charged+twice")).text
        missing = await http.get("/threads/nobody", headers={"Accept": "text/html"})
        assert missing.status_code == 404
        assert "<h1>Not found</h1>" in missing.text, "in words: errors by their names are for programs"
        refused = await http.post("/threads/customer-42/approve", data={"call": "call_1_2_0"})
        assert refused.status_code == 403, "a form that no page made"
        assert (await store.thread("customer-42")).status == "waiting"
