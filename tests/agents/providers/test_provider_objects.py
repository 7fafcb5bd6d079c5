"""Provider objects as models: two servers in one process, and names in the record."""

import pytest

from lockstitch import Agent, App, Store, approve, tool
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.errors import Refused
from lockstitch.providers import AnthropicProvider, OpenAIChatProvider, OpenAIResponsesProvider
from tests.agents.fake_api import Answer, FakeApi, fake_api

pytestmark = pytest.mark.anyio


def say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


async def test_two_servers_in_one_process(store: Store, api: FakeApi) -> None:
    async with fake_api() as other:
        api.answer(say("From the first."))
        other.answer(say("From the second."))
        ollama = OpenAIChatProvider("llama3:8b", base_url=f"{api.url}/v1", api_key="key-1", name="ollama")
        vllm = OpenAIChatProvider("llama3:8b", base_url=f"{other.url}/v1", api_key="key-2", name="vllm")
        first, second = Agent("first", model=ollama), Agent("second", model=vllm)
        results = [await first.run("Hi", store=store), await second.run("Hi", store=store)]
        await ollama.close()
        await vllm.close()
        assert [result.output_text for result in results] == ["From the first.", "From the second."]
        assert [server.requests[0].headers["authorization"] for server in (api, other)] == [
            "Bearer key-1",
            "Bearer key-2",
        ]
        assert [server.requests[0].body["model"] for server in (api, other)] == ["llama3:8b", "llama3:8b"]
    runs = [await store.run(result.run_id) for result in results]
    assert [(run.provider, run.model) for run in runs] == [("ollama", "llama3:8b"), ("vllm", "llama3:8b")]
    assert [first.definition.model, second.definition.model] == ["ollama:llama3:8b", "vllm:llama3:8b"]
    assert [first.provider, second.provider] == ["ollama", "vllm"]


@pytest.mark.parametrize("make", [AnthropicProvider, OpenAIChatProvider, OpenAIResponsesProvider])
def test_names_of_two_servers_differ(make: type[OpenAIChatProvider]) -> None:
    urls = ["http://localhost:11434/v1", "http://localhost:8000/v1", "https://user:pw@models.example.org/v1"]
    names = [Agent("a", model=make("m", base_url=url, api_key="key")).definition.model for url in urls]
    assert names == ["localhost-11434:m", "localhost-8000:m", "models.example.org:m"]


def test_default_server_has_prefix_of_string() -> None:
    assert Agent("a", model=OpenAIChatProvider("gpt-5", api_key="key")).definition.model == "openai:gpt-5"
    assert Agent("a", model=AnthropicProvider("claude-x", api_key="key")).definition.model == "anthropic:claude-x"


async def test_anthropic_object_names_model_and_server(store: Store, api: FakeApi) -> None:
    api.answer(say("Hello."))
    provider = AnthropicProvider("claude-x", base_url=api.url, api_key="key-3", name="gateway")
    result = await Agent("helper", model=provider).run("Hi", store=store)
    await provider.close()
    assert (result.output_text, api.last["model"]) == ("Hello.", "claude-x")
    assert api.requests[0].headers["authorization"] == "Bearer key-3"
    assert (await store.run(result.run_id)).provider == "gateway"


def test_rejects_provider_without_model_and_bad_names() -> None:
    with pytest.raises(Refused, match="has no model"):
        Agent("a", model=OpenAIChatProvider(api_key="key"))
    with pytest.raises(ProviderError, match="without a colon"):
        OpenAIChatProvider("m", api_key="key", name="a:b")


async def test_open_run_continues_at_its_server_with_its_model(store: Store, api: FakeApi) -> None:
    """The code names another model of the same server. The open run keeps the model that it started with."""

    @tool(approval=True)
    def pay() -> str:
        return "paid"

    call = Answer([{"type": "tool_use", "id": "c1", "name": "pay", "input": {}}], stop="tool_use")
    api.answer(call, say("Paid."))

    providers: list[OpenAIChatProvider] = []

    def agent(model: str) -> Agent:
        providers.append(OpenAIChatProvider(model, base_url=f"{api.url}/v1", api_key="key", name="ollama"))
        return Agent("helper", model=providers[-1], tools=[pay], title=False)

    waiting = await agent("old").run("Pay", store=store, thread="t")
    assert waiting.status == "waiting"
    await approve(store, "t", "c1")
    result = await agent("new").resume(store=store, thread="t")
    for provider in providers:
        await provider.close()
    assert result.output_text == "Paid."
    assert [request.body["model"] for request in api.requests] == ["old", "old"]


async def test_run_of_unknown_server_is_refused(store: Store, api: FakeApi) -> None:
    """A stored name never makes a process send its key to another server."""

    @tool(approval=True)
    def pay() -> str:
        return "paid"

    api.answer(Answer([{"type": "tool_use", "id": "c1", "name": "pay", "input": {}}], stop="tool_use"))
    first = OpenAIChatProvider("m", base_url=f"{api.url}/v1", api_key="key", name="ollama")
    await Agent("helper", model=first, tools=[pay]).run("Pay", store=store, thread="t")
    await first.close()
    await approve(store, "t", "c1")
    with pytest.raises(ProviderError, match=r"'ollama:m' is not a model.*object with the name 'ollama'"):
        await Agent("helper", model=Scripted(["Hi"]), tools=[pay]).resume(store=store, thread="t")
    assert len(api.requests) == 1


def test_agents_of_two_servers_have_different_providers() -> None:
    agents = [
        Agent(name, model=OpenAIChatProvider("m", base_url=f"http://localhost:{port}/v1", api_key="key", name=name))
        for name, port in (("ollama", 11434), ("vllm", 8000))
    ]
    assert [agent.provider for agent in App(agents).agents.values()] == ["ollama", "vllm"]
