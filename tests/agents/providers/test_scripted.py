"""The scripted model gives the same answer at the same position of a thread, for every caller and every call."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import Chunk, Download, ModelRequest, ProviderError, Usage
from tests.agents.providers.asking import SCHEMA, answer, ask, failure, joined, request

pytestmark = pytest.mark.anyio


def at(turn: int, step: int, **more: Any) -> ModelRequest:
    return request("Hi", turn=turn, step=step, **more)


async def text_at(provider: Scripted, turn: int, step: int, **more: Any) -> str:
    return (await answer(provider, at(turn, step, **more))).message["content"][0]["text"]


async def test_step_selects_reply() -> None:
    script = ["one", {"text": "two"}]
    assert await text_at(Scripted(script), 1, 2) == "two"
    assert await text_at(Scripted(script), 1, 1) == "one"
    assert await text_at(Scripted(script), 7, 1) == "one"


async def test_list_of_lists_has_turns_and_starts_again() -> None:
    provider = Scripted([["a1", "a2"], ["b1"]])
    places = [(1, 1), (1, 2), (2, 1), (3, 1), (4, 1)]
    assert [await text_at(provider, turn, step) for turn, step in places] == ["a1", "a2", "b1", "a1", "b1"]


async def test_missing_reply_raises() -> None:
    error = await failure(Scripted([["a"], ["b", "c"]]), at(2, 3))
    assert error.kind == "request"
    assert "2 replies for turn 2" in str(error)


async def test_content_order_is_thinking_text_blocks_calls() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "code", "input": {}}
    reply = {
        "thinking": "Hm.",
        "text": "Adding.",
        "blocks": [block],
        "calls": [{"name": "add", "input": {"a": 1}}, {"name": "stop", "id": "mine"}],
        "container_id": "container_1",
    }
    chunks, response = await ask(Scripted([[], ["", reply]]), at(2, 2))
    assert response.message["content"] == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Adding."},
        block,
        {"type": "tool_use", "id": "call_2_2_0", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "mine", "name": "stop", "input": {}},
    ]
    assert [chunk.kind for chunk in chunks] == ["thinking", "text", "server_tool_call", "tool_call", "tool_call"]
    assert (response.stop_reason, response.container_id) == ("tool_use", "container_1")
    assert response.response_id == "scripted_2_2"


async def test_script_can_set_usage_and_stop_reason() -> None:
    usage = {"input_tokens": 100, "output_tokens": 5, "cache_read_tokens": 90}
    response = await answer(Scripted([{"text": "x", "usage": usage, "stop_reason": "max_tokens"}]), at(1, 1))
    assert response.usage == Usage(100, 5, 90)
    assert response.stop_reason == "max_tokens"


async def test_estimated_usage_is_stable() -> None:
    provider = Scripted(["x" * 400])
    first, second = await answer(provider, at(1, 1)), await answer(provider, at(1, 1))
    assert first.usage == second.usage
    assert first.usage.output_tokens > 100
    assert first.usage.cache_read_tokens == first.usage.cache_write_tokens == 0
    longer = await answer(provider, request("Hi " * 100))
    assert longer.usage.input_tokens > first.usage.input_tokens


async def test_data_becomes_json_answer() -> None:
    model_request = request("Hi", output_schema=SCHEMA)
    response = await answer(Scripted([{"data": {"sum": 3}}]), model_request)
    assert json.loads(response.message["content"][0]["text"]) == {"sum": 3}


async def test_failure_ends_after_given_attempts() -> None:
    provider = Scripted([{"fail": "rate_limit", "times": 2, "retry_after": 0.5, "message": "Slow", "text": "Now."}])
    for attempt in (0, 1):
        error = await failure(provider, at(1, 1, attempt=attempt))
        assert (error.kind, error.retry_after, str(error)) == ("rate_limit", 0.5, "Slow")
    assert await text_at(provider, 1, 1, attempt=2) == "Now."


async def test_failure_without_number_never_ends() -> None:
    error = await failure(Scripted([{"fail": "auth"}]), at(1, 1, attempt=99))
    assert (error.kind, error.retryable) == ("auth", False)


@pytest.mark.parametrize(("cut", "text"), [(0, ""), (3, "Hel"), (7, "Hello, "), (99, "Hello, world")])
async def test_cuts_stream(cut: int, text: str) -> None:
    provider = Scripted([{"text": "Hello, world", "chunk": 2, "cut_after": cut, "times": 1}])
    chunks: list[str] = []

    async def listen() -> None:
        async for part in provider.stream(at(1, 1)):
            assert isinstance(part, Chunk)
            chunks.append(part.text)

    with pytest.raises(ProviderError) as caught:
        await listen()
    assert "".join(chunks) == text
    assert caught.value.kind == "connection"
    assert await text_at(provider, 1, 1, attempt=1) == "Hello, world"


async def test_chunks_have_requested_size() -> None:
    chunks, _ = await ask(Scripted([{"text": "abcdefg", "chunk": 3}]), at(1, 1))
    assert [chunk.text for chunk in chunks] == ["abc", "def", "g"]


async def test_waits_before_and_between_chunks() -> None:
    start = time.monotonic()
    await ask(Scripted([{"text": "abcd", "chunk": 1, "delay": 0.05, "pause": 0.02}]), at(1, 1))
    assert time.monotonic() - start >= 0.12
    assert (await failure(Scripted([{"text": "x", "delay": 60}]), at(1, 1, timeout=0.05))).kind == "timeout"


async def test_answers_calls_outside_of_loop_by_purpose() -> None:
    provider = Scripted({"replies": ["one"], "side_calls": {"title": "A title", "summary": {"fail": "server"}}})
    assert await text_at(provider, 1, 0, purpose="title") == "A title"
    assert (await failure(provider, at(1, 0, purpose="summary"))).kind == "server"
    assert await text_at(provider, 1, 0, purpose="memory") == "memory"
    assert await text_at(provider, 1, 1) == "one"


async def test_function_can_answer() -> None:
    def reply(model_request: ModelRequest) -> Any:
        return f"{model_request.turn}.{model_request.step}"

    async def later(model_request: ModelRequest) -> Any:
        await asyncio.sleep(0)
        return {"calls": [{"name": "add"}]} if model_request.step == 1 else "Done."

    assert await text_at(Scripted(reply), 2, 3) == "2.3"
    assert (await answer(Scripted(later), at(1, 1))).stop_reason == "tool_use"
    assert await text_at(Scripted(later), 1, 2) == "Done."


async def test_serves_files(tmp_path: Path) -> None:
    files = {"f1": {"filename": "a.csv", "content": "a,b"}, "f2": {"filename": "b.png", "base64": "iVBORw=="}}
    provider = Scripted({"replies": ["x"], "files": files})
    assert await provider.download("f1") == Download("a.csv", b"a,b")
    assert (await provider.download("f2")).content == b"\x89PNG"
    with pytest.raises(ProviderError, match="no file f3"):
        await provider.download("f3")


async def test_loads_scripts_from_files(tmp_path: Path) -> None:
    yaml = tmp_path / "script.yaml"
    yaml.write_text("replies:\n- calls: [{name: add, input: {a: 1}}]\n- Done.\nside_calls: {title: Sums}\n")
    provider = Scripted.from_file(yaml)
    assert (await answer(provider, at(1, 1))).message["content"][0]["input"] == {"a": 1}
    assert await text_at(provider, 1, 0, purpose="title") == "Sums"

    plain = tmp_path / "script.json"
    plain.write_text('["One."]')
    assert await text_at(Scripted.from_file(plain), 1, 1) == "One."


@pytest.mark.parametrize("text", ["- {text: hi, txt: ho}", "{replies: []}", "{}", "3", "- [", "- {calls: [{}]}"])
def test_rejects_invalid_script_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(ProviderError, match=r"script\.yaml") as caught:
        Scripted.from_file(path)
    assert caught.value.kind == "setup"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"txt": "x"}, "unknown keys: txt"),
        ({"fail": "boredom"}, "fail must be one of rate_limit"),
        ({"stop_reason": "tired"}, "stop_reason must be one of end_turn"),
        ({"calls": [{"input": {}}]}, "has no name"),
        ({"usage": {"tokens": 1}}, "unknown keys: tokens"),
        (3, "a text or a mapping"),
    ],
)
def test_rejects_invalid_reply(reply: Any, message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        Scripted([reply])


async def test_yields_raw_events() -> None:
    chunks, _ = await ask(Scripted(["Hi."], raw_events=True), at(1, 1))
    assert [chunk.kind for chunk in chunks] == ["raw", "text"]
    assert joined(chunks, "text") == "Hi."
