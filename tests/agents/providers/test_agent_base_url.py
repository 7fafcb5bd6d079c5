"""`Agent(model="openai:…", base_url=…, api_key=…)`: the shorthand for a provider object, and titles of local models."""

import json

import pytest

from lockstitch import Agent, Store, StoredAgent, Team
from lockstitch.agents.providers.http import is_local
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.errors import Refused
from lockstitch.providers import AnthropicProvider, OpenAIChatProvider, OpenAIResponsesProvider
from lockstitch.testing import Scripted
from tests.agents.fake_api import Answer, FakeApi, fake_api

pytestmark = pytest.mark.anyio


def say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


async def test_two_servers_in_one_process(store: Store, api: FakeApi) -> None:
    async with fake_api() as other:
        api.answer(say("One."))
        other.answer(say("Two."))
        urls = [f"{api.url}/v1", f"{other.url}/v1".replace("//", "//user:secret-1@")]
        agents = [
            Agent(f"a{key}", model="openai:llama3", base_url=url, api_key=f"secret-key-{key}")
            for key, url in enumerate(urls)
        ]
        results = [await agent.run("Hi", store=store, thread=agent.name) for agent in agents]
        for agent in agents:
            await agent.close()
        assert [result.output_text for result in results] == ["One.", "Two."]
        assert api.requests[0].headers["authorization"] == "Bearer secret-key-0"
        ports = [server.url.rpartition(":")[2] for server in (api, other)]
    assert [agent.definition.model for agent in agents] == [f"127.0.0.1-{port}:llama3" for port in ports]
    stored = [await store.agents.version(store.project, agent.name, 1) for agent in agents]
    stitches = [str(await store.stitches(agent.name)) for agent in agents]
    assert "secret" not in json.dumps([version.definition for version in stored])
    assert "secret" not in "".join(stitches)


def test_prefix_selects_api() -> None:
    url = "https://models.example.org/v1"
    kinds = {
        "openai:m": OpenAIChatProvider,
        "openai-chat:m": OpenAIChatProvider,
        "openai-responses:m": OpenAIResponsesProvider,
        "anthropic:m": AnthropicProvider,
    }
    for model, kind in kinds.items():
        agent = Agent("a", model=model, base_url=url, api_key="key")
        assert (type(agent.model), agent.definition.model) == (kind, "models.example.org:m")


def test_key_alone_keeps_prefix() -> None:
    assert Agent("a", model="openai-chat:gpt-5", api_key="key").definition.model == "openai:gpt-5"
    assert isinstance(Agent("a", model="openai:gpt-5", api_key="key").model, OpenAIResponsesProvider)
    team = Team("t", model="openai:gpt-5", api_key="key", members=[Agent("a", model=Scripted(["Hi."]))])
    assert team.definition.model == "openai:gpt-5"


def test_rejects_base_url_without_text_model() -> None:
    with pytest.raises(Refused, match="to the provider object scripted"):
        Agent("a", model=Scripted(["Hi."]), base_url="http://localhost:1/v1")
    with pytest.raises(Refused, match="need a model of anthropic:…, openai:…"):
        Agent("a", model="scripted:x.json", base_url="http://localhost:1/v1")
    with pytest.raises(Refused, match="needs a model for base_url"):
        StoredAgent("a", base_url="http://localhost:1/v1")
    with pytest.raises(ProviderError, match="is not a base URL"):
        Agent("a", model="openai:m", base_url="localhost:11434")


def test_missing_key_names_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ProviderError, match=r"https://models.example.org/v1 needs a key. Set OPENAI_API_KEY"):
        Agent("a", model="openai:m", base_url="https://models.example.org/v1")
    Agent("a", model="openai:m", base_url="http://10.0.0.7:8000/v1")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        (None, False),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8:1/v1", False),
        ("http://localhost:11434/v1", True),
        ("http://ollama:11434/v1", True),
        ("http://gpu.local/v1", True),
        ("http://192.168.1.5:8000/v1", True),
        ("http://[::1]:8000/v1", True),
    ],
)
def test_private_addresses_are_local(url: str | None, local: bool) -> None:
    assert is_local(url) is local


@pytest.mark.parametrize(("title", "calls"), [(None, 1), (False, 1), (True, 2)])
async def test_local_model_writes_titles_only_on_request(
    store: Store, api: FakeApi, title: bool | None, calls: int
) -> None:
    api.answer(say("Hello."), say("A greeting"))
    agent = Agent("a", model="openai:m", base_url=f"{api.url}/v1", title=title)
    await agent.run("Hi", store=store, thread="t")
    await agent.close()
    assert len(api.requests) == calls
    assert (await store.thread("t")).title == ("A greeting" if title else None)


async def test_other_models_write_titles_by_default(store: Store) -> None:
    await Agent("a", model=Scripted(lambda request: "Hello")).run("Hi", store=store, thread="t")
    assert (await store.thread("t")).title == "Hello"
