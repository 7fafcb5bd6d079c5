"""The loop: order of actions, limits, retries, and history window."""

import asyncio
import socket
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.config import AgentDefinition
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.engine.ports.tool import ToolFailed
from lockstitch.errors import StoreUnreachable
from lockstitch.model import text_of
from lockstitch.store import Store, open_store
from lockstitch.store.writes import writer
from tests.agents.conftest import Claude
from tests.agents.fake_api import Answer, FakeApi
from tests.engine import story
from tests.engine.agents import add, assert_can_continue, calls, config_of, confirm, log, scripted, types
from tests.engine.test_executor import Failing

pytestmark = pytest.mark.anyio


@pytest.mark.req("S0-011")
async def test_pause_keeps_step_count_and_side_calls_do_not_count(store: Store):
    names: list[str] = []

    def answer(request: Any) -> Any:
        names.append(request.purpose or f"{request.tool_choice}")
        return "A title" if request.purpose else calls("confirm")

    helper = Agent("helper", model=Scripted(answer), tools=[confirm], max_steps=3)
    result = await helper.run("Go", store=store, thread="t")
    for step in range(1, 4):
        assert result is not None
        assert (result.status, result.steps) == ("waiting", step)
        result = await helper.submit("t", [{"tool_use_id": f"call_1_{step}_0", "content": "y"}], store=store)
    assert result is not None
    assert (result.status, result.stop_reason, result.steps) == ("completed", "max_steps", 3)
    assert names == ["auto", "auto", "auto", "none", "title"]
    responses = await log(store, "llm_call")
    assert result.usage["input_tokens"] == sum(response.input_tokens or 0 for response in responses)
    assert scripted("x").definition.max_steps == 50


@pytest.mark.req("S0-011", "S0-121", "S0-129")
async def test_order_of_actions_in_step(store: Store):
    """Check of the size, model call with retries, answer, tools, results. At the limit a summary without tools."""
    script = [{**calls("add", add={"a": 1, "b": 2}), "fail": "timeout", "times": 1}]
    script.append({**calls("add", add={"a": 1, "b": 1}), "text": "It is 3, so far."})
    helper = scripted(*script, tools=[add], log="full", max_steps=2)
    result = await helper.run("Go", store=store, thread="t")
    types = [stitch.type for stitch in await log(store) if stitch.type != "context_transformation"]
    step = ["compaction", "api_call_started", "llm_call", "tool_call"]
    first = ["compaction", "api_call_started", "api_retry", "llm_call", "tool_call"]
    end = ["max_steps_reached", "api_call_started", "llm_call", "final_summary_generation", "run_completed"]
    assert types == ["run_started", "input", *first, *step, *end]
    assert result.output_text == "It is 3, so far."
    last = (await log(store, "llm_call"))[-1]
    assert (await store.request(last.id))["tool_choice"] == "none"
    assert (await store.history("t")).turns[0].final_response == "It is 3, so far."


@pytest.mark.req("S0-128")
async def test_runs_tools_concurrently_within_limit_and_answers_in_order(store: Store):
    running, most, order = 0, 0, []

    @tool
    async def work(number: int) -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02 * (12 - number) / 12)
        running -= 1
        order.append(number)
        return str(number)

    many_calls = {"calls": [{"name": "work", "input": {"number": number}} for number in range(12)]}
    await scripted(many_calls, "Done.", tools=[work]).run("Go", store=store, thread="t")
    assert most == 5
    assert order != sorted(order)
    results = (await store.context("t"))[2]["content"]
    assert [block["content"] for block in results] == [str(number) for number in range(12)]
    most = 0
    await scripted(many_calls, "Done.", tools=[work], parallel_tools=1).run("Go", store=store, thread="u")
    assert most == 1


@pytest.mark.req("S0-028", "S0-131", "S3-057")
async def test_retries_with_increasing_delay_until_limit(store_url: str, api: FakeApi, claude: Claude):
    down = Answer(status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "later"}})
    async with open_store(store_url) as store:
        api.answer(down, down, down, Answer([{"type": "text", "text": "Hi."}]))
        result = await claude(base_delay=0.01).run("Hi", store=store, thread="t")
        assert result.output_text == "Hi."
        delays = [stitch.data["delay"] for stitch in await log(store, "api_retry")]
        assert len(api.requests) == 4
        for number, delay in enumerate(delays):
            assert 0.01 * 2**number <= delay <= 0.01 * 2**number + 0.011
        assert all(earlier < later for earlier, later in pairwise(delays[:1] + delays[2:]))
        api.answer(
            Answer(status=429, body={}, headers={"retry-after": "0.2"}), Answer([{"type": "text", "text": "Hi."}])
        )
        await claude(base_delay=0.01).run("Hi", store=store, thread="u")
        assert (await log(store, "api_retry", thread="u"))[0].data["delay"] == 0.2
        api.answer(
            Answer(status=429, body={}, headers={"retry-after": "0.001"}), Answer([{"type": "text", "text": "Hi."}])
        )
        await claude(base_delay=0.01).run("Hi", store=store, thread="u")
        assert (await log(store, "api_retry", thread="u"))[1].data["delay"] >= 0.01, "it is shorter"
        api.requests.clear()
        api.answer(down)
        result = await claude(max_retries=2).run("Hi", store=store, thread="v")
        assert (result.status, len(api.requests)) == ("failed", 3)
        for status in (400, 401, 403, 404, 413, 422):
            api.requests.clear()
            api.answer(Answer(status=status, body={"type": "error", "error": {"type": "x", "message": "no"}}))
            result = await claude().run("Hi", store=store, thread="w")
            assert (result.status, len(api.requests)) == ("failed", 1), status
        for status in (408, 409, 500, 502, 503):
            api.requests.clear()
            api.answer(Answer(status=status, body={}), Answer([{"type": "text", "text": "Hi."}]))
            result = await claude().run("Hi", store=store, thread="w")
            assert (result.status, len(api.requests)) == ("completed", 2), status
        definition = claude().definition
        assert definition.max_retries == 5
        config = await config_of(store, store_url, "v")
        assert (config["max_retries"], config["base_delay"]) == (2, 0.0)
        config = await config_of(store, store_url, "t")
        assert (config["max_retries"], config["base_delay"]) == (5, 0.01)
    default = AgentDefinition(name="x", model="y")
    assert (default.max_retries, default.base_delay) == (5, 1.0)


@pytest.mark.req("S0-131")
async def test_fails_when_provider_hangs_or_sends_invalid_data(store: Store, api: FakeApi, claude: Claude):
    api.answer(Answer([{"type": "text", "text": "Hello."}], hang_after=2))
    result = await claude(timeout=0.3, max_retries=1).run("Hi", store=store, thread="t")
    assert result.status == "failed"
    assert len(await log(store, "api_retry")) == 1
    assert result.error
    garbage = Answer([{"type": "text", "text": "x"}], change=lambda lines: ["data: {nonsense\n\n"])
    api.answer(garbage)
    result = await claude(max_retries=1).run("Hi", store=store, thread="u")
    assert result.status == "failed"
    api.answer(Answer([{"type": "text", "text": "Hello you."}], cut_after=3), Answer([{"type": "text", "text": "Hi."}]))
    result = await claude().run("Hi", store=store, thread="u")
    assert result.output_text == "Hi."
    await assert_can_continue(store)
    await assert_can_continue(store, "u")


async def test_rejects_unknown_model_and_missing_key_before_writing(store: Store, monkeypatch: pytest.MonkeyPatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    for model in ("claude", "unknown:x", "anthropic:", "scripted:/no/such/file.yaml"):
        with pytest.raises(ProviderError) as refused:
            await Agent("helper", model=model).run("Hi", store=store, thread="t")
        assert refused.value.kind == "setup"
    assert await store.count() == 0


async def test_budget_ends_run_before_next_call(store: Store):
    prices = {"scripted": {"input": 1000.0, "output": 1000.0}}
    usage = {"input_tokens": 1000, "output_tokens": 0}
    step = {**calls("add", add={"a": 1, "b": 1}), "usage": usage}
    turns = [[step, step, step, {"text": "Done.", "usage": usage}]]
    plain = scripted(turns=turns, tools=[add], prices=prices)
    result = await plain.run("Go", store=store, thread="t")
    assert result.total_cost == pytest.approx(4.0)
    limited = scripted(turns=turns, tools=[add], prices=prices, run_budget=1.5)
    result = await limited.run("Go", store=store, thread="u")
    assert (result.status, result.steps) == ("failed", 2)
    assert "USD of its budget of 1.5 USD" in (result.error or "")
    by_thread = scripted(turns=turns, tools=[add], prices=prices, thread_budget=5.5)
    result = await by_thread.run("Go", store=store, thread="t")
    assert (result.status, result.steps) == ("failed", 2)
    assert "USD of its budget of 5.5 USD" in (result.error or "")
    assert (await store.run(result.run_id)).total_cost == pytest.approx(2.0)
    await assert_can_continue(store)
    await assert_can_continue(store, "u")


@pytest.mark.parametrize(("history", "seen"), [("all", ["1", "2", "3", "4"]), (2, ["2", "3", "4"]), (0, ["4"])])
async def test_run_sees_configured_history(store: Store, history: Any, seen: list[str]):
    for number in "123":
        await scripted("Yes.").run(number, store=store, thread="t")
    await scripted(calls("add", add={"a": 1, "b": 1}), "Yes.", tools=[add], history=history).run(
        "4", store=store, thread="t"
    )
    for stitch in (await log(store, "llm_call"))[-2:]:
        request = await store.request(stitch.id)
        assert [text_of(message) for message in request["messages"] if message["role"] == "user"][: len(seen)] == seen
        assert len(request["messages"]) == stitch.messages_count


async def test_model_gets_message_of_tool_failed(store: Store):
    @tool
    def book() -> str:
        """Book."""
        raise ToolFailed("The hotel is full.")

    await scripted(calls("book"), "I see.", tools=[book]).run("Go", store=store, thread="t")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["content"] == "The hotel is full."


async def test_cuts_result_above_limit(store: Store):
    @tool
    def flood() -> str:
        """Flood."""
        return "x" * 1001

    await scripted(calls("flood"), "I see.", tools=[flood], tool_result_limit=1000).run("Go", store=store, thread="t")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["is_error"]
    assert answer.message["content"].startswith(
        "The tool ran, but its result has 1,001 characters and the limit is 1,000"
    )


@pytest.mark.req("S0-132")
@pytest.mark.parametrize("done", [False, True], ids=["lost", "done"])
async def test_commits_end_of_run_atomically(store: Store, done: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "OUTCOME_TIMEOUT", 0.0)
    backend = Failing(store._backend)
    failing = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    backend.at, backend.done = 2, done
    with pytest.raises(StoreUnreachable):
        await scripted("Hello.", prices={"scripted": {"input": 1, "output": 1}}).run("Hi", store=failing, thread="t")
    (run,) = await store.runs("t")
    head = await store.thread("t")
    if done:
        assert types(await log(store)) == ["run_started", "input", "llm_call", "run_completed"]
        assert (run.status, run.stop_reason, run.steps, head.total_runs) == ("completed", "end_turn", 1, 1)
        assert (run.input_tokens > 0, head.status, head.worker_id) == (True, "waiting", None)
        assert len((await store.history("t")).turns) == 1
    else:
        assert types(await log(store)) == ["run_started", "input"]
        assert (run.status, run.stop_reason, run.steps, head.total_runs) == ("running", None, 0, 0)
        assert (run.input_tokens, run.output_position) == (0, None)
        assert (await store.history("t")).turns == []


@pytest.mark.req("S0-134")
async def test_runs_without_network(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: Any) -> Any:
        raise AssertionError(f"a network connection was opened: {arguments[1:]}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    await story.tell(store, tmp_path)
    assert [run.status for run in await store.runs("t")] == ["completed", "completed", "failed"]


@pytest.mark.req("S0-120")
async def test_result_has_all_fields(store: Store):
    usage = {"input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 50, "cache_write_tokens": 20}
    reply = {"text": "Hello.", "usage": usage, "container_id": "c1"}
    helper = scripted(reply, prices={"scripted": {"input": 1.0, "output": 2.0}})
    for prompt in ("Hi", [{"type": "text", "text": "Hi"}], {"role": "user", "content": "Hi"}):
        result = await helper.run(prompt, store=store, thread="t")
        assert (result.output_text, result.stop_reason, result.steps) == ("Hello.", "end_turn", 1)
        assert result.usage == {
            "input_tokens": 100,
            "output_tokens": 10,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 50,
        }
        assert (result.total_cost or 0) > 0
        assert result.cost["total_cost"] == result.total_cost
        assert (result.generated_files, result.container_id) == ([], "c1")
        assert result.thread_id == (await store.thread("t")).id
        assert (await store.run(result.run_id)).status == "completed"
        assert [text_of(message) for message in await result.messages()] == ["Hi", "Hello."]
        assert (await store.run(result.run_id)).started_at + timedelta(hours=1) > store.clock.now()


@pytest.mark.req("S0-063")
async def test_calls_model_again_after_pause_turn(store: Store):
    helper = scripted({"text": "Searching…", "stop_reason": "pause_turn"}, {"text": "No.", "stop_reason": "refusal"})
    result = await helper.run("Go", store=store, thread="t")
    assert (result.status, result.stop_reason, result.steps) == ("completed", "refusal", 2)
    stopped = await scripted({"text": "No", "stop_reason": "stop_sequence"}).run("Go", store=store, thread="u")
    assert (stopped.status, stopped.stop_reason) == ("completed", "stop_sequence")
    assert [message["role"] for message in await result.messages()] == ["user", "assistant", "assistant"]


async def test_request_does_not_change_after_the_call(store: Store):
    requests: list[Any] = []

    def answer(request: Any) -> Any:
        requests.append(request)
        return calls("add", add={"a": 1, "b": 2}) if request.step == 1 else "It is 3."

    await Agent("helper", model=Scripted(answer), tools=[add], title=False).run("Go", store=store)
    assert [len(request.messages) for request in requests] == [1, 3]
