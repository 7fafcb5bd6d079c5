"""The tools of a real MCP server in the hands of an agent."""

import sys
from pathlib import Path

import pytest

from lockstitch.runtime.agent import Agent
from lockstitch.runtime.providers.scripted import Scripted
from lockstitch.runtime.tools.mcp import McpServer
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("mcp_server.py")


async def test_an_agent_calls_them_and_their_hints_set_the_effect(store: Store):
    calls = [
        {"name": "add", "input": {"a": 1, "b": 2}},
        {"name": "put", "input": {"name": "coins"}},
        {"name": "send", "input": {"to": "Ada"}},
        {"name": "fail", "input": {"why": "no luck"}},
    ]
    server = McpServer.stdio(sys.executable, [str(SERVER), "stdio"], only=["add", "put", "send", "fail"])
    helper = Agent("helper", model=Scripted([{"calls": calls}, "Done."]), tools=[server], title=False)
    try:
        result = await helper.run("Go", store=store, thread="t")
    finally:
        await helper.close()
    assert result.output_text == "Done."
    log = await store.stitches("t")
    assert [one.name for one in log if one.type == "tool_started"] == ["put", "send", "fail"]
    blocks = (await store.context("t"))[2]["content"]
    assert blocks[0]["content"] == "3"
    assert blocks[3]["is_error"]
    assert "no luck" in blocks[3]["content"]
    kept = await store.agents.versions("default", "helper")
    effects = {one["name"]: one["effect"] for one in kept[0].definition["tools"]}
    assert effects == {"add": "safe", "put": "keyed", "send": "once", "fail": "once"}
