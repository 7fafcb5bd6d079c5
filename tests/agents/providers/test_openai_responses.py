"""OpenAI's Responses API, with the real SDK and a local server that streams like the API."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider
from lockstitch.engine.ports.provider import INVALID_JSON, Usage
from lockstitch.model import codec
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import ADD, LINK, NOTE, PDF, PNG, SCHEMA, answer, ask, first_text, joined, request

pytestmark = pytest.mark.anyio

REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "ZW5jcnlwdGVk",
}
NOTED = {"type": "url_citation", "url": "https://example.org", "title": "Sums", "start_index": 0, "end_index": 2}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [
        {"type": "output_text", "text": "It is three — ", "annotations": [NOTED], "logprobs": []},
        {"type": "output_text", "text": "3️⃣.", "annotations": [], "logprobs": []},
    ],
}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "sum"},
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_a",
    "name": "add",
    "arguments": '{"a":1,"b":2}',
    "status": "completed",
}
SPACED = {**CALL, "id": "fc_2", "call_id": "call_b", "arguments": '{ "a": 3, "b": 4 }'}
SAID = {**MESSAGE, "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}


@pytest.fixture
async def provider(api: FakeApi) -> AsyncIterator[OpenAIResponsesProvider]:
    provider = OpenAIResponsesProvider(api_key="key", base_url=f"{api.url}/v1")
    yield provider
    await provider.close()


async def test_yields_chunks_then_response(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([REASONING, SEARCH, MESSAGE, CALL]))
    chunks, response = await ask(provider, request("1 + 2?", system="Add.", tools=[ADD]))
    assert joined(chunks, "thinking") == "First.\n\nThen."
    assert joined(chunks, "text") == "It is three — 3️⃣."
    assert [chunk.kind for chunk in chunks if chunk.data] == ["server_tool_call", "citation", "tool_call"]
    content = response.message["content"]
    assert [block["type"] for block in content] == ["thinking", "server_tool_use", "text", "text", "tool_use"]
    assert content[0]["thinking"] == "First.\n\nThen."
    assert content[1]["name"] == "web_search"
    assert {"id": "call_a", "name": "add", "input": {"a": 1, "b": 2}}.items() <= content[4].items()
    assert (response.stop_reason, response.finish_reason) == ("tool_use", "completed")
    assert (response.response_id, response.model) == ("resp_1", "model-1")
    assert api.requests[0].path == "/v1/responses"
    assert api.last["instructions"] == "Add."
    assert api.last["store"] is False
    assert api.last["include"] == ["reasoning.encrypted_content"]
    assert api.last["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": ADD["description"],
            "parameters": ADD["input_schema"],
            "strict": False,
        }
    ]


async def test_sends_items_back_unchanged(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    items = [REASONING, SEARCH, MESSAGE, {**REASONING, "id": "rs_2"}, CALL, SPACED]
    api.answer(Answer(items), Answer([SAID]))
    response = await answer(provider, request("1 + 2?"))
    stored = codec.loads(codec.dumps(response.message))
    results = [
        {"type": "tool_result", "tool_use_id": "call_a", "content": "3"},
        {"type": "tool_result", "tool_use_id": "call_b", "content": "too large", "is_error": True},
        {"type": "text", "text": "Go on."},
    ]
    await answer(provider, request("1 + 2?", stored, results))
    assert api.last["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1 + 2?"}]},
        *items,
        {"type": "function_call_output", "call_id": "call_a", "output": "3"},
        {"type": "function_call_output", "call_id": "call_b", "output": "Error: too large"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ]


async def test_stores_text_of_answer_once(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([MESSAGE, CALL]))
    response = await answer(provider, request("Hi"))
    written = codec.dumps(response.message).decode()
    assert written.count("It is three") == 1
    assert "arguments" not in written


async def test_leaves_out_incomplete_reasoning_and_sends_other_items_without_ids(
    api: FakeApi, provider: OpenAIResponsesProvider
) -> None:
    api.answer(Answer([{**REASONING, "encrypted_content": None}, SAID, CALL]), Answer([SAID]))
    response = await answer(provider, request("Hi"))
    await answer(provider, request("Hi", response.message))
    sent_items = api.last["input"][1:]
    assert [item["type"] for item in sent_items] == ["message", "function_call"]
    assert all("id" not in item for item in sent_items)


async def test_leaves_out_nulls_of_answer(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([{**REASONING, "status": None}, {**SAID, "phase": None}, {**CALL, "caller": None}]))
    response = await answer(provider, request("Hi"))
    await answer(provider, request("Hi", response.message))
    assert all(value is not None for item in api.last["input"] for value in item.values())


async def test_converts_messages_of_other_providers(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([SAID]))
    messages = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "thinking", "thinking": "hm", "openai": {"field": "reasoning_content"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "text", "text": "Said."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
    ]
    await answer(provider, request("Hi", {"role": "assistant", "content": messages}))
    assert api.last["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "Said."},
        {"type": "function_call", "call_id": "toolu_1", "name": "add", "arguments": '{"a":1}'},
    ]


@pytest.mark.req("S0-065", "X0-17")
async def test_usage_counts_nothing_twice_and_shows_cache(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([SAID], usage={"input": 100, "cached": 60, "output": 30, "reasoning": 20}))
    assert (await answer(provider, request("Hi"))).usage == Usage(100, 30, 60, 0)

    api.answer(Answer([REASONING, CALL]), Answer([SAID]))
    first = await answer(provider, request("x" * 400, system="s"))
    result = [{"type": "tool_result", "tool_use_id": "call_a", "content": "3"}]
    second = await answer(provider, request("x" * 400, first.message, result, system="s"))
    assert first.usage.input_tokens - 2 <= second.usage.cache_read_tokens < second.usage.input_tokens


async def test_sends_settings(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([SAID]))
    await answer(provider, request("Hi", model="gpt-4o-mini"))
    assert set(api.last) == {"model", "input", "max_output_tokens", "store", "stream"}
    model_request = request(
        "Hi",
        thinking_tokens=1024,
        output_schema=SCHEMA,
        server_tools=[{"type": "web_search"}],
        api_kwargs={"temperature": 0.1, "text": {"verbosity": "low"}, "reasoning": {"effort": "high"}},
    )
    await answer(provider, model_request)
    assert api.last["reasoning"] == {"effort": "high", "summary": "auto"}
    assert api.last["text"] == {
        "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True},
        "verbosity": "low",
    }
    assert api.last["tools"] == [{"type": "web_search"}]
    assert api.last["temperature"] == 0.1
    loose: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    await answer(provider, request("Hi", output_schema=loose))
    assert api.last["text"]["format"]["strict"] is False


async def test_sends_images_and_documents(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([SAID]))
    text = {"type": "text", "text": "Look"}
    result = {"type": "tool_result", "tool_use_id": "call_a", "content": [text, PNG, PDF], "is_error": True}
    far = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    filed = [
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        {"type": "image", "source": {"type": "file", "file_id": "file-2"}},
    ]
    await answer(provider, request([result, PNG, LINK, PDF, NOTE, far, *filed]))
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aVZCT1I="}
    paper = {"type": "input_file", "filename": "paper.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
    output, message = api.last["input"]
    assert output["output"] == [
        {"type": "input_text", "text": "Error:"},
        {"type": "input_text", "text": "Look"},
        image,
        paper,
    ]
    assert message["content"] == [
        image,
        {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
        paper,
        {"type": "input_text", "text": "Note\n\nHi."},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_image", "detail": "auto", "file_id": "file-2"},
    ]


async def test_sends_arguments_that_are_not_json_back_unchanged(
    api: FakeApi, provider: OpenAIResponsesProvider
) -> None:
    broken = {**CALL, "arguments": '{"a": ', "status": "incomplete"}
    api.answer(Answer([broken], stop="max_output_tokens"))
    response = await answer(provider, request("Hi"))
    assert response.message["content"][0]["input"] == {INVALID_JSON: '{"a": '}
    assert (response.stop_reason, response.finish_reason) == ("max_tokens", "max_output_tokens")
    await answer(provider, request("Hi", response.message))
    assert api.last["input"][1] == broken


async def test_sends_refusals_back(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I will not."}]}
    api.answer(Answer([refusal]))
    chunks, response = await ask(provider, request("Hi"))
    assert joined(chunks, "text") == "I will not."
    assert response.stop_reason == "refusal"
    await answer(provider, request("Hi", response.message))
    assert api.last["input"][1] == refusal

    api.answer(Answer([SAID], stop="content_filter"))
    assert (await answer(provider, request("Hi"))).stop_reason == "refusal"


async def test_closing_the_iterator_ends_connection(api: FakeApi, provider: OpenAIResponsesProvider) -> None:
    api.answer(Answer([SAID], hang_after=4))
    stream = provider.stream(request("Hi"))
    assert await first_text(stream) == "Hello"
    await stream.aclose()
    await api.hung_up.wait()
