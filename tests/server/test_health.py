"""Health checks, metrics, and the server as a router of another app."""

import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from lockstitch.model import Schedule
from lockstitch.server import router
from lockstitch.store import Store, open_store
from tests.backends.postgres.wire import Wire
from tests.docs.pages import DOCS
from tests.server.serving import caller, listening, serving

pytestmark = pytest.mark.anyio


async def test_healthz_and_readyz_return_200(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/healthz")).text == "ok\n"
    assert (await http.get("/readyz")).text == "ready\n"


@pytest.mark.parametrize("backend", ["postgres"])
async def test_readyz_returns_503_when_the_store_is_unreachable(store_url: str) -> None:
    """The process runs, so /healthz returns 200, but it is not ready."""
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="wire") as folder:
        wire = Wire(store_url, Path(folder))
        await wire.open()
        async with (
            open_store(wire.url) as store,
            serving(store) as url,
            caller(url) as http,
        ):
            assert (await http.get("/readyz")).status_code == 200
            await wire.close()
            assert (await http.get("/healthz")).status_code == 200
            away = await http.get("/readyz")
            assert (away.status_code, away.json()["title"]) == (503, "Not ready")
            assert away.headers["retry-after"]
            await wire.open()
            assert (await http.get("/readyz")).status_code == 200
        await wire.close()


async def test_metrics_are_returned(store: Store, http: httpx2.AsyncClient) -> None:
    await store.create()
    await http.get("/api/threads/x")
    text = (await http.get("/metrics")).text
    assert 'lockstitch_requests_total{method="GET",route="/api/threads/{ref}",status="404"} 1' in text
    assert 'lockstitch_threads{status="waiting"} 1' in text
    assert 'lockstitch_request_seconds_bucket{route="/api/threads/{ref}",le="+Inf"} 1' in text
    assert "lockstitch_schedules_overdue_seconds 0\n" in text
    schedule = await store.schedules.add("helper", "Report", every=3600)
    hour_ago = store.clock.now() - timedelta(hours=1)
    await store.table(Schedule).put(schedule.changed(next_tick=hour_ago))
    late = re.search(r"^lockstitch_schedules_overdue_seconds (\d+)", (await http.get("/metrics")).text, re.MULTILINE)
    assert late is not None
    assert int(late[1]) >= 3600

    dashboard = json.loads((DOCS / "assets" / "lockstitch-grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {name for expression in expressions for name in re.findall(r"lockstitch_\w+", expression)}
    exported = set(re.findall(r"^lockstitch_\w+", text, re.MULTILINE))
    assert shown <= exported
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    await http.get("/made-up-by-a-stranger")
    assert "made-up" not in (await http.get("/metrics")).text


async def test_router_works_below_a_prefix(tmp_path: object) -> None:
    """Links and static files of pages have the prefix."""
    async with open_store(f"sqlite:///{tmp_path}/agents.db") as store:
        await store.create(key="k", title="Hello")
        outer = FastAPI()

        @outer.get("/mine")
        async def own_query() -> str:
            return "mine"

        outer.include_router(router(store), prefix="/agents")
        async with listening(uvicorn.Config(outer, log_config=None)) as url, caller(url) as http:
            assert (await http.get("/mine")).json() == "mine"
            assert (await http.get("/agents/api/threads/k")).json()["key"] == "k"
            page = (await http.get("/agents/", headers={"Accept": "text/html"})).text
            assert 'href="/agents/static/style.css' in page
            assert (await http.get("/agents/static/style.css")).status_code == 200
            assert (await http.get("/agents/nowhere")).status_code == 404
