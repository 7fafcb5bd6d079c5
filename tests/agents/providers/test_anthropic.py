"""Anthropic's provider, with the real SDK and a local server that streams like the API."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.agents.providers.anthropic import AnthropicProvider
from lockstitch.agents.providers.anthropic_wire import usage_of
from lockstitch.engine.ports.provider import INVALID_JSON, Download, Usage
from lockstitch.model import codec
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import (
    ADD,
    LINK,
    NOTE,
    PDF,
    PNG,
    SCHEMA,
    answer,
    ask,
    failure,
    first_text,
    joined,
    request,
)

pytestmark = pytest.mark.anyio

MARK = {"type": "ephemeral"}
THINKING = {"type": "thinking", "thinking": "Let me see: 1 + 2.", "signature": "c2lnbmF0dXJl"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
TEXT = {"type": "text", "text": "It is three — 3️⃣."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sum"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.org",
            "title": "Sums",
            "encrypted_content": "ZW5j",
            "page_age": None,
            "a_field_of_tomorrow": {"deep": [18446744073709551616, 1.5]},
        }
    ],
}


@pytest.fixture
async def provider(api: FakeApi) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider(api_key="key", base_url=api.url)
    yield provider
    await provider.close()


def without_marks(messages: list[Any]) -> list[Any]:
    bare = copy.deepcopy(messages)
    for message in bare:
        for block in message["content"]:
            if isinstance(block, dict):
                block.pop("cache_control", None)
    return bare


async def test_yields_chunks_then_response(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([THINKING, TEXT, CALL], stop="tool_use", usage={"output_tokens": 42}))
    chunks, response = await ask(provider, request("1 + 2?", tools=[ADD]))

    assert joined(chunks, "thinking") == THINKING["thinking"]
    assert joined(chunks, "text") == TEXT["text"]
    assert len([chunk for chunk in chunks if chunk.kind == "text"]) > 2
    assert [chunk.data for chunk in chunks if chunk.kind == "tool_call"] == [CALL]
    assert response.message == {"role": "assistant", "content": [THINKING, TEXT, CALL]}
    assert response.stop_reason == response.finish_reason == "tool_use"
    assert response.usage.output_tokens == 42
    assert (response.response_id, response.model) == ("msg_1", "model-1")
    assert api.requests[0].headers["authorization"] == "Bearer key"


async def test_sends_blocks_back_unchanged(api: FakeApi, provider: AnthropicProvider) -> None:
    citation = {"type": "web_search_result_location", "url": "https://example.org", "cited_text": "three"}
    content = [THINKING, REDACTED, SEARCH, FOUND, {**TEXT, "citations": [citation]}, CALL]
    api.answer(Answer(content, stop="tool_use"), Answer([TEXT]))
    first = request("1 + 2?", tools=[ADD], server_tools=[{"type": "web_search_20250305", "name": "web_search"}])
    chunks, response = await ask(provider, first)
    assert response.message["content"] == content
    assert [chunk.kind for chunk in chunks if chunk.data] == [
        "server_tool_call",
        "server_tool_result",
        "citation",
        "tool_call",
    ]

    stored = codec.loads(codec.dumps(response.message))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}
    await answer(provider, request("1 + 2?", stored, [result]))
    assert codec.dumps(api.last["messages"][1]) == codec.dumps(response.message)
    assert without_marks(api.last["messages"])[2]["content"] == [result]


async def test_does_not_change_given_messages(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    model_request = request([{"type": "text", "text": "a"}], {"role": "assistant", "content": "b"}, "c", tools=[ADD])
    before = copy.deepcopy(model_request)
    await answer(provider, model_request)
    assert model_request == before


async def test_leaves_out_blocks_that_api_rejects(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    messages = [
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "of another", "openai": {"type": "reasoning", "id": "rs_1"}},
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "server_tool_use", "id": "ws_1", "name": "web_search", "input": {}, "openai": {"id": "ws_1"}},
        {"type": "text", "text": "said", "citations": None, "openai": {"id": "msg_1"}},
        {"type": "tool_use", "id": "functions.add:0", "name": "add", "input": {}, "openai": {"id": "fc_1"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "functions.add:0", "content": "3"}
    await answer(provider, request("Hi", {"role": "assistant", "content": messages}, [result]))
    sent_messages = without_marks(api.last["messages"])
    assert sent_messages[1]["content"] == [
        {"type": "text", "text": "said"},
        {"type": "tool_use", "id": "functions_add_0", "name": "add", "input": {}},
    ]
    assert sent_messages[2]["content"] == [{**result, "tool_use_id": "functions_add_0"}]


async def test_does_not_send_empty_message(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    await answer(provider, request("Hi", {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}))
    assert [message["role"] for message in api.last["messages"]] == ["user"]


async def test_second_step_reads_cache_that_first_step_wrote(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([CALL], stop="tool_use"), Answer([TEXT]))
    settings: Any = {"system": "You add. " * 50, "tools": [ADD]}
    first = await answer(provider, request("1 + 2?", **settings))
    result = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}]
    second = await answer(provider, request("1 + 2?", first.message, result, **settings))

    assert first.usage.cache_read_tokens == 0
    assert first.usage.cache_write_tokens == first.usage.input_tokens > 100
    assert second.usage.cache_read_tokens == first.usage.cache_write_tokens
    assert 0 < second.usage.cache_write_tokens < 100
    assert second.usage.input_tokens == second.usage.cache_read_tokens + second.usage.cache_write_tokens


async def test_sets_breakpoints_on_system_text_and_last_two_user_messages(
    api: FakeApi, provider: AnthropicProvider
) -> None:
    api.answer(Answer([TEXT]))
    body = {"role": "assistant", "content": [TEXT]}
    await answer(provider, request("a", body, "b", body, "c", system="Be brief.", tools=[ADD]))
    assert api.last["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert api.last["tools"] == [ADD]
    marked = [
        place
        for place, message in enumerate(api.last["messages"])
        if isinstance(message["content"], list) and "cache_control" in message["content"][-1]
    ]
    assert marked == [2, 4]


async def test_sets_breakpoint_on_last_tool_without_system_text(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    server = {"type": "code_execution_20250825", "name": "code_execution"}
    await answer(provider, request("a", tools=[ADD, ADD], server_tools=[server]))
    assert api.last["tools"] == [ADD, {**ADD, "cache_control": MARK}, server]


async def test_keeps_own_breakpoints_or_sets_none(api: FakeApi) -> None:
    api.answer(Answer([TEXT]))
    hour = AnthropicProvider(api_key="key", base_url=api.url, cache="1h")
    own_block = {"type": "text", "text": "a", "cache_control": MARK}
    await answer(hour, request([own_block], {"role": "assistant", "content": [TEXT]}, "b", system="s"))
    assert api.last["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert api.last["messages"][0]["content"] == [own_block]
    assert api.last["messages"][2]["content"] == "b"
    await hour.close()

    none = AnthropicProvider(api_key="key", base_url=api.url, cache=None)
    await answer(none, request("b", system="s", tools=[ADD]))
    assert "cache_control" not in str(api.last)
    await none.close()


@pytest.mark.req("S0-065", "X0-17")
def test_usage_counts_nothing_twice() -> None:
    counts = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 3000}
    assert usage_of({**counts, "output_tokens": 5}) == Usage(3210, 5, 200, 3000)
    assert usage_of({"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": None}) == Usage(10, 5)


def test_usage_includes_compactions() -> None:
    iterations = [
        {"type": "compaction", "input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 10},
        {"type": "message", "input_tokens": 7, "output_tokens": 5},
    ]
    assert usage_of({"input_tokens": 7, "output_tokens": 5, "iterations": iterations}) == Usage(1017, 105, 10)


async def test_plain_request_has_no_extras(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    await answer(provider, request("Hi"))
    assert "anthropic-beta" not in api.requests[0].headers
    assert set(api.last) == {"model", "max_tokens", "messages", "stream"}
    assert api.requests[0].headers["x-stainless-retry-count"] == "0"


async def test_sends_beta_headers_container_and_server_tools(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT], more={"container": {"id": "container_2", "expires_at": "2026-01-01T00:00:00Z"}}))
    server = {"type": "code_execution_20250825", "name": "code_execution"}
    model_request = request(
        "Hi",
        tools=[ADD],
        server_tools=[server],
        beta_headers=["files-api-2025-04-14", "code-execution-2025-08-25"],
        container_id="container_1",
    )
    response = await answer(provider, model_request)
    assert api.requests[0].headers["anthropic-beta"] == "files-api-2025-04-14,code-execution-2025-08-25"
    assert api.last["container"] == "container_1"
    assert api.last["tools"][-1] == server
    assert response.container_id == "container_2"

    await answer(provider, request("Hi", container_id="c", api_kwargs={"container": {"skills": [{"skill_id": "x"}]}}))
    assert api.last["container"] == {"id": "c", "skills": [{"skill_id": "x"}]}


async def test_api_kwargs_have_priority(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT], stop="stop_sequence"))
    kwargs = {"temperature": 0.5, "top_p": 0.9, "stop_sequences": ["x"], "max_tokens": 9}
    response = await answer(provider, request("Hi", api_kwargs=kwargs))
    assert kwargs.items() <= api.last.items()
    assert response.stop_reason == "stop_sequence"


async def test_sends_thinking_budget_if_set(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    await answer(provider, request("Hi", thinking_tokens=1024))
    assert api.last["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    await answer(provider, request("Hi"))
    assert "thinking" not in api.last


async def test_sends_structured_output(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([{"type": "text", "text": '{"sum": 3}'}]))
    await answer(provider, request("Hi", output_schema=SCHEMA, api_kwargs={"output_config": {"effort": "low"}}))
    assert api.last["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}

    loose = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}
    await answer(provider, request("Hi", output_schema=loose))
    sent_schema = api.last["output_config"]["format"]["schema"]
    assert sent_schema["additionalProperties"] is False
    assert "minLength" not in sent_schema["properties"]["name"]
    assert loose["properties"]["name"] == {"type": "string", "minLength": 2}

    error = await failure(provider, request("Hi", output_schema={"oneOf": 3}))
    assert error.kind == "request"


async def test_sends_images_and_documents_unchanged(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT]))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [PNG], "is_error": True}
    await answer(provider, request([result, PNG, LINK, PDF, NOTE]))
    assert without_marks(api.last["messages"])[0]["content"] == [result, PNG, LINK, PDF, NOTE]


@pytest.mark.parametrize("written", ['{"a": 1, "b', "[1]", '{"a": NaN}', '{"a": "\\ud800"}', '{"a": 1e999}'])
async def test_keeps_arguments_that_are_not_json_object_as_text(
    api: FakeApi, provider: AnthropicProvider, written: str
) -> None:
    api.answer(Answer([{**CALL, "json": written}], stop="max_tokens"))
    chunks, response = await ask(provider, request("Hi"))
    call = {**CALL, "input": {INVALID_JSON: written}}
    assert response.message["content"] == [call]
    assert response.stop_reason == "max_tokens"
    assert chunks[-1].data == call
    codec.dumps(response.message)


async def test_accepts_empty_arguments_and_any_integer(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([{**CALL, "json": ""}, {**CALL, "json": '{"a": 18446744073709551616}'}], stop="tool_use"))
    response = await answer(provider, request("Hi"))
    assert [block["input"] for block in response.message["content"]] == [{}, {"a": 18446744073709551616}]


@pytest.mark.req("S0-063")
@pytest.mark.parametrize(
    ("api_reason", "stop_reason"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("compaction", "pause_turn"),
        ("a reason of tomorrow", "end_turn"),
    ],
)
async def test_maps_stop_reasons(api: FakeApi, provider: AnthropicProvider, api_reason: str, stop_reason: str) -> None:
    api.answer(Answer([TEXT], stop=api_reason))
    response = await answer(provider, request("Hi"))
    assert (response.stop_reason, response.finish_reason) == (stop_reason, api_reason)


async def test_keeps_unknown_blocks_and_ignores_unknown_events(api: FakeApi, provider: AnthropicProvider) -> None:
    block = {"type": "hologram", "data": {"x": 1}}
    event = 'event: weather\ndata: {"type": "weather"}\n\n'
    api.answer(Answer([block, TEXT], change=lambda lines: [lines[0], event, *lines[1:]]))
    assert (await answer(provider, request("Hi"))).message["content"] == [block, TEXT]


async def test_joins_character_split_into_two_halves(api: FakeApi, provider: AnthropicProvider) -> None:
    halves = [r"\ud83d", r"\ude00"]
    lines = [
        f'event: content_block_delta\ndata: {{"type": "content_block_delta", "index": 0, '
        f'"delta": {{"type": "text_delta", "text": "{half}"}}}}\n\n'
        for half in halves
    ]
    change = {"type": "text", "text": ""}
    api.answer(Answer([change], change=lambda events: [*events[:3], *lines, *events[3:]]))
    response = await answer(provider, request("Hi"))
    assert response.message["content"] == [{"type": "text", "text": "😀"}]


async def test_yields_raw_events_if_requested(api: FakeApi) -> None:
    provider = AnthropicProvider(api_key="key", base_url=api.url, raw_events=True)
    api.answer(Answer([TEXT]))
    chunks, _ = await ask(provider, request("Hi"))
    raw = [chunk.data["type"] for chunk in chunks if chunk.kind == "raw"]
    assert (raw[0], raw[-1]) == ("message_start", "message_stop")
    await provider.close()


async def test_downloads_files(api: FakeApi, provider: AnthropicProvider) -> None:
    api.files["file_1"] = ("chart.png", "image/png", b"\x89PNG\x00")
    assert await provider.download("file_1") == Download("chart.png", b"\x89PNG\x00", "image/png")


async def test_closing_the_iterator_ends_connection(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT], hang_after=5))
    stream = provider.stream(request("Hi"))
    assert await first_text(stream) == TEXT["text"][:5]
    assert not api.hung_up.is_set()
    await stream.aclose()
    await api.hung_up.wait()


async def test_cancelling_the_reader_ends_connection(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer([TEXT], hang_after=5))
    reading = asyncio.create_task(answer(provider, request("Hi")))
    await api.silent.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.wait_for(api.hung_up.wait(), 60)
