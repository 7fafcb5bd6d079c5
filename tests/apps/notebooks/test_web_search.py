"""The web search of the Researcher: a tool of the provider, an MCP server, or a function."""

from collections.abc import Sequence
from typing import Any

import pytest

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.apps.notebooks import Notebooks
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.apps.notebooks.web_search import PROVIDER_TOOLS
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import Refused
from lockstitch.model import Stitch
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

QUERY = "books for a 9yo girl"


class Model(Scripted):
    """A model whose leader delegates to the Researcher, which calls `web_search` if it has such a tool."""

    def __init__(self) -> None:
        super().__init__(self._scripted_reply)
        self.requests: list[ModelRequest] = []

    def _scripted_reply(self, request: ModelRequest) -> Any:
        if request.purpose is not None:
            return "[]"
        self.requests.append(request)
        names = {tool["name"] for tool in request.tools}
        results = [str(message) for message in request.messages if "tool_result" in str(message)]
        if "delegate" in names:
            task = {"member": "Researcher", "task": QUERY, "final": True}
            return {"calls": [{"name": "delegate", "input": task}]}
        if "web_search" in names and not results:
            return {"calls": [{"name": "web_search", "input": {"query": QUERY}}]}
        return "Found: " + (results[-1] if results else "nothing on the web.")

    def of_researcher(self) -> ModelRequest:
        return next(request for request in self.requests if "delegate" not in str(request.tools))


def web_search(query: str) -> str:
    """Search the web."""
    return f"The Wild Robot (https://example.org/robot) for {query}"


class SearchServer:
    """A source of tools that is connected on first use, like an MCP server."""

    closed = False

    async def tools(self) -> Sequence[Tool]:
        return [tool(effect="safe")(web_search)]

    async def close(self) -> None:
        self.closed = True


async def search_results(store: Store) -> list[Stitch]:
    return [stitch for stitch in await store.stitches("chat-1") if stitch.name == "web_search"]


@pytest.mark.req("S4-048")
@pytest.mark.parametrize("kind", ["function", "tool", "source", "list"])
async def test_researcher_searches_web_with_tool(store: Store, books: Notebook, kind: str) -> None:
    source = SearchServer()
    searches: dict[str, Any] = {
        "function": web_search,
        "tool": tool(effect="safe")(web_search),
        "source": source,
        "list": [web_search],
    }
    model = Model()
    notebooks = Notebooks(model=model, web_search=searches[kind])
    assert notebooks.has_web_search
    result = await notebooks.run(store, books.number, QUERY, session_id="chat-1")
    assert "https://example.org/robot" in (result.output_text or "")
    (found,) = await search_results(store)
    (run,) = [run for run in await store.runs("chat-1") if run.id == found.run_id]
    assert (run.agent, found.status) == ("Researcher", "ok")
    assert "search the web" in (model.of_researcher().system or "")
    leader = next(request for request in model.requests if "delegate" in str(request.tools))
    assert "web_search" not in {tool["name"] for tool in leader.tools}
    await notebooks.team.close()
    assert source.closed == (kind == "source")


@pytest.mark.req("S4-048", "S0-018")
async def test_provider_searches_web_for_researcher(store: Store, books: Notebook) -> None:
    definition = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    model = Model()
    await Notebooks(model=model, web_search=definition).run(store, books.number, QUERY, session_id="chat-1")
    assert list(model.of_researcher().server_tools) == [definition]
    leader = next(request for request in model.requests if "delegate" in str(request.tools))
    assert list(leader.server_tools) == []
    stitches = [stitch for stitch in await store.stitches("chat-1") if stitch.type == "llm_call" and stitch.lane]
    assert (await store.request(stitches[0].id))["server_tools"] == [definition], "the record has the exact request"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_provider_is_known_by_the_model(provider: str) -> None:
    notebooks = Notebooks(model=f"{provider}:model", web_search="provider")
    assert notebooks.team.members["Researcher"].definition.server_tools == (PROVIDER_TOOLS[provider],)
    assert notebooks.team.definition.server_tools == ()


def test_rejects_web_search_that_cannot_work() -> None:
    with pytest.raises(Refused, match="needs a model"):
        Notebooks(web_search=web_search)
    with pytest.raises(Refused, match="provider scripted"):
        Notebooks(model=Model(), web_search="provider")
    with pytest.raises(Refused, match="must be"):
        Notebooks(model=Model(), web_search=3)  # type: ignore[arg-type]


@pytest.mark.req("S4-048")
async def test_researcher_states_that_it_has_no_web_search(store: Store, books: Notebook) -> None:
    model = Model()
    notebooks = Notebooks(model=model)
    assert not notebooks.has_web_search
    await notebooks.run(store, books.number, QUERY, session_id="chat-1")
    assert "You have no web search" in (model.of_researcher().system or "")
    assert list(model.of_researcher().server_tools) == []
    offline = await Notebooks().run(store, books.number, "Which ships sail to Mars?", session_id="chat-2")
    assert "cannot search the web" in (offline.output_text or "")
