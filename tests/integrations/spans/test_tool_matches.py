"""Tool spans of teams and the requests they answer. By name and time alone, each of them would get another request."""

import random
from typing import Any

import pytest

from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.integrations.runs import Trace, items
from tests.integrations.seeing import rows_of, seen

pytestmark = pytest.mark.anyio

CALL_IDS = [None, "call_0"]
"""smolagents has no call ids in its tool spans, and some servers use the same id in each response."""


class Team(Trace):
    """A trace of agents that call the same tool with the same arguments. Its ids start with the name of the agent."""

    def __init__(self, call_id: str | None) -> None:
        super().__init__()
        self._call_id = call_id
        self.expected: dict[str, str] = {}
        """The model call that requested the call of each tool span."""
        self.root()

    def agent(self, at: float, parent: str = "") -> str:
        return self.run("chain", "agent", at, {}, {}, parent=parent)["id"]

    def asks(self, agent: str, at: float) -> str:
        """Add a step of an agent with a model call that requests the tool."""
        step = self.run("chain", "step", at, {}, {}, parent=agent)["id"]
        calls: list[tuple[str, str, Json]] = [(self._call_id or f"call_{at}", "search", {"q": "x"})]
        return self.model(at, calls=calls, parent=step)["id"]

    def searches(self, agent: str, at: float, request: str) -> None:
        """Add a span of the application below an agent, and the tool below that span."""
        above = self.run("chain", "wrapper", at, {}, {}, parent=agent)["id"]
        run = self.tool(at, "search", self._call_id, f"found at {at}", parent=above, inputs={"q": "x"})
        self.expected[run["id"]] = request


def nested_team(call_id: str | None) -> Team:
    """Agent A calls agent B, which calls agent C. All have asked before the first tool starts."""
    team = Team(call_id)
    a = team.agent(1)
    first = team.asks(a, 2)
    b = team.agent(3, a)
    second = team.asks(b, 4)
    c = team.agent(5, b)
    third = team.asks(c, 6)
    team.searches(a, 7, first)
    team.searches(b, 8, second)
    team.searches(c, 9, third)
    return team


def parallel_team(call_id: str | None) -> Team:
    """Two agents below one manager run at the same time, in two rounds."""
    team = Team(call_id)
    agents = [team.agent(1), team.agent(1.1)]
    for start in (2, 6):
        requests = [team.asks(agent, start + place) for place, agent in enumerate(agents)]
        for place, (agent, request) in enumerate(zip(agents, requests, strict=True)):
            team.searches(agent, start + 2 + place, request)
    return team


TEAMS = {"nested": nested_team, "parallel": parallel_team}


async def answered(store: Store) -> dict[str, str]:
    """Return the id of the model call that each tool span answers."""
    calls = {call.position: call.data["id"] for call in await rows_of(store, "llm_call")}
    tools = [tool for tool in await rows_of(store, "tool_call") if "id" in tool.data]
    return {tool.data["id"]: calls[tool.reply_to or 0] for tool in tools}


@pytest.mark.parametrize("call_id", CALL_IDS)
@pytest.mark.parametrize("name", TEAMS)
async def test_tool_answers_request_of_nearest_common_ancestor(name: str, call_id: str | None) -> None:
    team = TEAMS[name](call_id)
    async with open_store("sqlite:///:memory:") as store:
        await SpanIngest(store, LangSmith()).write(items(*team.runs))
        assert await answered(store) == team.expected


@pytest.mark.parametrize("call_id", CALL_IDS)
@pytest.mark.parametrize("name", TEAMS)
async def test_order_of_arrival_makes_no_difference_for_teams(name: str, call_id: str | None) -> None:
    team = TEAMS[name](call_id)
    shuffled = random.Random(4).sample(team.runs, len(team.runs))
    records: list[Any] = []
    for order in (team.runs, list(reversed(team.runs)), shuffled):
        async with open_store("sqlite:///:memory:") as store:
            for run in order:
                await SpanIngest(store, LangSmith()).write(items(run))
            assert await answered(store) == team.expected
            records.append(await seen(store))
    assert records[0] == records[1] == records[2]
