"""A wrong base URL: the error names the URL and the answer, and the run does not retry without hope."""

import socket
import time
from collections.abc import Callable

import pytest

from lockstitch import Agent, Store
from lockstitch.agents.providers.anthropic import AnthropicProvider
from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider
from lockstitch.engine.ports.provider import Provider
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import failure, request

pytestmark = pytest.mark.anyio

MakeProvider = Callable[..., Provider]
PAGE = b"<html>\n<head><title>404 Not Found</title></head>\n<body>" + b"<p>nginx</p>" * 1000 + b"</body></html>"
HTML = {"content-type": "text/html; charset=utf-8"}


@pytest.fixture(params=[AnthropicProvider, OpenAIChatProvider, OpenAIResponsesProvider])
def make(request: pytest.FixtureRequest) -> MakeProvider:
    return request.param


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (Answer(status=404, body=PAGE, headers=HTML), ["status 404", "404 Not Found"]),
        (Answer(status=404, body={"detail": "Not Found"}), ["status 404", '{"detail": "Not Found"}']),
        (Answer(status=404, body={"error": {"message": "No model llama9."}}), ["status 404: No model llama9."]),
        (Answer(status=404, body=b""), ["status 404: (empty)"]),
        (Answer(status=405, body=b"no", headers={"content-type": "text/plain"}), ["status 405: no"]),
        (Answer(status=200, body=PAGE, headers=HTML), ["status 200", "404 Not Found", "Check the base URL"]),
    ],
)
async def test_error_names_url_and_answer(api: FakeApi, make: MakeProvider, answer: Answer, parts: list[str]) -> None:
    api.answer(answer)
    provider = make("llama3", base_url=f"{api.url}/wrong?token=secret".replace("//", "//user:secret@"), api_key="key")
    failed = await failure(provider, request("Hi"))
    await provider.close()
    text = str(failed)
    assert (failed.retryable, failed.status) == (False, answer.status)
    assert f"{api.url}/wrong" in text
    assert [part for part in parts if part not in text] == []
    assert "secret" not in text
    assert len(text) < 700


async def test_json_document_instead_of_stream_names_url_and_answer(api: FakeApi, make: MakeProvider) -> None:
    api.answer(Answer(status=200, body={"status": "Ollama is running"}))
    provider = make("llama3", base_url=api.url, api_key="key")
    failed = await failure(provider, request("Hi"))
    await provider.close()
    assert failed.kind == "garbled"
    assert api.url in str(failed)
    assert "Ollama is running" in str(failed)


@pytest.mark.parametrize("content_type", ["text/html", "application/json"])
async def test_stream_with_wrong_content_type_is_read(api: FakeApi, content_type: str) -> None:
    stream = (
        b'data: {"choices": [{"index": 0, "delta": {"content": "Hi."}}]}\n\n'
        b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    api.answer(Answer(status=200, body=stream, headers={"content-type": content_type}))
    provider = OpenAIChatProvider("llama3", base_url=f"{api.url}/v1", api_key="key")
    parts = [part async for part in provider.stream(request("Hi"))]
    await provider.close()
    assert "Hi." in str(parts[-1])


@pytest.mark.parametrize(("base", "has_hint"), [("", True), ("/v1", False)])
async def test_hints_at_missing_version(api: FakeApi, base: str, has_hint: bool) -> None:
    api.answer(Answer(status=404, body=b"404 page not found", headers={"content-type": "text/plain"}))
    provider = OpenAIChatProvider("llama3", base_url=f"{api.url}{base}", api_key="key")
    failed = await failure(provider, request("Hi"))
    await provider.close()
    assert f"{api.url}{base}/chat/completions answered with status 404: 404 page not found" in str(failed)
    assert ("need /v1" in str(failed)) is has_hint


async def test_hints_at_doubled_version(api: FakeApi) -> None:
    api.answer(Answer(status=404, body={"detail": "Not Found"}))
    provider = AnthropicProvider("claude", base_url=f"{api.url}/v1", api_key="key")
    failed = await failure(provider, request("Hi"))
    await provider.close()
    assert "must not end in /v1" in str(failed)


async def test_refused_connection_names_url(make: MakeProvider, closed_port: int) -> None:
    provider = make("llama3", base_url=f"http://127.0.0.1:{closed_port}/v1", api_key="key")
    failed = await failure(provider, request("Hi"))
    await provider.close()
    assert failed.kind == "connection"
    assert f"http://127.0.0.1:{closed_port}/v1" in str(failed)


@pytest.mark.parametrize("status", [404, 200])
async def test_run_fails_after_one_request_when_server_sends_page(store: Store, api: FakeApi, status: int) -> None:
    api.answer(Answer(status=status, body=PAGE, headers=HTML))
    began = time.monotonic()
    provider = OpenAIChatProvider("llama3", base_url=api.url, api_key="key")
    result = await Agent("helper", model=provider).run("Hi", store=store)
    await provider.close()
    assert (result.status, len(api.requests)) == ("failed", 1)
    assert f"{api.url}/chat/completions" in str(result.error)
    assert time.monotonic() - began < 5


async def test_run_names_url_after_its_retries_when_connection_is_refused(store: Store, closed_port: int) -> None:
    provider = OpenAIChatProvider("llama3", base_url=f"http://127.0.0.1:{closed_port}/v1", api_key="key")
    agent = Agent("helper", model=provider, max_retries=2, base_delay=0.01)
    result = await agent.run("Hi", store=store, thread="t")
    await provider.close()
    assert result.status == "failed"
    assert f"127.0.0.1:{closed_port}" in str(result.error)
    log = [stitch.type for stitch in await store.log(result.run_id)]
    assert log.count("api_retry") == 2
