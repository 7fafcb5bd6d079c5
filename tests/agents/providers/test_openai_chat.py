"""OpenAI's Chat Completions, with the real SDK and a local server that streams like the API."""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.agents.providers import openai_chat
from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
from lockstitch.engine.ports.provider import INVALID_JSON, Download, Usage
from lockstitch.model import codec
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import ADD, LINK, NOTE, PDF, PNG, SCHEMA, answer, ask, first_text, joined, request

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "It is three — 3️⃣."}
CALL = {"type": "tool_use", "id": "call_a", "name": "add", "input": {"a": 1, "b": 2}}
OTHER = {"type": "tool_use", "id": "call_b", "name": "add", "input": {"a": 3, "b": 4}}
WRITTEN = {**CALL, "json": '{"a":1,"b":2}'}
FUNCTION = {"name": "add", "arguments": '{"a":1,"b":2}'}


@pytest.fixture
async def provider(api: FakeApi) -> AsyncIterator[OpenAIChatProvider]:
    provider = OpenAIChatProvider(api_key="key", base_url=f"{api.url}/v1")
    yield provider
    await provider.close()


async def test_yields_chunks_then_response(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT, WRITTEN, {**OTHER, "json": '{"a":3,"b":4}'}], stop="tool_calls"))
    chunks, response = await ask(provider, request("1 + 2?", system="Add.", tools=[ADD]))
    assert joined(chunks, "text") == TEXT["text"]
    assert [chunk.data for chunk in chunks if chunk.kind == "tool_call"] == [CALL, OTHER]
    assert response.message == {"role": "assistant", "content": [TEXT, CALL, OTHER]}
    assert (response.stop_reason, response.finish_reason) == ("tool_use", "tool_calls")
    assert (response.response_id, response.model) == ("chatcmpl-1", "model-1")
    request_body = api.requests[0]
    assert (request_body.path, request_body.headers["authorization"]) == ("/v1/chat/completions", "Bearer key")
    assert request_body.body["messages"][0] == {"role": "system", "content": "Add."}
    assert request_body.body["stream_options"] == {"include_usage": True}
    assert request_body.body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": ADD["description"],
                "parameters": ADD["input_schema"],
            },
        }
    ]


async def test_sends_messages_back_unchanged(api: FakeApi, provider: OpenAIChatProvider) -> None:
    spaced = {**OTHER, "json": '{ "a": 3,\n "b": 4 }'}
    thought = {"type": "thinking", "thinking": "Let me see."}
    api.answer(Answer([thought, TEXT, WRITTEN, spaced], stop="tool_calls"), Answer([TEXT], stop="stop"))
    chunks, response = await ask(provider, request("1 + 2?"))
    assert joined(chunks, "thinking") == "Let me see."
    stored = codec.loads(codec.dumps(response.message))
    results = [
        {"type": "tool_result", "tool_use_id": "call_a", "content": "3"},
        {"type": "tool_result", "tool_use_id": "call_b", "content": [{"type": "text", "text": "7?"}], "is_error": True},
        {"type": "text", "text": "Go on."},
    ]
    model_request = request("1 + 2?", stored, results)
    before = copy.deepcopy(model_request)
    await answer(provider, model_request)
    assert model_request == before
    assert api.last["messages"] == [
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "reasoning_content": "Let me see.",
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": FUNCTION},
                {"id": "call_b", "type": "function", "function": {"name": "add", "arguments": spaced["json"]}},
            ],
            "content": TEXT["text"],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "3"},
        {"role": "tool", "tool_call_id": "call_b", "content": "Error: 7?"},
        {"role": "user", "content": "Go on."},
    ]


async def test_leaves_out_thinking_and_tools_of_other_providers(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], stop="stop"))
    messages = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "hm", "openai": {"type": "reasoning", "id": "rs_1"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
    ]
    silent = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    await answer(provider, request("Hi", {"role": "assistant", "content": messages}, "And?", silent))
    assert api.last["messages"][1:] == [
        {"role": "assistant", "content": "one\n\ntwo"},
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.req("S0-065", "X0-17")
async def test_usage_counts_nothing_twice_and_shows_cache(api: FakeApi, provider: OpenAIChatProvider) -> None:
    usage = {"input": 100, "cached": 60, "output": 30, "reasoning": 20}
    api.answer(Answer([TEXT], stop="stop", usage=usage))
    assert (await answer(provider, request("Hi"))).usage == Usage(100, 30, 60, 0)

    api.answer(Answer([TEXT], stop="stop"))
    first = await answer(provider, request("x" * 400))
    second = await answer(provider, request("x" * 400, first.message, "And?"))
    assert second.usage.input_tokens > second.usage.cache_read_tokens > 90


async def test_accepts_server_without_usage(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], stop="stop", change=lambda lines: [*lines[:-2], lines[-1]]))
    assert (await answer(provider, request("Hi"))).usage == Usage()


async def test_sends_settings(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], stop="stop"))
    await answer(provider, request("Hi"))
    assert set(api.last) == {"model", "messages", "max_tokens", "stream", "stream_options"}
    model_request = request(
        "Hi",
        thinking_tokens=8000,
        output_schema=SCHEMA,
        beta_headers=["tomorrow=v1"],
        server_tools=[{"type": "web_search"}],
        api_kwargs={"temperature": 0.1, "top_k": 5, "stream_options": {"x": 1}},
    )
    await answer(provider, model_request)
    assert api.last["reasoning_effort"] == "medium"
    assert api.last["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    }
    assert api.last["tools"] == [{"type": "web_search"}]
    assert (api.last["temperature"], api.last["top_k"]) == (0.1, 5)
    assert api.last["stream_options"] == {"include_usage": True, "x": 1}
    assert api.requests[-1].headers["openai-beta"] == "tomorrow=v1"
    assert openai_chat.build(model_request, custom=False)["max_completion_tokens"] == 2048


async def test_sends_images_and_documents(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], stop="stop"))
    result = {"type": "tool_result", "tool_use_id": "call_a", "content": [{"type": "text", "text": "Look"}, PNG]}
    far = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    filed = {"type": "document", "source": {"type": "file", "file_id": "file-1"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aVZCT1I="}}
    await answer(provider, request("Hi", {"role": "assistant", "content": [CALL]}, [result, PNG, LINK, PDF, NOTE]))
    tool, user = api.last["messages"][2:]
    assert tool["content"].startswith("Look\n(")
    assert user["content"] == [
        {"type": "text", "text": "Result of call_a:"},
        image,
        image,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "paper.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "text", "text": "Note\n\nHi."},
    ]
    await answer(provider, request([far, filed]))
    assert api.last["messages"][0]["content"] == [
        {"type": "text", "text": "(A document is at https://example.org/a.pdf.)"},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]


async def test_sends_data_result_as_json(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], stop="stop"))
    result = {"type": "tool_result", "tool_use_id": "call_a", "content": {"sum": 3}}
    empty = {"type": "tool_result", "tool_use_id": "call_b", "content": []}
    await answer(provider, request("Hi", {"role": "assistant", "content": [CALL, OTHER]}, [result, empty]))
    assert [message["content"] for message in api.last["messages"][2:]] == ['{"sum":3}', ""]


async def test_sends_arguments_that_are_not_json_back_unchanged(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([{**CALL, "json": '{"a": 1, '}], stop="length"))
    response = await answer(provider, request("Hi"))
    assert response.message["content"][0]["input"] == {INVALID_JSON: '{"a": 1, '}
    assert response.stop_reason == "max_tokens"
    await answer(provider, request("Hi", response.message, "?"))
    assert api.last["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1, '


@pytest.mark.req("S0-063")
@pytest.mark.parametrize(
    ("api_reason", "stop_reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("of tomorrow", "end_turn")],
)
async def test_maps_stop_reasons(api: FakeApi, provider: OpenAIChatProvider, api_reason: str, stop_reason: str) -> None:
    api.answer(Answer([TEXT], stop=api_reason))
    response = await answer(provider, request("Hi"))
    assert (response.stop_reason, response.finish_reason) == (stop_reason, api_reason)


async def test_sends_refusal_back_as_refusal(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([{"type": "refusal", "refusal": "I will not."}], stop="stop"))
    chunks, response = await ask(provider, request("Hi"))
    assert response.stop_reason == "refusal"
    assert joined(chunks, "text") == "I will not."
    await answer(provider, request("Hi", response.message, "?"))
    assert api.last["messages"][1] == {"role": "assistant", "refusal": "I will not."}


def _changed(edit: Any) -> Any:
    """Return a function that changes the calls of every chunk."""

    def change(lines: list[str]) -> list[str]:
        changed: list[str] = []
        for line in lines:
            if '"tool_calls": [' in line:
                chunk = json.loads(line.removeprefix("data: "))
                edit(chunk["choices"][0]["delta"]["tool_calls"][0])
                line = f"data: {json.dumps(chunk)}\n\n"
            changed.append(line)
        return changed

    return change


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda call: call.pop("index"), id="no index"),
        pytest.param(lambda call: call.update(index=0), id="all the same index"),
    ],
)
async def test_accepts_servers_with_wrong_call_numbers(api: FakeApi, provider: OpenAIChatProvider, edit: Any) -> None:
    content = [WRITTEN, {**OTHER, "json": '{"a":3,"b":4}'}]
    api.answer(Answer(content, stop="stop", change=_changed(edit)))
    response = await answer(provider, request("Hi"))
    assert response.message["content"] == [CALL, OTHER]
    assert response.stop_reason == "tool_use"


async def test_call_without_id_gets_one(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([WRITTEN], stop="tool_calls", change=_changed(lambda call: call.update(id=""))))
    response = await answer(provider, request("Hi"))
    assert response.message["content"][0]["id"] == "call_chatcmpl-1_0"


async def test_downloads_files(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.files["file-1"] = ("a.csv", "text/csv", b"a,b")
    assert await provider.download("file-1") == Download("a.csv", b"a,b", "text/csv")


async def test_closing_the_iterator_ends_connection(api: FakeApi, provider: OpenAIChatProvider) -> None:
    api.answer(Answer([TEXT], hang_after=3))
    stream = provider.stream(request("Hi"))
    assert await first_text(stream) == TEXT["text"][:5]
    await stream.aclose()
    await api.hung_up.wait()
