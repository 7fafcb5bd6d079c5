"""An agent calls the tools of a real MCP server."""

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.mcp import McpServer
from lockstitch.store import Store
from tests.agents.tools.nursery import Nursery

pytestmark = pytest.mark.anyio


async def test_agent_calls_mcp_tools_with_effects_of_hints(store: Store, web: Nursery):
    calls = [
        {"name": "add", "input": {"a": 1, "b": 2}},
        {"name": "put", "input": {"name": "coins"}},
        {"name": "send", "input": {"to": "Ada"}},
        {"name": "fail", "input": {"why": "no luck"}},
    ]
    async with web.server() as (port, _):
        server = McpServer.http(f"http://127.0.0.1:{port}/mcp", only=["add", "put", "send", "fail"])
        helper = Agent("helper", model=Scripted([{"calls": calls}, "Done."]), tools=[server], title=False)
        try:
            result = await helper.run("Go", store=store, thread="t")
        finally:
            await helper.close()
    assert result.output_text == "Done."
    log = await store.stitches("t")
    assert [stitch.name for stitch in log if stitch.type == "tool_started"] == ["put", "send", "fail"]
    blocks = (await store.context("t"))[2]["content"]
    assert blocks[0]["content"] == "3"
    assert blocks[3]["is_error"]
    assert "no luck" in blocks[3]["content"]
    versions = await store.agents.versions("default", "helper")
    effects = {tool["name"]: tool["effect"] for tool in versions[0].definition["tools"]}
    assert effects == {"add": "safe", "put": "keyed", "send": "once", "fail": "once"}
