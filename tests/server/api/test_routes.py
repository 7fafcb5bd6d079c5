"""Read operations of the HTTP API on every backend."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.api import agents
from tests.server.api.asking import get, result, run
from tests.server.api.reading import events
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    """Return the URL of a server that executes its agents."""
    async with serving(store, agents.app(), Settings(concurrency=4)) as address:
        yield address


@pytest.mark.req("S3-070")
async def test_run_is_returned_by_all_read_routes(store: Store, http: httpx2.AsyncClient) -> None:
    done = await run(http, "teller", thread="story", user_id="ada", metadata={"from": "test"}, tags=["a"])
    assert (done["status"], done["output_text"], done["steps"]) == ("completed", "The end.", 2)
    assert {"thread_id", "run_id", "status", "stop_reason", "output_text", "steps", "usage", "total_cost"} < done.keys()
    head = await store.thread("story")
    assert str(head.id) == done["thread_id"]
    assert await get(http, "/api/threads/story") == head.as_json()
    listed = await get(http, "/api/threads", agent="teller", user_id="ada", status="waiting", root_only=True)
    (row,) = listed["threads"]
    (overview,) = await store.overview([head])
    assert {name: row[name] for name in overview.as_json()} == overview.as_json()
    assert listed["next"] is None
    judged = await store.create(key="eval/f/1/sum/judge")
    assert {row["id"] for row in (await get(http, "/api/threads"))["threads"]} == {str(head.id), str(judged.id)}
    assert [row["id"] for row in (await get(http, "/api/threads", evaluations=False))["threads"]] == [str(head.id)]
    await store.delete(judged)
    log = await store.stitches(head)
    assert (await get(http, "/api/threads/story/stitches"))["stitches"] == [stitch.as_json() for stitch in log]
    page = await get(http, "/api/threads/story/stitches", first=2, limit=2)
    assert ([stitch["position"] for stitch in page["stitches"]], page["next"]) == ([2, 3], 4)
    assert await get(http, "/api/threads/story/context") == await store.context(head)
    history = await get(http, "/api/threads/story/history")
    assert [turn["final_response"] for turn in history["turns"]] == ["The end."]
    (stored_run,) = await get(http, "/api/threads/story/runs")
    assert stored_run["metadata"] == {"from": "test"}
    run_path = f"/api/runs/{done['run_id']}"
    assert (await get(http, run_path))["usage"] == done["usage"]
    assert (await get(http, f"{run_path}/result"))["output_text"] == "The end."
    assert await get(http, f"{run_path}/log") == [stitch.as_json() for stitch in await store.log(done["run_id"])]
    assert await get(http, f"{run_path}/messages") == await store.messages(done["run_id"])
    assert (await get(http, f"{run_path}/trace", depth=3))["tree"]["kind"] == "run"
    assert len(await get(http, f"{run_path}/export?as=langsmith")) == 4
    calls = [stitch for stitch in log if stitch.type == "llm_call"]
    assert await get(http, f"/api/stitches/{calls[0].id}") == calls[0].as_json()
    assert await get(http, f"/api/stitches/{calls[1].id}/request") == await store.request(calls[1].id)
    second = await run(http, "teller", thread="story")
    difference = await get(http, f"{run_path}/difference/{second['run_id']}")
    assert [pair["changes"] for pair in difference["steps"]] == [[], [], []]
    assert {hit["thread_id"] for hit in await get(http, "/api/search", q="end")} == {done["thread_id"]}
    assert (await get(http, "/api/stats"))["total"]["runs"] == 2
    by = await get(http, "/api/stats?by=agent&by=day&parts=slowest&parts=tools")
    assert (by["usage"]["rows"][0]["agent"], len(by["slowest"]), by["tools"][0]["name"]) == ("teller", 2, "look")
    assert [row["name"] for row in (await get(http, "/api/agents"))["agents"]] == ["teller"]
    (version,) = await get(http, "/api/agents/teller/versions")
    assert version["version"] == 1
    assert await get(http, "/api/agents/teller/versions", before=1) == []
    assert await get(http, "/api/agents/teller/versions/1") == version
    changes = await get(http, "/api/agents/teller/versions/1/changes")
    assert changes == {"agent": "teller", "version": 1, "since": None, "changes": []}
    assert (await get(http, "/api/threads/story/size"))["stitches"] > 0
    assert len((await get(http, "/api/workers"))["workers"]) == 1


async def test_routes_for_command_line_return_records_of_store(store: Store, http: httpx2.AsyncClient) -> None:
    done = await run(http, "payer", thread="pays", user_id="ada")
    head = await store.thread("pays")
    (overview,) = await store.overview([head])
    assert (await get(http, "/api/threads", full=True))["threads"] == [overview.as_json(full=True)]
    assert await get(http, f"/api/overviews?thread_id={head.id}&thread_id={done['run_id']}") == [overview.as_json()]
    (tree,) = await get(http, f"/api/trees?thread_id={head.id}&root=true&full=true")
    assert tree == {**overview.as_json(full=True), "tasks": [], "children": []}
    assert await get(http, "/api/threads/pays/last_run") == (await store.run(done["run_id"])).as_json()
    assert len(await get(http, "/api/threads/pays/runs", first=1)) == 1
    assert await get(http, "/api/threads/pays/runs", first=2) == []
    match = await get(http, "/api/match", text=str(head.id)[-8:])
    assert (match["exact"], match["threads"], match["runs"]) == (None, [head.as_json()], [])
    assert (await get(http, "/api/match", text="pays"))["exact"] == head.as_json()
    assert [row["id"] for row in (await get(http, "/api/match", text=done["run_id"][-8:]))["runs"]] == [done["run_id"]]
    (reply,) = await get(http, "/api/threads/pays/replies")
    assert (reply["kind"], reply["tool"], reply["input"]) == ("approval", "pay", {"amount": 5})
    assert await get(http, "/api/inbox") == {"threads": [{"thread": head.as_json(), "replies": [reply]}], "count": 1}
    latest = await get(http, "/api/stitches", limit=2)
    assert latest == [stitch.as_json() for stitch in await store.latest(limit=2)]
    sent = [event async for event in events(http, "/api/events/stitches?recent=2&until=now")]
    assert [(event.type, event.data) for event in sent] == [("stitch", stitch) for stitch in reversed(latest)]
    (usage,) = await get(http, "/api/stats/tokens", since=head.created_at.isoformat())
    assert (usage["thread_id"], usage["runs"]) == (str(head.id), 1)
    dashboard = await get(http, "/api/dashboard", thread="pays")
    assert (dashboard["open"]["waiting"], [row["id"] for row in dashboard["threads"]]) == (1, [str(head.id)])
    assert dashboard["threads"][0]["fence"] == head.fence
    who = await get(http, "/api/whoami")
    assert (who["project"], who["actor"], "payer" in who["agents"]) == ("default", "local", True)
    (turn,) = (await get(http, "/api/threads/pays/history", full=True))["turns"] or [None]
    assert turn is None
    answer = await http.post("/api/threads/pays/approve", json={"call_id": reply["call_key"]})
    assert answer.status_code == 200, answer.text
    await result(http, done["run_id"])
    (turn,) = (await get(http, "/api/threads/pays/history", full=True))["turns"]
    assert turn["run"] == (await store.run(done["run_id"])).as_json()


@pytest.mark.req("S3-070")
async def test_threads_are_listed_in_trees_and_pages(store: Store, http: httpx2.AsyncClient) -> None:
    root = await store.create(kind="goal", goal="All", key="root")
    child = await store.create(kind="task", goal="Part", parent_id=root.id)
    await store.create(kind="task", goal="Part of a part", parent_id=child.id)
    tree = await get(http, "/api/threads/root/tree")
    assert tree["children"][0]["children"][0]["goal"] == "Part of a part"
    assert [row["goal"] for row in await get(http, "/api/threads/root/children")] == ["Part"]
    assert [row["key"] for row in await get(http, f"/api/threads/{child.id}/ancestors")] == ["root"]
    assert len((await get(http, "/api/threads", root_only=True))["threads"]) == 1
    assert len((await get(http, "/api/threads", status="pending"))["threads"]) == 3
    assert (await get(http, "/api/threads", status="waiting"))["threads"] == []
    assert len((await get(http, "/api/threads", limit=2))["threads"]) == 2
    paths: list[str] = []
    after = ""
    while after is not None:
        page = await get(http, "/api/threads", limit=1, **({"after": after} if after else {}))
        paths += [row["id"] for row in page["threads"]]
        after = page["next"]
    assert len(paths) == len(set(paths)) == 3
