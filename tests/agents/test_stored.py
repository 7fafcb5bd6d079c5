"""`StoredAgent`: a process continues threads with the stored definition, and its code replaces single values."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from lockstitch import sync
from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.evals.dataset import Case
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.stored import StoredAgent
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.engine.config import RunStart
from lockstitch.engine.ports.provider import ModelRequest, ProviderError
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import submit_results
from lockstitch.errors import NotFound, Refused, ThreadBusy
from lockstitch.model import Json, RetryWait, codec
from lockstitch.store import Store, open_store
from tests.agents.deps_victim import THREAD, deps_of
from tests.agents.stored_process import look
from tests.agents.test_dependencies import be_killed
from tests.docs.warm import warm_commands
from tests.engine.agents import calls, confirm, log, scripted, until
from tests.engine.test_faults import Shrinking
from tests.engine.threads.families import work_off

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

SETTINGS: dict[str, Any] = {
    "instructions": "Be short.",
    "max_tokens": 777,
    "thinking_tokens": 100,
    "api_kwargs": {"temperature": 0.5},
    "server_tools": [{"type": "web_search"}],
    "beta_headers": ["files-2025"],
    "output": {"type": "object"},
    "formatter": "xml",
    "stream_meta_history_and_tool_results": True,
    "max_steps": 7,
    "timeout": 60.0,
    "title": False,
    "base_delay": 0.0,
}


def script(folder: Path, *replies: Any) -> str:
    """Return the model of a script in a file, which each process can read."""
    path = folder / "script.json"
    path.write_text(json.dumps(list(replies)))
    return f"scripted:{path}"


class Recorder(Scripted):
    """A scripted model that keeps the requests it receives."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(list(replies))
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Any:
        self.requests.append(replace(request, messages=list(request.messages)))
        return super().stream(request)


async def requests(store: Store, thread: str = "t") -> list[Any]:
    """Return the exact request of each model call of a thread."""
    return [await store.request(stitch.id) for stitch in await log(store, "llm_call", thread=thread)]


async def versions(store: Store, thread: str = "t") -> list[int | None]:
    return [run.version for run in await store.runs(thread)]


# The stored values


@pytest.mark.req("S0-041", "S0-043")
async def test_process_with_the_id_of_a_thread_continues_with_the_stored_definition(store_url: str, tmp_path: Path):
    model = script(tmp_path, [calls("look"), '{"n": 1}'], [calls("look"), '{"n": 2}'])
    coded = Agent("helper", model=model, tools=[look, confirm], **SETTINGS)
    async with open_store(store_url) as store:
        result = await coded.run("Go", store=store, thread="t", user_id="ada")

    arguments = ("-m", "tests.agents.stored_process", store_url, str(result.thread_id))
    python = warm_commands() / "python"
    process = await asyncio.create_subprocess_exec(python, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0

    async with open_store(store_url) as store:
        first, _, third, last = await requests(store)
        same = ("model", "system", "tools", "max_tokens", "thinking_tokens", "api_kwargs", "server_tools")
        for name in (*same, "beta_headers", "output_schema"):
            assert last[name] == third[name] == first[name], name
        assert (last["system"], last["max_tokens"], last["api_kwargs"]) == ("Be short.", 777, {"temperature": 0.5})
        assert [tool["name"] for tool in last["tools"]] == ["look", "confirm"]
        assert [message["role"] for message in last["messages"]] == ["user", "assistant"] * 3 + ["user"]
        runs = await store.runs("t")
        assert [(run.version, run.status) for run in runs] == [(1, "completed")] * 2
        assert [run.output for run in runs] == [{"n": 1}, {"n": 2}]
        assert len(await store.agents.versions(store.project, "helper")) == 1
        settings = (await store.thread("t")).settings
        assert (settings["formatter"], settings["max_steps"]) == ("xml", 7)
    frames = out.decode()
    assert frames.startswith('<meta_init agent="helper"')
    assert "seen" in frames


async def test_components_limits_and_title_come_from_the_record(store: Store):
    model = Recorder("One.", "Two.", "Three.")
    stated = {
        "compactor": "sliding_window",
        "memory": "record",
        "history": 0,
        "run_budget": 5.0,
        "parallel_tools": 2,
        "on_busy": "queue",
        "log": "full",
        "title": False,
    }
    await Agent("helper", model=model, **stated).run("Go", store=store, thread="t")
    await StoredAgent("helper", model=model).run("Again", store=store, thread="t")
    definition = await store.agents.version(store.project, "helper", 1)
    assert (definition.definition["compactor"]["type"], definition.definition["memory"]["type"]) == (
        "sliding_window",
        "record",
    )
    assert await versions(store) == [1, 1]
    assert (await store.thread("t")).settings["memory_store_type"] == "record"
    assert [len(request.messages) for request in model.requests if request.purpose is None] == [1, 1]


async def test_thread_keeps_its_version_and_new_thread_gets_the_newest(store: Store):
    for number in (1, 2):
        await scripted("Hi.", instructions=f"Version {number}.").run("Go", store=store, thread=f"v{number}")
    model = Recorder("Hi.")
    helper = StoredAgent("helper", model=model)
    for thread in ("v1", "v2", "new"):
        await helper.run("Go", store=store, thread=thread)
    assert [request.system for request in model.requests] == ["Version 1.", "Version 2.", "Version 2."]
    assert [await versions(store, thread) for thread in ("v1", "v2", "new")] == [[1, 1], [2, 2], [2]]
    goal = await helper.start(store=store, goal="Close the day")
    assert goal.version == 2
    assert await helper.version(store) == 2


async def test_each_project_has_its_own_definition(store_url: str):
    model = Recorder("Hi.")
    app = App([StoredAgent("helper", model=model)])
    async with open_store(store_url, project="red") as red, open_store(store_url, project="blue") as blue:
        for store in (red, blue):
            await scripted("Hi.", instructions=f"For {store.project}.").version(store)
            await store.enqueue("helper", {"role": "user", "content": "Go"}, thread="t")
        await work_off(app, red, all_projects=True)
        assert {request.system for request in model.requests} == {"For red.", "For blue."}
        for store in (red, blue):
            assert [request["system"] for request in await requests(store)] == [f"For {store.project}."]


def test_works_without_await():
    with sync.open_store("sqlite:///:memory:") as store:
        sync.run(scripted("Hi.", instructions="Be short."), "Go", store=store, thread="t")
        model = Recorder("Hi.")
        sync.run(StoredAgent(store.thread("t"), model=model), "Again", store=store, thread="t")
    assert model.requests[0].system == "Be short."


async def test_evaluates_a_stored_agent(store: Store):
    await scripted("Hi.", instructions="Be short.").version(store)
    model = Recorder("Hi.")
    evaluation = await evaluate(
        StoredAgent("helper", model=model),
        [Case(id="a", input="Go", expected="Hi.")],
        graders="exact",
        store=store,
        name="e",
    )
    assert ([outcome.passed for outcome in evaluation.outcomes], model.requests[0].system) == ([True], "Be short.")


# Values of the code


@pytest.mark.req("S0-043")
async def test_value_of_the_code_replaces_the_stored_one_and_is_stored(store: Store):
    coded = Agent("helper", model=Recorder("Hi."), tools=[look], **{**SETTINGS, "output": None})
    await coded.run("Go", store=store, thread="t")
    model = Recorder("Hi.", "Hi.")
    changed = StoredAgent("helper", model=model, tools=[look], max_tokens=888, api_kwargs={"top_p": 0.9})
    await changed.run("Go", store=store, thread="t")
    # A value that equals the default of `Agent` is a statement too.
    await StoredAgent("helper", model=model, max_tokens=2048, api_kwargs=None).run("Go", store=store, thread="t")
    await StoredAgent("helper", model=model).run("Go", store=store, thread="t")
    expected = [(888, {"top_p": 0.9}), (2048, {}), (2048, {})]
    assert [(request.max_tokens, request.api_kwargs) for request in model.requests] == expected
    assert {request.system for request in model.requests} == {"Be short."}
    assert await versions(store) == [1, 2, 3, 3]
    assert (await StoredAgent("helper").formatter(store, "t")).__class__.__name__ == "XmlFormatter"
    assert (await StoredAgent("helper", formatter="raw").formatter(store)).__class__.__name__ == "RawFormatter"


async def test_value_of_the_code_changes_one_thread_and_not_the_agent(store: Store):
    for number in (1, 2):
        await scripted("Hi.", instructions=f"Version {number}.").run("Go", store=store, thread=f"v{number}")
    model = Recorder("Hi.")
    await StoredAgent("helper", model=model, max_tokens=888).run("Go", store=store, thread="v1")
    await StoredAgent("helper", model=model).run("Go", store=store, thread="new")
    assert [(request.system, request.max_tokens) for request in model.requests] == [
        ("Version 1.", 888),
        ("Version 2.", 2048),
    ]
    assert [await versions(store, thread) for thread in ("v1", "v2", "new")] == [[1, 3], [2], [2]]


async def test_code_of_an_earlier_version_makes_it_current_again(store_url: str):
    for number in (1, 2, 1):
        async with open_store(store_url) as store:
            await scripted("Hi.", instructions=f"Version {number}.").version(store)
    model = Recorder("Hi.")
    async with open_store(store_url) as store:
        await StoredAgent("helper", model=model).run("Go", store=store, thread="t")
    assert model.requests[0].system == "Version 1."


async def test_open_run_finishes_on_its_version(store: Store):
    paused = await scripted(calls("confirm"), "Done.", tools=[confirm], max_tokens=777).run(
        "Go", store=store, thread="t"
    )
    model = Recorder(calls("confirm"), "Done.")
    changed = StoredAgent("helper", model=model, max_tokens=888)
    await submit_results(store, "t", [{"tool_use_id": "call_1_1_0", "content": "yes"}])
    done = await changed.resume("t", store=store)
    assert done is not None
    assert (done.run_id, done.output_text) == (paused.run_id, "Done.")
    assert [request.max_tokens for request in model.requests] == [777]
    assert len(await store.agents.versions(store.project, "helper")) == 1


async def test_finishes_the_run_of_a_killed_process(store: Store, store_url: str):
    await be_killed(store_url, "factory")
    (run,) = await store.runs(THREAD)

    @tool(effect="safe")
    def greet(ctx: ToolContext) -> str:
        """Greet."""
        return f"Hello {ctx.deps['name']}"

    with pytest.raises(Refused, match="needs values that are not stored: deps"):
        await StoredAgent("helper", model=Recorder("unused"), tools=[greet]).resume(THREAD, store=store)
    model = Recorder(calls("greet"), "Done.")
    done = await StoredAgent("helper", model=model, tools=[greet], deps=deps_of).resume(THREAD, store=store)
    assert done is not None
    assert (done.run_id, done.output_text) == (run.id, "Done.")
    assert [stitch.message["content"] for stitch in await log(store, "tool_call") if stitch.message] == ["Hello Ada"]


async def test_second_message_is_handled_as_the_record_says(store: Store):
    await scripted("Hi.", on_busy="queue").run("Go", store=store, thread="t")
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        started.set()
        await finish.wait()
        return "Late."

    helper = StoredAgent("helper", model=Scripted(slow))
    first = asyncio.create_task(helper.run("One", store=store, thread="t"))
    await started.wait()
    with pytest.raises(ThreadBusy):
        await StoredAgent("helper", model=Scripted(["Hi."]), on_busy="refuse").run("Two", store=store, thread="t")
    second = asyncio.create_task(helper.run("Two", store=store, thread="t"))
    await until(partial(has_delivery, store))
    finish.set()
    assert [(await first).output_text, (await second).output_text] == ["Late.", "Late."]


async def has_delivery(store: Store) -> bool:
    return (await store.thread("t")).delivered > 0


async def test_stored_version_can_be_chosen(store: Store):
    for number in (1, 2):
        await scripted("Hi.", instructions=f"Version {number}.").version(store)
    model = Recorder("Hi.")
    chosen = await StoredAgent("helper", model=model).at_version(store, 1)
    await chosen.run("Go", store=store, thread="t")
    assert (model.requests[0].system, await versions(store)) == ("Version 1.", [1])


async def test_rejects_a_combination_that_is_not_valid_and_writes_nothing(store: Store):
    await scripted("Hi.", max_tokens=777).run("Go", store=store, thread="t")
    head = await store.thread("t")
    with pytest.raises(Refused, match=r"thinking_tokens \(1000\) must be less than max_tokens \(777\)"):
        await StoredAgent("helper", model=Scripted(["Hi."]), thinking_tokens=1000).run("Go", store=store, thread="t")
    assert (await store.thread("t")).position == head.position


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_step": 5}, "StoredAgent 'helper' has no option 'max_step'. Did you mean max_steps?"),
        ({"max_steps": 0}, "Agent 'helper' is not valid: max_steps"),
        ({"formatter": "yaml"}, "Unknown formatter 'yaml'"),
    ],
)
def test_rejects_invalid_value(values: dict[str, Any], message: str):
    with pytest.raises(Refused) as refused:
        StoredAgent("helper", **values)
    assert str(refused.value).startswith(message)


# Tools


async def test_missing_tool_parks_the_thread(store: Store):
    replies = (calls("look"), "Done.")
    await scripted("Hi.", tools=[look]).run("Go", store=store, thread="t")
    model = Recorder(*replies)
    parked = await StoredAgent("helper", model=model).run("Go", store=store, thread="t")
    assert (parked.status, parked.stop_reason) == ("waiting", "awaiting_retry")
    (wait,) = (await store.thread("t")).waits
    assert isinstance(wait, RetryWait)
    assert wait.reason == "unknown_tool: this app has no tool look. Resume the thread with an app that has it."
    assert [tool["name"] for tool in model.requests[0].tools] == ["look"]
    done = await StoredAgent("helper", model=model, tools=[look]).resume("t", store=store)
    assert done is not None
    assert (done.run_id, done.status, done.output_text) == (parked.run_id, "completed", "Done.")
    assert await log(store, "run_failed", "tool_error") == []


async def test_frontend_tool_needs_no_code(store: Store):
    await scripted("Hi.", tools=[confirm]).run("Go", store=store, thread="t")
    helper = StoredAgent("helper", model=Scripted([["unused"], [calls("confirm"), "Done."]]))
    paused = await helper.run("Go", store=store, thread="t")
    assert paused.stop_reason == "awaiting_frontend_tools"
    done = await helper.submit("t", [{"tool_use_id": "call_2_1_0", "content": "yes"}], store=store)
    assert done is not None
    assert done.output_text == "Done."


async def test_uses_stored_tools_only_with_the_schema_of_the_code(store: Store):
    await scripted("Hi.", tools=[look]).run("Go", store=store, thread="t")

    @tool(name="look", effect="safe")
    def look_at(place: str) -> str:
        """Look at a place."""
        return place

    model = Recorder(calls("look", look={"place": "here"}), "Done.")
    helper = StoredAgent("helper", model=model, tools=[look_at, confirm])
    await helper.run("Go", store=store, thread="t")
    (offered,) = model.requests[0].tools
    assert (offered["name"], list(offered["input_schema"]["properties"])) == ("look", ["place"])
    assert await versions(store) == [1, 2]


# Values that the store does not have


class Answer(BaseModel):
    n: int


async def record_nothing(*_: Any) -> list[Any]:
    return []


def make_deps(start: RunStart) -> Json:
    return {"secret": "hunter2"}


CODE: list[tuple[str, Any, Any]] = [
    ("check", lambda answer: None, None),
    ("deps", {"secret": "hunter2"}, make_deps),
    ("files", "s3://bucket?endpoint=http://hunter2@localhost:9", "none"),
    ("instructions", lambda deps: "Made here.", "Stated."),
    ("on_finish", record_nothing, None),
    ("output", Answer, {"type": "object"}),
    ("prices", {"scripted": {"input": 1.0, "output": 1.0}}, None),
]


@pytest.mark.parametrize(("name", "value", "other"), CODE, ids=[name for name, _, _ in CODE])
async def test_names_the_value_that_only_code_has(store: Store, name: str, value: Any, other: Any):
    coded = scripted('{"n": 1}', **{name: value})
    await coded.run("Go", store=store, thread="t")
    (version,) = await store.agents.versions(store.project, "helper")
    assert version.definition["code"] == [name]
    assert b"hunter2" not in codec.dumps(version.definition)
    head = await store.thread("t")

    with pytest.raises(Refused, match=f"Version 1 of agent helper needs values that are not stored: {name}. Pass"):
        await StoredAgent("helper", model=Scripted(["Hi."])).run("Go", store=store, thread="t")
    assert (await store.thread("t")).position == head.position
    assert [thread.key for thread in await store.threads()] == ["t"]

    for stated in (value, other):
        helper = StoredAgent("helper", model=Scripted(['{"n": 1}']), **{name: stated})
        assert (await helper.run("Go", store=store, thread="t")).status == "completed"


async def test_worker_leaves_a_run_that_needs_code_to_other_processes(store: Store):
    await scripted("Hi.", deps=make_deps).run("Go", store=store, thread="t")
    message = await store.enqueue("helper", {"role": "user", "content": "Again"}, thread="t")
    await work_off(App([StoredAgent("helper", model=Scripted(["Hi."]))]), store)
    head = await store.thread("t")
    (wait,) = head.waits
    assert isinstance(wait, RetryWait)
    assert "needs values that are not stored: deps." in (wait.reason or "")
    full = App([StoredAgent("helper", model=Scripted(["Hi."]), deps=make_deps)])
    result = await full.resume("t", store=store)
    assert result is not None
    assert (result.run_id, result.status) == (message.run_id, "completed")


async def test_model_of_a_provider_object_needs_an_object_with_its_name(store: Store):
    class Local(Scripted):
        name = "local"
        model = "llama3"

    await Agent("helper", model=Local(["Hi."]), title=False).run("Go", store=store, thread="t")
    with pytest.raises(ProviderError, match="pass a provider object with the name 'local' as the model of the agent"):
        await StoredAgent("helper").run("Go", store=store, thread="t")
    assert (await StoredAgent("helper", model=Local(["Yes."])).run("Go", store=store, thread="t")).output_text == "Yes."
    assert await versions(store) == [1, 1]


async def test_component_outside_of_the_registry_comes_from_code(store: Store):
    await scripted("Hi.", compactor=Shrinking()).run("Go", store=store, thread="t")
    head = await store.thread("t")
    with pytest.raises(Refused, match=f"Unknown compactor '{Shrinking.name}'"):
        await StoredAgent("helper", model=Scripted(["Hi."])).run("Go", store=store, thread="t")
    after = await store.thread("t")
    assert (after.position, after.worker_id) == (head.position, None)
    helper = StoredAgent("helper", model=Scripted(["Hi."]), compactor=Shrinking())
    assert (await helper.run("Go", store=store, thread="t")).status == "completed"
    assert await versions(store) == [1, 1]


async def test_unknown_agent_is_not_found_and_nothing_is_written(store: Store):
    helper = StoredAgent("helper", model=Scripted(["Hi."]))
    with pytest.raises(NotFound, match="Agent helper has no stored definition in project default"):
        await helper.run("Go", store=store, thread="t")
    with pytest.raises(NotFound):
        await helper.start(store=store, goal="Go")
    assert await store.threads() == []
    thread = await store.ensure("mine")
    with pytest.raises(Refused, match="has no agent"):
        StoredAgent(thread)


async def test_definition_of_another_program_is_refused(store: Store):
    await store.agents.register(store.project, "helper", {"prompt": "Hi"})
    with pytest.raises(Refused, match="Agent 'helper' is not valid: model: Field required"):
        await StoredAgent("helper").run("Go", store=store, thread="t")


async def test_team_is_defined_in_code(store: Store):
    member = scripted("Hi.", name="member")
    await Team("office", model=Scripted(["Hi."]), members=[member], title=False).run("Go", store=store, thread="t")
    with pytest.raises(Refused, match=r"Agent office is a team\. The store does not have its members"):
        await StoredAgent("office", model=Scripted(["Hi."])).run("Go", store=store, thread="t")
    with pytest.raises(Refused, match="The definition of agent member is in the store"):
        Team("office", model=Scripted(["Hi."]), members=[StoredAgent("member")])


def test_limit_of_a_provider_needs_a_stated_model():
    with pytest.raises(Refused, match="The model of agent helper is in the store"):
        App([StoredAgent("helper")], limits={"provider:anthropic": 5})
    App([StoredAgent("helper", model="anthropic:claude-sonnet-5")], limits={"provider:anthropic": 5})
    App([StoredAgent("helper")], limits={"helper": 5})
