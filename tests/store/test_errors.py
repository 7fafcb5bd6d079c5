"""Failures of runs and of imported traces: `Store.errors` returns each once."""

import json

import pytest

from lockstitch import Agent, Store, ToolFailed, tool
from lockstitch.model import Json, Stitch
from lockstitch.testing import Scripted
from tests.integrations.importing import import_bytes
from tests.integrations.otel.bodies import PARENT, made
from tests.integrations.runs import Trace

pytestmark = pytest.mark.anyio

BOOM = "ValueError('boom')"


def traced(error: str, file: str) -> str:
    """Return an error as LangSmith's client reports it. The stack trace differs from run to run."""
    return f'{error}Traceback (most recent call last):\n\n  File "{file}", line 1\n\nValueError: boom'


async def import_runs(store: Store, *runs: Json) -> None:
    report = await import_bytes(store, "langsmith", b"\n".join(json.dumps(run).encode() for run in runs))
    assert report.skipped == []


def failures(stitches: list[Stitch]) -> list[tuple[str, str | None]]:
    return [(stitch.type, stitch.name) for stitch in stitches]


async def test_failed_tool_of_langsmith_trace_is_one_failure(store: Store) -> None:
    trace = Trace()
    root = trace.root(error=traced(BOOM, "agent.py"))
    node = trace.run("chain", "node", 1, {}, {}, error=traced(BOOM, "node.py"))
    tool_run = trace.run("tool", "search", 2, {"q": "x"}, {}, parent=node["id"], error=traced(BOOM, "search.py"))
    await import_runs(store, root, node, tool_run)
    errors = await store.errors()
    assert failures(errors) == [("tool_call", "search")]
    assert str(errors[0].data["error"]).startswith(BOOM)


async def test_failures_of_a_trace_do_not_depend_on_order_of_arrival(store: Store) -> None:
    trace = Trace()
    root = trace.root(error=traced(BOOM, "agent.py"))
    model = trace.run("llm", "gpt", 1, {}, {}, error=traced(BOOM, "model.py"))
    await import_runs(store, root)
    assert failures(await store.errors()) == [("span", "agent")]
    await import_runs(store, model)
    assert [stitch.type for stitch in await store.errors()] == ["llm_call"]


async def test_failure_that_the_agent_handled_is_listed(store: Store) -> None:
    trace = Trace()
    await import_runs(store, trace.root(), trace.run("tool", "search", 2, {"q": "x"}, {}, error=BOOM))
    assert failures(await store.errors()) == [("tool_call", "search")]


async def test_parent_with_another_error_is_a_second_failure(store: Store) -> None:
    trace = Trace()
    root = trace.root(error="RuntimeError('gave up')")
    await import_runs(store, root, trace.run("tool", "search", 2, {"q": "x"}, {}, error=BOOM))
    assert sorted(failures(await store.errors())) == [("span", "agent"), ("tool_call", "search")]


async def test_two_failed_siblings_are_two_failures(store: Store) -> None:
    trace = Trace()
    runs = [trace.run("tool", "search", at, {"q": str(at)}, {}, error=BOOM) for at in (1, 2)]
    await import_runs(store, trace.root(error=BOOM), *runs)
    assert failures(await store.errors()) == [("tool_call", "search")] * 2
    assert len(await store.errors(limit=1)) == 1


async def test_failed_run_without_spans_below_is_one_failure(store: Store) -> None:
    await import_runs(store, Trace().root(error=BOOM))
    assert failures(await store.errors()) == [("span", "agent")]


async def test_failed_tool_of_otel_trace_is_one_failure(store: Store) -> None:
    status = {"code": 2, "message": "boom"}
    root = made({"gen_ai.operation.name": "invoke_agent"}, spanId=PARENT, name="agent", status=status)
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    call = made(attributes, parentSpanId=PARENT, name="search", status=status)
    await import_bytes(store, "otel", b"\n".join(json.dumps(body).encode() for body in (root, call)))
    assert failures(await store.errors()) == [("tool_call", "search")]


async def test_failed_span_of_otel_trace_is_listed(store: Store) -> None:
    await import_bytes(store, "otel", json.dumps(made({}, name="work", status={"code": 2})).encode())
    assert failures(await store.errors()) == [("span", "work")]


async def test_errors_of_other_projects_are_not_listed(store: Store) -> None:
    await import_runs(store, Trace().root(error=BOOM))
    assert await store.in_project("elsewhere").errors() == []


async def test_failed_model_call_of_a_run_is_one_failure(store: Store) -> None:
    agent = Agent("helper", model=Scripted([{"fail": "auth", "message": "No key."}]), title=False)
    result = await agent.run("Hi", store=store)
    assert result.status == "failed"
    assert [stitch.type for stitch in await store.log(result.run_id)][-2:] == ["api_error", "run_failed"]
    assert [stitch.type for stitch in await store.errors()] == ["api_error"]


async def test_failed_tool_of_a_run_is_one_failure(store: Store) -> None:
    @tool
    def search() -> str:
        raise ToolFailed("No network.")

    agent = Agent("helper", model=Scripted([{"calls": [{"name": "search"}]}, "Sorry."]), tools=[search], title=False)
    assert (await agent.run("Hi", store=store)).status == "completed"
    assert [stitch.type for stitch in await store.errors()] == ["tool_error"]


async def test_runs_and_imported_traces_are_in_one_list(store: Store) -> None:
    await import_runs(store, Trace(1).root(error=BOOM))
    await Agent("helper", model=Scripted([{"fail": "auth"}]), title=False).run("Hi", store=store)
    await import_runs(store, Trace(2).root(error=BOOM))
    assert [stitch.type for stitch in await store.errors()] == ["span", "api_error", "span"]
    assert [stitch.type for stitch in await store.errors(limit=2)] == ["span", "api_error"]
