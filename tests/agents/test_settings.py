"""Settings of an agent: the requests that are sent, the stored settings, and the columns of the thread."""

import json
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.anthropic import AnthropicProvider
from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine import usage as prices
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import Refused
from lockstitch.model import Json, format_time
from lockstitch.store import Store, open_store
from tests.agents.conftest import Claude
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import NOTE, PDF, PNG
from tests.agents.providers.test_openai_responses import SAID as RESPONDED
from tests.engine.agents import add, calls, config_of, confirm, log, scripted

pytestmark = pytest.mark.anyio

SAID = {"type": "text", "text": "Hello."}
SERVER_TOOLS = [{"type": "code_execution_20250825", "name": "code_execution"}, {"type": "web_search_20250305"}]


def use(name: str, id: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


@pytest.mark.req("S0-012", "S0-013", "S0-018", "S0-019", "S0-020")
async def test_settings_are_sent_with_each_request_and_stored(store_url: str, api: FakeApi, claude: Claude):
    step = Answer([use("add", "toolu_1", a=1, b=2)], stop="tool_use")
    api.answer(step, Answer([SAID]))
    kwargs = {"temperature": 1, "stop_sequences": ["END"], "metadata": {"user_id": "u"}}
    async with open_store(store_url) as store:
        helper = claude(
            tools=[add],
            instructions="You help.",
            server_tools=SERVER_TOOLS,
            beta_headers=["code-execution-2025-08-25", "files-api-2025-04-14"],
            api_kwargs=kwargs,
            thinking_tokens=1024,
            max_tokens=4000,
        )
        result = await helper.run("Go", store=store, thread="t")
        assert result.steps == 2
        for request in api.requests:
            body = request.body
            assert body["max_tokens"] == 4000
            assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
            assert [tool.get("name") for tool in body["tools"][:1]] == ["add"]
            assert body["tools"][1:] == SERVER_TOOLS
            assert {name: body[name] for name in kwargs} == kwargs
            assert request.headers["anthropic-beta"] == "code-execution-2025-08-25,files-api-2025-04-14"
        config = await config_of(store, store_url, "t")
        assert (config["max_tokens"], config["thinking_tokens"]) == (4000, 1024)
        assert config["server_tools"] == SERVER_TOOLS
        assert config["beta_headers"] == ["code-execution-2025-08-25", "files-api-2025-04-14"]
        assert config["api_kwargs"] == kwargs
        # By default, neither is requested.
        api.answer(Answer([SAID]))
        await claude().run("Hi", store=store, thread="u")
        assert api.last["max_tokens"] == 2048
        assert not {"thinking", "tools", "temperature"} & api.last.keys()
        assert "anthropic-beta" not in api.requests[-1].headers
        config = await config_of(store, store_url, "u")
        assert (config["max_tokens"], config["thinking_tokens"], config["max_steps"]) == (2048, 0, 50)
        assert (config["server_tools"], config["beta_headers"], config["api_kwargs"]) == ([], [], {})
    with pytest.raises(Refused, match=r"thinking_tokens \(2048\) must be less than max_tokens"):
        claude(thinking_tokens=2048)


@pytest.mark.req("S0-009", "S0-010", "S0-016", "S0-017", "S0-069")
async def test_config_shows_prompt_model_and_tools_of_latest_run(
    store_url: str, api: FakeApi, claude: Claude, caplog: pytest.LogCaptureFixture
):
    prices._warn.cache_clear()

    @tool(effect="safe", name="zoom")
    def look(place: str, ctx: ToolContext) -> str:
        """Look at a place."""
        return f"{ctx.deps} {place}"

    def instructions(deps: Any) -> str:
        return f"You help {deps}."

    async with open_store(store_url) as store:
        for name in ("Ada", "Bob"):
            api.answer(Answer([SAID]))
            helper = claude(tools=[look, add, confirm], instructions=instructions)
            await helper.run("Go", store=store, thread="t", deps=name)
        config = await config_of(store, store_url, "t")
        # The resolved text of the latest run, not the template.
        assert config["system_prompt"] == "You help Bob."
        assert config["model"] == "claude-opus-4-6"
        assert {run.provider for run in await store.runs("t")} == {"anthropic"}
        assert config["tool_names"] == ["zoom", "add", "confirm"]
        assert [schema["name"] for schema in config["tool_schemas"]] == config["tool_names"]
        assert all(schema.keys() == {"name", "description", "input_schema"} for schema in config["tool_schemas"])
        assert config["tool_schemas"] == api.last["tools"]
        assert config["tool_schemas"][0]["description"] == "Look at a place."
        assert config["tool_schemas"][0]["input_schema"]["properties"].keys() == {"place"}
        before = await store.stitches("t")
        with pytest.raises(Refused, match="model"):
            await claude(model="m" * 101).run("Go", store=store, thread="t")
        assert await store.stitches("t") == before
        # The document's column is as long as the longest model name.
        api.answer(Answer([SAID]))
        result = await claude(model="m" * 100).run("Go", store=store, thread="t")
        assert (result.status, result.cost, result.total_cost) == ("completed", {}, None)
        assert [record.levelname for record in caplog.records if "Unknown price" in record.message] == ["WARNING"]
        assert (await config_of(store, store_url, "t"))["model"] == "m" * 100


@pytest.mark.req("S0-013", "S0-063")
async def test_reports_answer_that_was_cut(store: Store, api: FakeApi, claude: Claude):
    api.answer(Answer([SAID], stop="max_tokens"))
    result = await claude().run("Hi", store=store, thread="t")
    assert result.error is None
    assert (result.status, result.stop_reason, result.output_text) == ("completed", "max_tokens", "Hello.")


@pytest.mark.req("S0-014")
async def test_keeps_container_across_steps_runs_and_processes(store_url: str, api: FakeApi, claude: Claude):
    container = {"container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}}
    api.answer(
        Answer([use("add", "toolu_1", a=1, b=2)], stop="tool_use", more=container), Answer([SAID]), Answer([SAID])
    )
    async with open_store(store_url) as store:
        result = await claude(tools=[add]).run("One", store=store, thread="t")
        assert result.container_id == "container_1"
        assert [request.body.get("container") for request in api.requests] == [None, "container_1"]
        assert (await config_of(store, store_url, "t"))["container_id"] == "container_1"
    async with open_store(store_url) as store:
        second_container = {"container": {"id": "container_2", "expires_at": "2026-01-02T00:00:00Z"}}
        api.answer(Answer([SAID], more=second_container), Answer([SAID]))
        second_result = await claude(tools=[add]).run("Two", store=store, thread="t")
        assert api.last["container"] == "container_1"
        assert second_result.container_id == "container_2"
        assert (await config_of(store, store_url, "t"))["container_id"] == "container_2"
        await claude(tools=[add]).run("Three", store=store, thread="t")
        assert api.last["container"] == "container_2"
        for stitch in await log(store, "llm_call"):
            await store.request(stitch.id)


async def test_usage_shows_prompt_caching(store: Store, api: FakeApi, claude: Claude):
    """A resumed thread sends the same bytes, so that the provider reads them from its cache."""
    api.answer(Answer([use("add", "toolu_1", a=1, b=2)], stop="tool_use"), Answer([SAID]))
    helper = claude(tools=[add], instructions="You help. " * 50)
    first = await helper.run("One, with some more words to it.", store=store, thread="t")
    assert first.usage["cache_creation_input_tokens"] > 0
    assert first.usage["cache_read_input_tokens"] > 0
    second = await claude(tools=[add], instructions="You help. " * 50).run("Two", store=store, thread="t")
    responses = await log(store, "llm_call")
    assert responses[-1].cache_read_tokens is not None
    before = responses[-2]
    assert responses[-1].cache_read_tokens >= (before.cache_read_tokens or 0) > 0
    usage = second.usage
    assert usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] <= usage["input_tokens"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"] // 2


@pytest.mark.parametrize("kind", ["anthropic", "chat", "responses", "scripted"])
async def test_images_and_documents_reach_every_provider(store: Store, api: FakeApi, kind: str):
    make: dict[str, Any] = {
        "anthropic": lambda: AnthropicProvider("m", base_url=api.url, api_key="k"),
        "chat": lambda: OpenAIChatProvider("m", base_url=f"{api.url}/v1", api_key="k"),
        "responses": lambda: OpenAIResponsesProvider("m", base_url=f"{api.url}/v1", api_key="k"),
        "scripted": lambda: Scripted(["I see."]),
    }
    text = {"type": "text", "text": "What is this?"}
    api.answer(Answer([RESPONDED if kind == "responses" else SAID], stop="stop" if kind == "chat" else "end_turn"))
    provider = make[kind]()
    helper = Agent("helper", model=provider, title=False, max_retries=0)
    large = {**PNG, "source": {**PNG["source"], "data": "QUJD" * 20_000}}
    result = await helper.run([text, PNG, large, PDF, NOTE], store=store, thread="t")
    await provider.close()
    assert result.status == "completed", result.error
    if kind != "scripted":
        request_text = json.dumps(api.last)
        assert PNG["source"]["data"] in request_text
        assert large["source"]["data"] in request_text
        assert PDF["source"]["data"] in request_text
        assert "Hi." in request_text
    assert (await store.context("t"))[0]["content"] == [text, PNG, large, PDF, NOTE]
    assert (await result.messages())[0]["content"][2] == large
    assert (await store.history("t")).turns[0].user_message == "What is this?"


@pytest.mark.req("S0-021", "S0-022", "S0-023", "S0-024", "X0-08")
async def test_components_are_stored_by_name(store_url: str):
    async with open_store(store_url) as store:
        helper = scripted(
            "Hi.",
            formatter="xml",
            stream_meta_history_and_tool_results=True,
            compactor="ToolResultRemovalCompactor",
            memory="PlaceholderMemoryStore",
        )
        await helper.run("Hi", store=store, thread="t")
        await scripted("Hi.", name="plain").run("Hi", store=store, thread="plain")
        head, plain = await store.thread("t"), await store.thread("plain")
        definition = (await store.agents.version(store.project, "helper", head.version or 0)).definition
        assert definition["compactor"]["type"] == "tool_result_removal"
        assert definition["compactor"]["parameters"].keys() == {"threshold", "keep"}
        assert definition["memory"] == {"type": "none", "parameters": {}}
        assert (definition["formatter"], definition["stream_meta_history_and_tool_results"]) == ("xml", True)
        default = (await store.agents.version(store.project, "plain", plain.version or 0)).definition
        assert (default["formatter"], default["stream_meta_history_and_tool_results"]) == ("json", False)
        assert (default["compactor"]["type"], default["memory"]["type"]) == ("none", "none")
        config = await config_of(store, store_url, head)
        assert (config["formatter"], config["stream_meta_history_and_tool_results"]) == ("xml", True)
        assert (config["compactor_type"], config["memory_store_type"]) == ("tool_result_removal", "none")
        config = await config_of(store, store_url, plain)
        assert (config["formatter"], config["stream_meta_history_and_tool_results"]) == ("json", False)
        assert (config["compactor_type"], config["memory_store_type"]) == ("none", "none")
        # Names of classes and old names are aliases.
        await scripted("Hi.", compactor="none", memory="placeholder").run("Hi", store=store, thread="alias")
        await scripted("Hi.", memory="record", formatter="raw").run("Hi", store=store, thread="named")
        config = await config_of(store, store_url, "alias")
        assert (config["compactor_type"], config["memory_store_type"]) == ("none", "none")
        config = await config_of(store, store_url, "named")
        assert (config["formatter"], config["memory_store_type"]) == ("raw", "record")
    for wrong in ({"formatter": "yaml"}, {"compactor": "magic"}, {"memory": "elephant"}, {"files": "ftp://x"}):
        with pytest.raises(Refused, match=r"Unknown|is not a file store"):
            scripted("x", **wrong)  # type: ignore[arg-type]


@pytest.mark.req("S0-027", "S0-037", "X0-15")
async def test_keeps_extras_and_counts_runs_once(store_url: str):
    async with open_store(store_url) as store:
        head = await store.create(key="t", extras={"user": {"plan": "pro"}, "n": 2**70})
        assert (head.last_run_at, head.total_runs) == (None, 0)
        script = [[calls("confirm"), "One."], [{"fail": "request"}], [calls("confirm")]]
        helper = scripted(turns=script, tools=[confirm])
        paused = await helper.run("1", store=store, thread="t", extras={"credits_used": 42})
        head = await store.thread("t")
        assert head.total_runs == 0
        assert head.last_run_at == (await store.run(paused.run_id)).started_at
        await helper.submit("t", [{"tool_use_id": "call_1_1_0", "content": "y"}], store=store)
        assert (await store.thread("t")).total_runs == 1
        failed = await helper.run("2", store=store, thread="t")
        assert failed.status == "failed"
        assert (await store.thread("t")).total_runs == 2
        await helper.run("3", store=store, thread="t")
        await scripted("4.").run("4", store=store, thread="t", on_waiting="cancel")
        head = await store.thread("t")
        runs = await store.runs("t")
        assert [run.status for run in runs] == ["completed", "failed", "cancelled", "completed"]
        assert (head.total_runs, head.last_run_at) == (4, runs[-1].started_at)
        assert head.extras == {"user": {"plan": "pro"}, "n": 2**70}
        assert runs[0].extras == {"credits_used": 42}
        config = await config_of(store, store_url, head)
        assert (config["total_runs"], config["extras"]) == (4, head.extras)
        assert config["last_run_at"] == format_time(runs[-1].started_at)


async def test_deps_reach_tools_and_instructions(store: Store):
    @tool(effect="safe")
    def whoami(ctx: ToolContext) -> str:
        """Tell who is asking."""
        return f"{ctx.deps['name']} at step {ctx.step} of {ctx.run_id}"

    async def instructions(deps: Any) -> str:
        return f"You help {deps['name']}."

    helper = scripted(
        turns=[[calls("whoami"), "1."], [calls("whoami"), "2."]],
        tools=[whoami],
        instructions=instructions,
        deps={"name": "nobody"},
    )
    await helper.run("Hi", store=store, thread="t", deps={"name": "Ada"})
    await helper.run("Hi", store=store, thread="t")
    contents = [str((stitch.message or {}).get("content")) for stitch in await log(store, "tool_call")]
    assert contents[0].startswith("Ada at step 1")
    assert contents[1].startswith("nobody at step 1")
    responses = await log(store, "llm_call")
    assert (await store.request(responses[0].id))["system"] == "You help Ada."
    assert (await store.request(responses[-1].id))["system"] == "You help nobody."
