"""Projections of the engine's records on the file backend."""

import json
from pathlib import Path

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.store import open_store

pytestmark = pytest.mark.anyio


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_agent_config_contains_instructions_and_tools_of_latest_run(tmp_path: Path):
    helper = Agent(
        "helper",
        model=Scripted([["One."], ["Two."]]),
        instructions=lambda deps: f"You help {deps}.",
        tools=[add],
        max_steps=9,
        server_tools=[{"type": "web_search_20250305", "name": "web_search"}],
        api_kwargs={"temperature": 0.5},
        title=False,
    )
    async with open_store(f"file:///{tmp_path / 'store'}") as store:
        result = await helper.run("Hi", store=store, thread="t", deps="Ada")
        await helper.run("Hi", store=store, thread="t", deps="Grace")
    shown_config = json.loads((tmp_path / "store" / "agent_config" / f"{result.thread_id}.json").read_text())
    assert shown_config["system_prompt"] == "You help Grace."
    assert shown_config["tool_schemas"] == [add.schema]
    assert shown_config["tool_names"] == ["add"]
    assert (shown_config["max_steps"], shown_config["max_tokens"], shown_config["model"]) == (9, 2048, "scripted")
    assert shown_config["server_tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    assert shown_config["api_kwargs"] == {"temperature": 0.5}
    assert (shown_config["total_runs"], len(shown_config["messages"])) == (2, 4)
