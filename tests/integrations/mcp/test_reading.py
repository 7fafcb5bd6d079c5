"""The tools that read, the resource and the prompt, with a real client."""

import json

import pytest

from lockstitch.store import open_store
from tests.cli import shop
from tests.cli.story import Story, write_story
from tests.integrations.mcp.sessions import Session, on_http, on_stdio
from tests.server.serving import serving

pytestmark = pytest.mark.anyio

READING = {"compare_runs", "errors", "list_threads", "read_stitch", "read_thread", "run_log", "search", "stats"}


@pytest.fixture
async def story(store_url: str) -> Story:
    """The story of the command line, and a thread that waits for an approval."""
    story = await write_story(store_url)
    async with open_store(store_url) as store:
        await shop.app.agent("payer").run("Pay", store=store, thread="payment")
    return story


async def test_every_tool_resource_and_prompt_reads_the_record_on_stdio(story: Story) -> None:
    async with on_stdio(story.url) as session:
        await check_reading(session, story)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_resource_and_prompt_reads_the_record_over_http(story: Story, mode: str) -> None:
    async with open_store(story.url) as store, serving(store) as url, on_http(url, mode=mode) as session:
        await check_reading(session, story)


async def check_reading(session: Session, story: Story) -> None:
    tools = await session.tools()
    assert tools.keys() == {*READING, "waiting", "sql"}
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())

    threads = await session.rows("list_threads", "threads", limit=2)
    assert [thread["key"] for thread in threads if "key" in thread] == ["payment", "customer-42"]
    assert [thread["error"] for thread in threads if thread["status"] == "failed"] == ["the model refused"]
    assert await session.rows("list_threads", "threads") == threads
    (failed,) = (await session.call("list_threads", status="failed"))["threads"]
    assert failed["thread"] == str(story.goal.id)

    matches = await session.rows("search", "matches", text="Graz", limit=2)
    assert sorted(match["position"] for match in matches) == [2, 4, 6]
    assert all("Graz" in match["text"] for match in matches)

    turns = await session.rows("read_thread", "turns", thread="customer-42", limit=3)
    assert [turn["turn"] for turn in turns] == [4, 3, 2, 1]
    assert turns[0]["answer"] == "Charged once."
    assert (await session.call("read_thread", thread="payment"))["thread"]["waits"] == ["approval"]

    log = await session.rows("run_log", "log", run=str(story.charge.id), limit=3)
    assert [line["position"] for line in log] == [7, 8, 9, 10, 11, 12, 13]
    assert log[1]["text"] == '→ charge({"of":"c1"}) → charge({"of":"c2"})'
    (error,) = (await session.call("run_log", run="customer-42", errors_only=True))["log"]
    assert (error["position"], error["text"]) == (10, "card declined")

    async with open_store(story.url) as store:
        stitch = (await store.stitches(story.chat, 8, 8))[0]
        request = await store.request(stitch.id)
    assert await session.whole(stitch="customer-42:8") == stitch.as_json()
    assert await session.whole(stitch=str(stitch.id), request=True) == request

    causes = await session.rows("errors", "causes", limit=1)
    assert sorted(cause["text"] for cause in causes) == ["card declined", "the model refused"]
    overview = await session.call("stats")
    assert overview["total"]["failed"] == 1
    by_agent = await session.rows("stats", "rows", by="agent", limit=1)
    assert {row["group"]: row["runs"] for row in by_agent} == {"helper": 4, "leader": 1, "payer": 1}
    assert [row["name"] for row in await session.rows("stats", "rows", by="tool")] == ["charge"]

    difference = await session.call("compare_runs", a=turns[3]["run"], b=turns[0]["run"])
    assert not difference["same"]
    assert difference["different_steps"] == len(difference["steps"]) > 1

    (waiting,) = (await session.call("waiting"))["threads"]
    assert (waiting["key"], waiting["replies"][0]["tool"]) == ("payment", 'pay({"amount":5})')

    query = "SELECT position, type FROM stitches ORDER BY thread_id, position"
    rows = await session.rows("sql", "rows", query=query, limit=4)
    assert rows == (await session.call("sql", query=query))["rows"]
    assert len(rows) > 13

    resource = (await session.client.read_resource("lockstitch://thread/customer-42")).contents[0]
    assert json.loads(getattr(resource, "text", ""))["turns"] == turns
    prompt = (await session.client.get_prompt("why_did_it_fail", {"run": str(story.goal.id)})).messages[0]
    assert "the model refused" in getattr(prompt.content, "text", "")

    assert "NotFound: Thread nope" in await session.rejected("read_thread", thread="nope")
    assert "Refused: The cursor 'x' is not valid" in await session.rejected("list_threads", cursor="x")
    assert "Refused" in await session.rejected("sql", query="DELETE FROM threads")
    assert "Refused: since" in await session.rejected("errors", since="yesterday")
