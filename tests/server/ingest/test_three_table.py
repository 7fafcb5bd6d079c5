"""Traces as rows of the three tables over HTTP."""

import httpx2
import pytest

from lockstitch.server import Settings
from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.server.ingest.sending import requests_of, run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.mark.req("S2-056")
async def test_traces_are_listed_and_returned(store: Store, http: httpx2.AsyncClient) -> None:
    for request in requests_of("langsmith", "prov_openai"):
        await http.post("/runs/multipart", headers=request.headers, content=request.body)
    alone = run_of(name="alone")
    answer = await http.post("/langsmith-webhook", json={"rule_id": "r", "runs": [alone]})
    assert answer.status_code == 202
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    runs = {run["run_id"]: run for run in rows["agent_runs"]}

    traces = (await http.get("/traces")).json()["traces"]
    assert [run["run_id"] for run in traces] == sorted(
        runs, key=lambda run_id: runs[run_id]["start_time"], reverse=True
    )
    assert all(run.keys() == runs[run["run_id"]].keys() for run in traces)
    assert (await http.get("/traces?limit=1&offset=1")).json()["traces"] == traces[1:]

    trace_id = next(run_id for run_id in runs if run_id != alone["id"])
    flat = (await http.get(f"/trace/{trace_id}")).json()
    assert flat["run"] == next(run for run in traces if run["run_id"] == trace_id)
    assert flat["run"]["total_tokens"] == runs[trace_id]["total_tokens"] > 0
    assert [call["step_index"] for call in flat["llm_calls"]] == [0, 1]
    assert flat["llm_calls"] == rows["llm_calls"]
    assert flat["tool_calls"] == rows["tool_calls"]

    nested = (await http.get(f"/trace_nested/{trace_id}")).json()
    assert nested["run_id"] == trace_id
    assert [[tool["tool_name"] for tool in step["children"]] for step in nested["steps"]] == [["get_weather"], []]
    assert nested["children"] == []
    assert (await http.get("/trace/unknown")).status_code == 404


async def test_traces_of_another_project_are_not_returned(store: Store) -> None:
    _, secret = await store.in_project("other").tokens.create("reader", ["read"])
    _, own_secret = await store.tokens.create("sender", ["ingest", "read"])
    run = run_of()
    async with (
        serving(store, settings=Settings(tokens_needed=True)) as url,
        caller(url) as http,
    ):
        await http.post("/runs", json=run, headers={"x-api-key": own_secret})
        assert (await http.get(f"/runs/{run['id']}", headers={"x-api-key": own_secret})).status_code == 200
        other_headers = {"x-api-key": secret}
        assert (await http.get("/traces", headers=other_headers)).json() == {"traces": []}
        assert (await http.post("/runs/query", json={}, headers=other_headers)).json()["runs"] == []
        assert (await http.get("/sessions", headers=other_headers)).json() == []
        for path in ("/runs/", "/trace/", "/trace_nested/", "/sessions/"):
            assert (await http.get(path + run["id"], headers=other_headers)).status_code == 404
        assert (await http.post("/runs", json=run, headers=other_headers)).status_code == 403


@pytest.mark.req("S2-045", "S2-001", "S2-048")
@pytest.mark.parametrize("child_first", [True, False])
async def test_run_sent_without_its_root_joins_it(store: Store, http: httpx2.AsyncClient, child_first: bool) -> None:
    root = run_of(name="root", user_id="eve", inputs={"q": "root"})
    child = run_of(name="child", user_id="ada", inputs={"q": "child"}, outputs={"output": "done"}, tags=["child"])
    child |= {"trace_id": root["id"], "parent_run_id": root["id"], "start_time": "2026-01-01T00:00:00.5+00:00"}
    bodies = [child, root] if child_first else [root, child]
    await http.post("/runs", json=bodies[0])
    await settled(http)
    if child_first:
        for name in (child["id"], root["id"]):
            run = (await http.get(f"/trace/{name}")).json()["run"]
            assert (run["run_id"], run["user_id"], run["status"], run["tags"]) == (
                *(child["id"], "ada"),
                *("success", ["child"]),
            )
    await http.post("/langsmith-webhook", json={"rule_id": "r", "runs": bodies[1:]})
    assert (await settled(http))["quarantine"] == []
    (run,) = (await lens(store))["agent_runs"]
    assert (run["run_id"], run["user_id"], run["input_messages"]) == (root["id"], "eve", {"q": "root"})
    assert (await http.get(f"/runs/{child['id']}")).json()["parent_run_id"] == root["id"]
    assert [trace["run_id"] for trace in (await http.get("/traces")).json()["traces"]] == [root["id"]]
