"""Names of models select a provider. Errors explain why a provider is not available."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch.agents.providers import http
from lockstitch.agents.providers.anthropic import AnthropicProvider
from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.registry import resolve_provider
from lockstitch.engine.ports.provider import ModelRequest, ProviderError
from tests.agents.fake_api import Answer, FakeApi, fake_api
from tests.agents.providers.asking import answer, request

TEXT = {"type": "text", "text": "Hello."}


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize(
    ("name", "base_url", "kind"),
    [
        ("anthropic:claude-sonnet-5", None, AnthropicProvider),
        ("openai:gpt-5", None, OpenAIResponsesProvider),
        ("openai:gpt-5", "https://api.openai.com/v1", OpenAIResponsesProvider),
        ("openai:llama:8b", "https://models.example.org/v1", OpenAIChatProvider),
        ("openai-chat:gpt-5", None, OpenAIChatProvider),
        ("openai-responses:gpt-5", "https://models.example.org/v1", OpenAIResponsesProvider),
    ],
)
def test_name_selects_provider_and_model(name: str, base_url: str | None, kind: type[object]) -> None:
    provider, model = resolve_provider(name, base_url=base_url)
    assert type(provider) is kind
    assert model == name.partition(":")[2]


@pytest.mark.usefixtures("_keys")
def test_url_of_environment_selects_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example.org/v1")
    assert isinstance(resolve_provider("openai:some-model")[0], OpenAIChatProvider)


@pytest.mark.anyio
@pytest.mark.usefixtures("_keys")
async def test_uses_keys_and_urls_of_environment(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
    provider, model = resolve_provider("anthropic:claude-sonnet-5")
    api.answer(Answer([TEXT]))
    assert (await answer(provider, request("Hi", model=model))).model == "claude-sonnet-5"
    assert api.requests[0].headers["authorization"] == "Bearer key"
    await provider.close()


@pytest.mark.parametrize("name", ["claude-sonnet-5", "anthropic:", "oracle:delphi", "", ":x"])
def test_rejects_unknown_model_names(name: str) -> None:
    with pytest.raises(ProviderError, match=r"for example anthropic:claude-") as caught:
        resolve_provider(name)
    assert caught.value.kind == "setup"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5", "OPENAI_API_KEY"),
    ],
)
def test_missing_key_raises_before_request(name: str, variable: str) -> None:
    with pytest.raises(ProviderError, match=variable) as caught:
        resolve_provider(name)
    assert caught.value.kind == "setup"
    assert not caught.value.retryable


def test_unreadable_credentials_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("ANTHROPIC_PROFILE", "mine")
    with pytest.raises(ProviderError, match="ANTHROPIC_API_KEY") as caught:
        resolve_provider("anthropic:claude-sonnet-5")
    assert caught.value.kind == "setup"


def test_local_server_needs_no_key() -> None:
    assert isinstance(resolve_provider("openai:llama3", base_url="http://localhost:11434/v1")[0], OpenAIChatProvider)


@pytest.mark.parametrize("base_url", ["example.org/v1", "ftp://example.org", "https://"])
def test_rejects_invalid_base_url(base_url: str) -> None:
    for name in ("anthropic:x", "openai:x"):
        with pytest.raises(ProviderError, match="is not a base URL") as caught:
            resolve_provider(name, base_url=base_url, api_key="key")
        assert caught.value.kind == "setup"


@pytest.mark.parametrize(("name", "extra"), [("anthropic:x", "anthropic"), ("openai:x", "openai")])
def test_missing_sdk_error_names_its_extra(name: str, extra: str) -> None:
    code = f"""
import sys
sys.modules[{extra!r}] = None
from lockstitch.agents.registry import resolve_provider
try:
    resolve_provider({name!r})
except Exception as error:
    print(type(error).__name__, error.kind, error)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.startswith("ProviderError setup")
    assert f"lockstitch[{extra}]" in output


def test_provider_loads_no_sdk_of_another(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["Hello."]')
    code = f"""
import sys
from lockstitch.agents.registry import resolve_provider
resolve_provider("scripted:{script}")
print([name for name in ("anthropic", "openai", "httpx2", "yaml") if name in sys.modules])
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_scripts_are_providers(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- Hello.\n")
    provider, model = resolve_provider(f"scripted:{script}")
    assert isinstance(provider, Scripted)
    assert model == str(script)
    with pytest.raises(ProviderError) as caught:
        resolve_provider(f"scripted:{tmp_path}/none.yaml")
    assert caught.value.kind == "setup"


def test_provider_serves_several_event_loops() -> None:
    """Notebooks and scripts call asyncio.run repeatedly. Connections of a closed loop cannot be used."""
    provider = AnthropicProvider(api_key="key", base_url="http://127.0.0.1:1")

    async def once() -> str:
        async with fake_api() as api:
            api.answer(Answer([TEXT]))
            provider._base_url = api.url  # pyright: ignore[reportPrivateUsage]
            provider._clients._unused = None  # pyright: ignore[reportPrivateUsage]
            response = await answer(provider, request("Hi"))
            await provider.close()
            return response.message["content"][0]["text"]

    assert [asyncio.run(once()), asyncio.run(once())] == ["Hello.", "Hello."]


def test_own_parameters_have_priority() -> None:
    assert http.merged({"a": {"x": 1}, "b": {"x": 1}}, {"a": {"y": 2}, "b": {"y": 2}}, nested=("a",)) == {
        "a": {"x": 1, "y": 2},
        "b": {"y": 2},
    }


def test_turn_and_step_are_not_sent_as_parameters() -> None:
    model_request = ModelRequest("m", [], turn=2, step=0, attempt=3, purpose="title")
    assert model_request.parameters == {"model": "m", "max_tokens": 2048}
