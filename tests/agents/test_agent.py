"""`Agent` on every backend: run, resume, pause, cancel and retry."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import approve, deny, settle, submit_results
from lockstitch.errors import NotFound, Refused, ThreadBusy, ThreadEnded, ThreadWaiting
from lockstitch.model import Stitch, text_of
from lockstitch.store import Store, open_store
from tests.commits import Counting

pytestmark = pytest.mark.anyio


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def send(to: str, ctx: ToolContext) -> str:
    """Send a letter."""
    return f"sent to {to} under {ctx.call_id}"


@tool(frontend=True)
def confirm(question: str) -> bool:
    """Ask the user in the browser."""
    raise AssertionError("never run here")


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay something."""
    return f"paid {amount}"


def calls(*names: str, **inputs: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": inputs.get(name, {})} for name in names]}


def agent(*script: Any, **options: Any) -> Agent:
    agent_options = {"title": False, "base_delay": 0.0, **options}
    return Agent("helper", model=Scripted(list(script)), **agent_options)


def types(stitches: list[Stitch]) -> list[str]:
    return [stitch.type for stitch in stitches]


@pytest.mark.req("S0-120", "S0-133")
async def test_answers_question_in_two_commits(store: Store, monkeypatch: pytest.MonkeyPatch):
    counting = Counting(store, monkeypatch)
    result = await agent("Hello.").run("Hi", store=store, thread="t", extras={"a": 1})
    assert (result.status, result.stop_reason) == ("completed", "end_turn")
    assert (result.output_text, result.steps) == ("Hello.", 1)
    assert types(await store.stitches("t")) == ["run_started", "input", "llm_call", "run_completed"]
    assert counting.commits == 2
    assert result.usage["input_tokens"] > 0
    assert (await store.run(result.run_id)).extras == {"a": 1}
    head = await store.thread("t")
    assert (head.status, head.waiting_for[0]["kind"], head.worker_id) == ("waiting", "input", None)
    assert (await result.messages())[-1]["content"] == [{"type": "text", "text": "Hello."}]


@pytest.mark.req("S0-121", "S0-128")
async def test_runs_tools_and_stores_results_in_call_order(store: Store, monkeypatch: pytest.MonkeyPatch):
    counting = Counting(store, monkeypatch)
    helper = agent(calls("send", "add", send={"to": "Ada"}, add={"a": 1, "b": 2}), "Done.", tools=[add, send])
    result = await helper.run("Go", store=store, thread="t")
    assert result.output_text == "Done."
    log = await store.stitches("t")
    assert types(log) == [
        *("run_started", "input", "llm_call", "tool_started", "tool_call", "tool_call", "llm_call", "run_completed")
    ]
    context = await store.context("t")
    assert [block["content"] for block in context[2]["content"]] == ["sent to Ada under call_1_1_0", "3"]
    assert counting.commits <= 2 * result.steps + 1
    for stitch in log:
        if stitch.type == "llm_call":
            request = await store.request(stitch.id)
            assert request["messages"] == (await store.context("t"))[: len(request["messages"])]


@pytest.mark.req("S0-041")
async def test_continues_known_thread_in_another_process(store_url: str):
    script = [["First."], ["Second."]]
    async with open_store(store_url) as store:
        await Agent("helper", model=Scripted(script), title=False).run("one", store=store, thread="t")
    async with open_store(store_url) as store:
        result = await Agent("helper", model=Scripted(script), title=False).run("two", store=store, thread="t")
        assert result.output_text == "Second."
        context = await store.context("t")
        assert [text_of(message) for message in context] == ["one", "First.", "two", "Second."]
        (_, second) = [stitch for stitch in await store.stitches("t") if stitch.type == "llm_call"]
        assert (await store.request(second.id))["messages"] == context[:3]
        assert [run.turn for run in await store.runs("t")] == [1, 2]


@pytest.mark.req("S0-107", "S0-127")
async def test_reports_tool_exception_to_model_and_continues_run(store: Store):
    @tool
    def broken() -> str:
        """Break."""
        raise ValueError("no such luck")

    result = await agent(calls("broken"), "I see.", tools=[broken]).run("Go", store=store, thread="t")
    assert result.output_text == "I see."
    log = await store.stitches("t")
    failed = next(stitch for stitch in log if stitch.type == "tool_call")
    assert failed.status == "error"
    error_text = "ValueError: no such luck"
    assert failed.message == {
        "type": "tool_result",
        "tool_use_id": "call_1_1_0",
        "content": error_text,
        "is_error": True,
    }
    assert next(stitch for stitch in log if stitch.type == "tool_error").data["type"] == "ValueError"


async def test_answers_unknown_tools_and_invalid_arguments(store: Store):
    helper = agent(
        calls("missing"),
        calls("add", add={"a": "x"}),
        {"calls": [{"name": "add", "input": {"a": 1, "b": 2, "c": 3}}]},
        "Enough.",
        tools=[add],
    )
    await helper.run("Go", store=store, thread="t")
    contents = [stitch.message["content"] for stitch in await store.stitches("t") if stitch.type == "tool_call"]
    assert contents[0] == "Tool missing is unknown. Choose from: add."
    assert contents[1].startswith("Invalid arguments: a: ")
    assert "c: Extra inputs are not permitted" in contents[2]


@pytest.mark.req("S0-044", "S0-045", "S0-046", "S0-047", "S0-048")
async def test_pauses_run_until_frontend_results_arrive(store_url: str):
    script = [calls("confirm", "add", confirm={"question": "?"}, add={"a": 2, "b": 3}), "Done."]
    async with open_store(store_url) as store:
        helper = agent(*script, tools=[add, confirm])
        events = [event async for event in helper.stream("Go", store=store, thread="t")]
        paused = next(event for event in events if event.type == "paused")
        assert [call["name"] for call in paused.data["pending"]] == ["confirm"]
        result = events[-1].data
        assert (result["status"], result["stop_reason"]) == ("waiting", "awaiting_frontend_tools")
        assert (await store.history("t")).turns == []
        with pytest.raises(ThreadWaiting, match="confirm"):
            await helper.run("And?", store=store, thread="t")
    async with open_store(store_url) as store:
        helper = agent(*script, tools=[add, confirm])
        before = (await store.runs("t"))[0]
        done = await helper.submit("t", [{"tool_use_id": "call_1_1_0", "content": "yes"}], store=store)
        assert done is not None
        assert (done.status, done.run_id) == ("completed", before.id)
        results = (await store.context("t"))[2]["content"]
        assert [(block["tool_use_id"], block["content"]) for block in results] == [
            ("call_1_1_0", "yes"),
            ("call_1_1_1", "5"),
        ]
        assert [message["role"] for message in await done.messages()] == ["user", "assistant", "user", "assistant"]


@pytest.mark.req("S0-049", "S0-052", "S0-053")
async def test_rejects_results_that_do_not_match_the_waiting_calls(store: Store):
    helper = agent(calls("confirm", "confirm"), calls("confirm"), "Done.", tools=[confirm])
    helper_script = await helper.run("Go", store=store, thread="t")
    assert helper_script.status == "waiting"
    before = await store.stitches("t")
    first_result = {"tool_use_id": "call_1_1_0", "content": "yes"}
    second_result = {"tool_use_id": "call_1_1_1", "content": "no", "is_error": True}
    for wrong in (
        [first_result],
        [first_result, second_result, {"tool_use_id": "x", "content": ""}],
        [first_result, first_result],
        [],
    ):
        with pytest.raises(Refused, match="exactly these calls"):
            await submit_results(store, "t", wrong)
    assert await store.stitches("t") == before
    repeated = await helper.submit("t", [second_result, first_result], store=store)
    assert repeated is not None
    assert repeated.status == "waiting"
    done = await helper.submit("t", [{"tool_use_id": "call_1_2_0", "content": "ok"}], store=store)
    assert done is not None
    assert (done.status, done.steps) == ("completed", 3)
    blocks = [block for message in await done.messages() if message["role"] == "user" for block in message["content"]]
    assert [block.get("content") for block in blocks if isinstance(block, dict)] == ["yes", "no", "ok"]
    with pytest.raises(ThreadWaiting):
        await submit_results(store, "t", [first_result])


@pytest.mark.req("S0-054")
async def test_cancels_waiting_run_when_next_message_arrives(store: Store):
    helper = Agent("helper", model=Scripted([[calls("confirm")], ["Second."]]), tools=[confirm], title=False)
    await helper.run("Go", store=store, thread="t")
    result = await helper.run("Never mind", store=store, thread="t", on_waiting="cancel")
    assert result.output_text == "Second."
    assert [run.status for run in await store.runs("t")] == ["cancelled", "completed"]
    answer = (await store.context("t"))[2]["content"][0]
    assert answer["is_error"] is True


@pytest.mark.req("S0-047")
async def test_asks_for_approval_before_tool_runs(store: Store):
    helper = agent(calls("pay", pay={"amount": 5}), "Paid.", tools=[pay])
    paused = await helper.run("Pay", store=store, thread="t")
    assert [wait["kind"] for wait in paused.waiting_for] == ["approval"]
    assert (paused.status, paused.stop_reason) == ("waiting", "awaiting_approval")
    assert (await store.history("t")).turns == []
    assert await helper.resume("t", store=store) is not None
    assert types(await store.stitches("t")).count("run_paused") == 1
    with pytest.raises(NotFound):
        await approve(store, "t", "nonsense")
    await approve(store, "t", "call_1_1_0", by="ada")
    await approve(store, "t", "call_1_1_0", by="ada")
    done = await helper.resume("t", store=store)
    assert done is not None
    assert done.output_text == "Paid."
    assert (await store.context("t"))[2]["content"][0]["content"] == "paid 5"


async def test_reports_denial_to_model(store: Store):
    helper = agent(calls("pay", pay={"amount": 5}), "As you like.", tools=[pay])
    await helper.run("Pay", store=store, thread="t")
    await deny(store, "t", "call_1_1_0", reason="too much")
    done = await helper.resume("t", store=store)
    assert done is not None
    block = (await store.context("t"))[2]["content"][0]
    assert block["is_error"]
    assert "too much" in block["content"]


@pytest.mark.req("S0-011", "S0-095", "S0-114", "S0-129")
async def test_answers_with_summary_at_step_limit(store: Store):
    step = calls("add", add={"a": 1, "b": 1})
    helper = agent(step, step, step, step, tools=[add], max_steps=3)
    result = await helper.run("Go", store=store, thread="t")
    assert (result.status, result.stop_reason, result.steps) == ("completed", "max_steps", 3)
    log = await store.stitches("t")
    assert sum(stitch.type == "llm_call" for stitch in log) == 4
    assert "max_steps_reached" in types(log)
    assert "final_summary_generation" in types(log)
    summary = [stitch for stitch in log if stitch.type == "llm_call"][-1]
    assert (await store.request(summary.id))["tool_choice"] == "none"


@pytest.mark.req("S0-108", "S0-109", "S0-130")
async def test_sends_answer_back_when_check_fails(store: Store):
    def check(text: str) -> str | None:
        return None if "42" in text else "It must name the number."

    helper = agent("Perhaps.", "It is 42.", check=check)
    result = await helper.run("What is it?", store=store, thread="t")
    assert result.output_text == "It is 42."
    log = await store.stitches("t")
    assert [stitch.data["passed"] for stitch in log if stitch.type == "final_answer_validation"] == [False, True]
    assert "final_answer_validation_failed" in types(log)
    assert (await store.context("t"))[2] == {"role": "user", "content": "It must name the number."}
    assert len(await result.messages()) == 4
    # An answer that never passes ends the run at the step limit.
    result = await agent("Perhaps.", "Perhaps so.", "In sum: no.", check=check, max_steps=2).run(
        "What is it?", store=store, thread="u"
    )
    assert (result.status, result.stop_reason, result.steps) == ("completed", "max_steps", 2)
    log = await store.stitches("u")
    assert [stitch.data["passed"] for stitch in log if stitch.type == "final_answer_validation"] == [False, False]
    assert types(log).count("max_steps_reached") == 1


class Plan(BaseModel):
    goal: str
    steps: list[str]


async def test_checks_and_parses_structured_output(store: Store):
    helper = agent("no json", {"data": {"goal": "g"}}, {"data": {"goal": "g", "steps": ["a"]}}, output=Plan)
    result = await helper.run("Plan", store=store, thread="t")
    assert result.output == Plan(goal="g", steps=["a"])
    assert (await store.run(result.run_id)).output == {"goal": "g", "steps": ["a"]}
    assert result.steps == 3


@pytest.mark.req("S0-028", "S0-104", "S0-131")
async def test_retries_and_records_temporary_errors(store: Store, monkeypatch: pytest.MonkeyPatch):
    counting = Counting(store, monkeypatch)
    helper = agent({"fail": "overloaded", "times": 2, "text": "At last."}, max_retries=3)
    result = await helper.run("Hi", store=store, thread="t")
    assert result.output_text == "At last."
    retries = [stitch for stitch in await store.stitches("t") if stitch.type == "api_retry"]
    assert [retry.data["attempt"] for retry in retries] == [1, 2]
    assert counting.commits == 2


@pytest.mark.req("S0-094", "S0-105")
async def test_fails_run_and_keeps_thread_usable_when_provider_fails(store: Store):
    helper = Agent(
        "helper", model=Scripted([[{"fail": "rate_limit"}], ["Fine."]]), title=False, base_delay=0, max_retries=1
    )
    result = await helper.run("Hi", store=store, thread="t")
    assert (result.status, result.stop_reason) == ("failed", "error")
    log = await store.stitches("t")
    assert types(log) == ["run_started", "input", "api_retry", "api_error", "run_failed"]
    assert log[-1].data["type"] == "ProviderError"
    assert (await store.history("t")).turns[0].run.status == "failed"
    assert (await helper.run("Again", store=store, thread="t")).output_text == "Fine."


async def test_retries_failed_goal_on_the_same_context(store: Store):
    helper = Agent("helper", model=Scripted([[{"fail": "request"}], ["Fine."]]), title=False)
    thread = await helper.start(store=store, goal="Do it")
    failed = await helper.resume(thread, store=store)
    assert failed is not None
    assert failed.status == "failed"
    assert (await store.thread(thread)).status == "failed"
    with pytest.raises(ThreadEnded):
        await helper.run("More", store=store, thread=thread)
    done = await helper.retry(thread, store=store)
    assert done is not None
    assert done.output_text == "Fine."
    head = await store.thread(thread)
    assert (head.status, head.result["summary"], head.total_runs) == ("completed", "Fine.", 2)
    assert [message["role"] for message in await store.context(thread)] == ["user", "assistant"]
    with pytest.raises(ThreadEnded):
        await helper.retry(thread, store=store)


async def test_cancel_reaches_running_tool_and_answers_its_call(store: Store):
    started = asyncio.Event()
    finished = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            finished.set()
        return ""

    helper = agent(calls("wait"), tools=[wait])
    task = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    await started.wait()
    await cancel(store, "t")
    result = await task
    assert finished.is_set()
    assert (result.status, result.stop_reason) == ("cancelled", "cancelled")
    head = await store.thread("t")
    assert (head.status, head.cancel_requested) == ("waiting", False)
    assert (await store.context("t"))[-1]["content"][0]["is_error"]


async def test_cancel_keeps_streamed_text(store: Store):
    helper = agent({"text": "A long story that never ends. " * 50, "chunk": 5, "pause": 0.02})
    text = ""
    async for event in helper.stream("Tell", store=store, thread="t"):
        if event.type == "text":
            text += event.data["text"]
            if len(text) == 20:
                await cancel(store, "t")
    last = [stitch for stitch in await store.stitches("t") if stitch.type == "llm_call"][-1]
    assert last.status == "cancelled"
    assert last.message["content"][0]["text"].startswith("A long story")
    assert text.startswith(last.message["content"][0]["text"])
    assert (await store.runs("t"))[0].status == "cancelled"


async def test_cancel_of_waiting_thread_needs_no_code(store: Store):
    await agent(calls("confirm"), tools=[confirm]).run("Go", store=store, thread="t")
    head = await cancel(store, "t")
    assert head.status == "waiting"
    assert head.waiting_for[0]["kind"] == "input"
    with pytest.raises(Refused, match="no open run"):
        await cancel(store, "t")


async def test_cancel_ends_goal_that_has_not_started(store: Store):
    thread = await agent("x").start(store=store, goal="g")
    assert (await cancel(store, thread)).status == "cancelled"
    with pytest.raises(ThreadEnded):
        await cancel(store, thread)


async def test_leaving_the_stream_stops_run_at_its_last_commit(store: Store):
    helper = agent({"text": "A story. " * 20, "chunk": 5, "pause": 0.01}, "unused")
    stream = helper.stream("Tell", store=store, thread="t")
    async for event in stream:
        if event.type == "text":
            break
    await stream.aclose()
    head = await store.thread("t")
    assert (head.status, head.worker_id) == ("pending", None)
    done = await helper.resume("t", store=store)
    assert done is not None
    assert done.status == "completed"


@pytest.mark.req("S0-133")
async def test_refuses_queues_or_interrupts_for_second_message(store: Store):
    started = asyncio.Event()
    go_on = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "waited"

    helper = Agent("helper", model=Scripted([[calls("wait"), "One."], ["Two."]]), tools=[wait], title=False)
    first = asyncio.create_task(helper.run("1", store=store, thread="t"))
    await started.wait()
    with pytest.raises(ThreadBusy, match="held by process"):
        await helper.run("2", store=store, thread="t")
    second = asyncio.create_task(helper.run("2", store=store, thread="t", on_busy="queue"))
    await _until_delivered(store)
    go_on.set()
    assert (await first).output_text == "One."
    assert (await second).output_text == "Two."
    assert [run.status for run in await store.runs("t")] == ["completed", "completed"]
    assert [message["role"] for message in await store.context("t")] == ["user", "assistant"] * 3


async def _until_delivered(store: Store) -> None:
    for _ in range(2000):
        if (await store.thread("t")).delivered:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nothing was delivered")


async def test_second_message_interrupts_run(store: Store):
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    helper = Agent("helper", model=Scripted([[calls("wait"), "One."], ["Two."]]), tools=[wait], title=False)
    first = asyncio.create_task(helper.run("1", store=store, thread="t"))
    await started.wait()
    second = await helper.run("2", store=store, thread="t", on_busy="interrupt")
    assert (await first).status == "cancelled"
    assert second.output_text == "Two."


async def test_rejects_invalid_settings():
    with pytest.raises(Refused, match="thinking_tokens"):
        agent("x", thinking_tokens=4000)
    with pytest.raises(Refused, match="two tools are named add"):
        agent("x", tools=[add, add])
    with pytest.raises(Refused, match="max_steps"):
        agent("x", max_steps=0)


@pytest.mark.req("S0-004")
async def test_run_without_store_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    helper = agent(turns := ["Hello."], turns)
    for _ in range(2):
        result = await helper.run("Hi", thread="t")
        assert (result.status, result.output_text) == ("completed", "Hello."), "the second run is a first turn"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("S0-035", "X0-24")
async def test_chat_gets_one_title(store: Store):
    title = ' "A friendly   greeting, and a very long title that goes on" '
    script = {"replies": [["Hello."], ["Again."]], "side_calls": {"title": title}}
    helper = Agent("helper", model=Scripted(script))
    first = await helper.run("Hi", store=store, thread="t")
    assert first.title == "A friendly greeting, and a very long title that go"
    assert len(first.title) == 50
    second = await helper.run("Hi", store=store, thread="t")
    assert second.title == first.title
    beside = [stitch for stitch in await store.stitches("t") if stitch.data.get("purpose") == "title"]
    assert len(beside) == 1
    assert beside[0].message is None
    assert first.steps == 1
    assert first.usage["output_tokens"] > second.usage["output_tokens"]
    log = await store.stitches("t")
    assert types(log)[:5] == ["run_started", "input", "llm_call", "llm_call", "run_completed"], "before the end"
    # A title of the user is not replaced.
    await store.create(key="named", title="t" * 255)
    assert (await helper.run("Hi", store=store, thread="named")).title == "t" * 255
    untitled = Agent("helper", model=Scripted(script), title=False)
    assert (await untitled.run("Hi", store=store, thread="untitled")).title is None
    for thread in ("named", "untitled"):
        assert types(await store.stitches(thread)).count("llm_call") == 1


async def test_tells_or_settles_call_in_doubt(store: Store):
    """A call of an earlier holder is in doubt. The process does not end here, so the test abandons the run."""
    runs: list[str] = []

    @tool(on_doubt="ask")
    async def charge(ctx: ToolContext) -> str:
        """Charge."""
        runs.append(ctx.key)
        if len(runs) == 1:
            first.cancel()
            await asyncio.sleep(10)
        return "charged"

    helper = agent(calls("charge"), "Done.", tools=[charge])
    first = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    waiting = await helper.resume("t", store=store)
    assert waiting is not None
    assert (waiting.status, waiting.stop_reason) == ("waiting", "awaiting_doubt")
    assert waiting.in_doubt == [{"call_id": "call_1_1_0", "name": "charge"}]
    assert len(runs) == 1
    await settle(store, "t", "call_1_1_0", redo=True)
    done = await helper.resume("t", store=store)
    assert done is not None
    assert done.output_text == "Done."
    assert len(runs) == 2
    assert runs[0] == runs[1]


async def test_tells_model_about_doubt_that_no_person_can_settle(store: Store):
    """If no person is asked, the call gets an error as its result and is not repeated."""
    runs: list[str] = []

    @tool(on_doubt="ask")
    async def charge(ctx: ToolContext) -> str:
        """Charge."""
        runs.append(ctx.key)
        first.cancel()
        await asyncio.sleep(10)
        return "charged"

    helper = agent(calls("charge"), "I do not know.", tools=[charge])
    first = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    await helper.resume("t", store=store)
    for wrong in ({}, {"done": "x", "unknown": True}, {"redo": True, "unknown": True}):
        with pytest.raises(Refused):
            await settle(store, "t", "call_1_1_0", **wrong)
    await settle(store, "t", "call_1_1_0", unknown=True)
    done = await helper.resume("t", store=store)
    assert done is not None
    assert (done.output_text, len(runs)) == ("I do not know.", 1)
    block = (await store.context("t"))[2]["content"][0]
    assert block["is_error"] is True
    assert "unknown" in block["content"]


@pytest.mark.req("S0-135")
@pytest.mark.parametrize(("name", "mark"), [("json", '"type":"text"'), ("xml", "<content-block-text"), ("raw", "")])
async def test_frames_use_the_format_of_the_agent(store: Store, name: str, mark: str):
    model = Scripted(["Hello."], raw_events=name == "raw")
    helper = Agent("helper", model=model, title=False, formatter=name)
    text = "".join([frame async for frame in helper.frames("Hi", store=store, thread="t")])
    assert "Hello." in text
    assert mark in text
    await helper.run("Again", store=store, thread="t")
    started = [stitch.data for stitch in await store.stitches("t") if stitch.type == "run_started"]
    assert [data["queue_present"] for data in started] == [True, False]
    assert {data["formatter"] for data in started} == {name}


async def test_app_binds_copies_and_changes_no_agent(store: Store):
    helper = Agent("helper", model=Scripted(["Hello."]), title=False)
    before = dict(vars(helper))
    first, second = App([helper]), App([helper], hooks={"ops": lambda _: None})
    assert vars(helper) == before
    assert first.agent("helper") is not helper
    assert first.agent("helper").spec is second.agent("helper").spec is helper.spec
    hosts = [agent.executor(store).host for agent in (helper, first.agent("helper"), second.agent("helper"))]
    assert [list(host.webhook_names) for host in hosts] == [[], [], ["ops"]]
