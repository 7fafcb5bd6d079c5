"""Call ids in requests: providers reject ids that repeat, and some servers repeat them."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.providers import anthropic_wire, openai_chat, openai_responses
from lockstitch.agents.providers.http import with_unique_ids
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import Json, codec, tool_result
from tests.agents.providers.asking import request


def talk(*responses: list[str]) -> list[Json]:
    """A conversation whose responses make calls with these ids. Each result names the tool of its call."""
    messages: list[Json] = [{"role": "user", "content": "Go"}]
    for number, ids in enumerate(responses):
        calls = [{"type": "tool_use", "id": id, "name": f"t{number}_{at}", "input": {}} for at, id in enumerate(ids)]
        messages.append({"role": "assistant", "content": calls})
        messages.append({"role": "user", "content": [tool_result(id, f"t{number}_{at}") for at, id in enumerate(ids)]})
    return messages


def anthropic_pairs(model_request: ModelRequest) -> list[tuple[str, str, bool]]:
    blocks = [
        block for message in anthropic_wire.build(model_request, None)["messages"][1:] for block in message["content"]
    ]
    return [
        (block["id"], block["name"], True)
        if block["type"] == "tool_use"
        else (block["tool_use_id"], block["content"], False)
        for block in blocks
    ]


def chat_pairs(model_request: ModelRequest) -> list[tuple[str, str, bool]]:
    pairs: list[tuple[str, str, bool]] = []
    for message in openai_chat.build(model_request, custom=True)["messages"][1:]:
        pairs += [(call["id"], call["function"]["name"], True) for call in message.get("tool_calls", [])]
        if message["role"] == "tool":
            pairs.append((message["tool_call_id"], message["content"], False))
    return pairs


def responses_pairs(model_request: ModelRequest) -> list[tuple[str, str, bool]]:
    items = openai_responses.build(model_request)["input"][1:]
    return [
        (item["call_id"], item.get("name") or item["output"], item["type"] == "function_call")
        for item in items
        if "call_id" in item
    ]


PAIRS: dict[str, Callable[[ModelRequest], list[tuple[str, str, bool]]]] = {
    "anthropic": anthropic_pairs,
    "openai_chat": chat_pairs,
    "openai_responses": responses_pairs,
}


@pytest.mark.parametrize("provider", PAIRS)
@pytest.mark.parametrize(
    "responses",
    [
        (["call_0"], ["call_0"], ["call_0", "call_1"]),
        (["call_0", "call_0"], ["call_0"]),
        (["call_0"], ["call_0_2"], ["call_0"]),
        (["a.b"], ["a_b"]),
    ],
)
def test_request_repeats_no_call_id(provider: str, responses: tuple[list[str], ...]):
    messages = talk(*responses)
    before = codec.dumps(messages)
    pairs = PAIRS[provider](request(*messages))
    calls = {id: name for id, name, is_call in pairs if is_call}
    results = {id: name for id, name, is_call in pairs if not is_call}
    assert len(calls) == sum(map(len, responses))
    assert calls == results
    assert codec.dumps(messages) == before, "the record keeps what the model said"


@given(st.lists(st.lists(st.sampled_from(["call_0", "call_0_2", "call_1", "x"]), min_size=1, max_size=3), max_size=6))
def test_ids_are_unique_and_the_prefix_is_stable(responses: list[list[str]]):
    messages = talk(*responses)
    renamed = with_unique_ids(messages)
    blocks: list[Any] = [block for message in renamed[1:] for block in message["content"]]
    calls = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert calls == results
    assert len(calls) == sum(map(len, responses))
    for length in range(len(messages)):
        assert with_unique_ids(messages[:length]) == renamed[:length]
    flat = [id for ids in responses for id in ids]
    if len(set(flat)) == len(flat):
        assert all(after is before for after, before in zip(renamed, messages, strict=True)), (
            "nothing is copied needlessly"
        )
