"""Pauses for frontend tools: their stored state, and runs that continue in another process."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.engine.replies import approve, submit_results
from lockstitch.errors import NotFound, Refused, ThreadWaiting
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.agents.conftest import Claude
from tests.agents.fake_api import Answer, FakeApi
from tests.engine.agents import add, calls, config_of, confirm, log, pay, scripted, turn_of, types
from tests.engine.test_files import executed

pytestmark = pytest.mark.anyio

SCRIPT = [
    {"calls": [{"name": "confirm", "input": {"question": "1?"}}, {"name": "add", "input": {"a": 2, "b": 3}}]},
    calls("confirm", "confirm"),
    calls("add", add={"a": 1, "b": 1}),
    calls("confirm"),
    "Done.",
]


def helper(**options: Any) -> Agent:
    return scripted(*SCRIPT, tools=[add, confirm, pay], **options)


def yes(*ids: str) -> list[Json]:
    return [{"tool_use_id": id, "content": f"yes {id}"} for id in ids]


PAUSES = [["call_1_1_0"], ["call_1_2_0", "call_1_2_1"], ["call_1_4_0"]]


@pytest.mark.req("S0-030", "S0-031", "S0-032", "S0-033", "S0-034")
async def test_pause_shows_its_waits_until_it_ends(store_url: str):
    async with open_store(store_url) as store:
        paused = await helper().run("Go", store=store, thread="t")
        head = await store.thread("t")
        assert [(wait["kind"], wait["id"], wait["name"]) for wait in head.waiting_for] == [
            ("frontend_tools", "call_1_1_0", "confirm")
        ]
        assert (paused.status, paused.stop_reason, paused.steps) == ("waiting", "awaiting_frontend_tools", 1)
        assert (await store.run(paused.run_id)).steps == 1
        config = await config_of(store, store_url, head)
        assert config["awaiting_frontend_tools"] is True
        assert config["pending_frontend_tools"] == [
            {"tool_use_id": "call_1_1_0", "name": "confirm", "input": {"question": "1?"}}
        ]
        assert config["pending_backend_results"] == [
            {"type": "tool_result", "tool_use_id": "call_1_1_1", "content": "5"}
        ]
        assert config["current_step"] == 1
        assert config["conversation_history"] == await store.messages(paused.run_id)
        # The results of a response enter the context together.
        assert [message["role"] for message in config["messages"]] == ["user", "assistant"]
        assert len(config["conversation_history"]) == 3
        for ids in PAUSES:
            done = await helper().submit("t", yes(*ids), store=store)
        assert done is not None
        assert done.status == "completed"
        config = await config_of(store, store_url, head)
        assert (config["awaiting_frontend_tools"], config["current_step"]) == (False, 0)
        names = ("pending_frontend_tools", "pending_backend_results", "conversation_history")
        assert [config[name] for name in names] == [[], [], []]


@pytest.mark.req("S0-050", "S0-051", "S0-052", "S0-053", "X0-14")
async def test_run_continues_as_the_same_run_through_pauses(store_url: str):
    async with open_store(store_url) as store:
        uninterrupted = await helper().run("Go", store=store, thread="whole")
        for ids in PAUSES:
            uninterrupted = await helper().submit("whole", yes(*ids), store=store)
        assert uninterrupted is not None
    latest: Any = None
    for number, ids in enumerate([[], *PAUSES]):
        # Like a new process each time, which knows only the key.
        async with open_store(store_url) as store:
            result = await (helper().submit("t", yes(*ids), store=store) if ids else _run(store))
            assert result is not None
            run = await store.run(result.run_id)
            latest = latest or (run.id, run.started_at, run.turn, run.sequence)
            assert (run.id, run.started_at, run.turn, run.sequence) == latest
            if number < len(PAUSES):
                assert (result.status, run.completed_at) == ("waiting", None)
                assert (await store.history("t")).turns == []
                assert (await store.thread("t")).total_runs == 0
    async with open_store(store_url) as store:
        messages = await store.messages(result.run_id)
        assert (result.status, result.steps, result.output_text) == ("completed", 5, "Done.")
        assert result.usage == uninterrupted.usage
        assert result.cost == uninterrupted.cost
        assert messages == await store.messages(uninterrupted.run_id)
        assert types(await store.stitches("t")) == types(await store.stitches("whole"))
        assert [stitch.step_number for stitch in await log(store, "llm_call")] == [1, 2, 3, 4, 5]
        (first, second, _, last) = [message for message in messages if message["role"] == "user"][1:]
        assert [block["tool_use_id"] for block in first["content"]] == ["call_1_1_0", "call_1_1_1"]
        assert [block["content"] for block in second["content"]] == ["yes call_1_2_0", "yes call_1_2_1"]
        assert [block["content"] for block in last["content"]] == ["yes call_1_4_0"]
        assert await store.context("t") == messages
        assert (await turn_of(store, store_url, result.run_id))["messages"] == messages
        assert len((await store.history("t")).turns) == 1


async def _run(store: Store) -> Any:
    return await helper().run("Go", store=store, thread="t")


@pytest.mark.req("S0-015", "S0-041")
async def test_other_process_finds_everything_of_a_paused_run(
    store_url: str, api: FakeApi, claude: Claude, tmp_path: Path
):
    """Messages, container, tools, files, token counts, the wait and the title. The next run starts from them."""
    api.files = {"file_1": ("chart.png", "image/png", b"png")}
    container = {"container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}}
    uses = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": values}
        for number, (name, values) in enumerate((("confirm", {"question": "?"}), ("add", {"a": 2, "b": 3})))
    ]
    said = Answer([{"type": "text", "text": "Done."}])
    api.answer(Answer([*executed("file_1").content, *uses], stop="tool_use", more=container), said)
    options = {"tools": [add, confirm], "files": f"file:{tmp_path / 'files'}", "beta_headers": ["b-1"]}
    async with open_store(store_url) as store:
        paused = await claude(**options).run("One", store=store, thread="t")
        await store.edit("t", title="Numbers")
        config, context = await config_of(store, store_url, "t"), await store.context("t")
        assert (config["container_id"], config["title"], config["tool_names"]) == (
            *("container_1", "Numbers", ["add", "confirm"]),
        )
        assert config["last_known_input_tokens"] > 0
        assert config["file_registry"].keys() == {"file_1"}
        assert [call["tool_use_id"] for call in config["pending_frontend_tools"]] == ["toolu_0"]
        assert [block["content"] for block in config["pending_backend_results"]] == ["5"]
    async with open_store(store_url) as store:
        assert await config_of(store, store_url, paused.thread_id) == config
        assert await store.context(paused.thread_id) == config["messages"] == context
        helper = claude(**options)
        done = await helper.submit(paused.thread_id, yes("toolu_0"), store=store)
        assert done is not None
        assert (done.run_id, done.steps, done.title) == (paused.run_id, 2, "Numbers")
        requests = [api.last]
        await helper.run("Two", store=store, thread="t")
        requests.append(api.last)
        for request, length in zip(requests, (3, 5), strict=True):
            assert [message["role"] for message in request["messages"]] == (["user", "assistant"] * 3)[:length]
            assert request["container"] == "container_1"
            assert [tool["name"] for tool in request["tools"]] == ["add", "confirm"]
        results = requests[1]["messages"][2]["content"]
        assert [(block["tool_use_id"], block["content"]) for block in results] == [
            *(("toolu_0", "yes toolu_0"), ("toolu_1", "5")),
        ]
        assert (await config_of(store, store_url, "t"))["file_registry"] == config["file_registry"]
        assert [run.turn for run in await store.runs("t")] == [1, 2]


@pytest.mark.req("S0-049")
async def test_wrong_results_change_nothing(store: Store):
    await helper().run("Go", store=store, thread="t")
    before = (await store.stitches("t"), await store.thread("t"))
    good = yes("call_1_1_0")
    wrong: list[list[Json]] = [
        [],
        yes("call_1_1_1"),
        [*good, *yes("more")],
        [*good, *good],
        yes("toolu_of_nobody"),
        [{"content": "no id"}],
        [{"tool_use_id": None, "content": "x"}],
        [{"tool_use_id": "call_1_1_0", "content": float("nan")}],
        [{"tool_use_id": "call_1_1_0", "content": "\ud800"}],
    ]
    for results in wrong:
        with pytest.raises(Refused, match=r"exactly these calls|cannot be stored"):
            await helper().submit("t", results, store=store)
        assert (await store.stitches("t"), await store.thread("t")) == before, results
    with pytest.raises(NotFound):
        await submit_results(store, "nobody", good)
    with pytest.raises(NotFound):
        await approve(store, "t", "call_1_1_0")
    assert await helper().submit("t", good, store=store) is not None
    with pytest.raises(Refused):
        await submit_results(store, "t", good)
    await scripted("Hi.").run("Hi", store=store, thread="idle")
    with pytest.raises(ThreadWaiting, match="no open run"):
        await submit_results(store, "idle", good)


@pytest.mark.req("S0-050")
async def test_passes_errors_of_frontend_to_model(store: Store):
    await helper().run("Go", store=store, thread="t")
    blocks = [{"type": "text", "text": "closed"}]
    await helper().submit("t", [{"tool_use_id": "call_1_1_0", "content": blocks, "is_error": True}], store=store)
    answer = (await store.context("t"))[2]["content"][0]
    assert answer == {"type": "tool_result", "tool_use_id": "call_1_1_0", "content": blocks, "is_error": True}


@pytest.mark.req("S0-045")
async def test_pause_lists_frontend_calls_and_approvals_together(store: Store):
    script = [calls("pay", "confirm", "add", pay={"amount": 5}, add={"a": 1, "b": 1}), "Done."]
    agent = scripted(*script, tools=[add, confirm, pay])
    paused = await agent.run("Go", store=store, thread="t")
    assert [(wait["kind"], wait["name"]) for wait in paused.waiting_for] == [
        *(("approval", "pay"), ("frontend_tools", "confirm")),
    ]
    stitch_types = types(await log(store))
    assert stitch_types.count("run_paused") == 1
    assert stitch_types.index("tool_call") < stitch_types.index("run_paused")
    (answer,) = await log(store, "tool_call")
    assert answer.name == "add"
    # The results arrive one by one. The run waits again for the missing ones.
    await submit_results(store, "t", [{"tool_use_id": "call_1_1_1", "content": "yes"}])
    second_result = await agent.resume("t", store=store)
    assert second_result is not None
    assert [wait["kind"] for wait in second_result.waiting_for] == ["approval"]
    await approve(store, "t", "call_1_1_0")
    done = await agent.resume("t", store=store)
    assert done is not None
    assert [block["content"] for block in (await store.context("t"))[2]["content"]] == ["paid 5", "yes", "2"]


@pytest.mark.req("S0-046", "S0-047")
async def test_commits_pause_before_announcing_it(store_url: str):
    """Answer the pause at once, through another store."""
    async with open_store(store_url) as store, open_store(store_url) as other_store:
        submitted = False
        async for event in helper().stream("Go", store=store, thread="t"):
            if event.type == "paused":
                assert [call["tool_use_id"] for call in event.data["pending"]] == ["call_1_1_0"]
                head = await other_store.thread("t")
                assert (head.status, head.worker_id) == ("waiting", None)
                await submit_results(other_store, "t", yes("call_1_1_0"))
                submitted = True
        assert submitted
        result = await helper().resume("t", store=other_store)
        assert result is not None
        assert (result.status, result.steps) == ("waiting", 2)
        assert result.stop_reason == "awaiting_frontend_tools"


@pytest.mark.req("S0-042", "S0-054")
async def test_unknown_ids_start_threads_and_waiting_threads_reject_messages(store: Store):
    thread_id = uuid4()
    result = await scripted("Hi.").run("Hi", store=store, thread=str(thread_id))
    assert (result.thread_id, result.status) == (thread_id, "completed")
    thread_id = uuid4()
    assert (await scripted("Hi.").run("Hi", store=store, thread=thread_id)).thread_id == thread_id
    with pytest.raises(NotFound):
        await scripted("Hi.").resume(str(uuid4()), store=store)
    await helper().run("Go", store=store, thread="t")
    before = await store.stitches("t")
    with pytest.raises(ThreadWaiting, match=r'waits for frontend_tools confirm.*on_waiting="cancel"') as refused:
        await helper().run("More", store=store, thread="t")
    assert refused.value.thread_id == (await store.thread("t")).id
    assert [wait["id"] for wait in (await store.thread("t")).waiting_for] == ["call_1_1_0"]
    assert await store.stitches("t") == before
    done = await scripted("Fine.").run("More", store=store, thread="t", on_waiting="cancel")
    assert done.output_text == "Fine."
    answers = (await store.context("t"))[2]["content"]
    assert [(block["tool_use_id"], block.get("is_error", False)) for block in answers] == [
        *(("call_1_1_0", True), ("call_1_1_1", False)),
    ]
