"""Runs of LangSmith that are imported before the root of their trace, or without it."""

from itertools import permutations

import pytest

from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.langsmith.export import export_run
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.integrations.importing import lens
from tests.integrations.runs import Trace, items, moment, post_and_patch
from tests.integrations.seeing import fences, seen

pytestmark = pytest.mark.anyio


async def write(store: Store, *runs: Json) -> None:
    await SpanIngest(store, LangSmith()).write(items(*runs))


def _trace() -> tuple[Json, Json, Json]:
    """Return a root, a chain below it, and a model call below that chain."""
    trace = Trace(metadata={"ls_model_name": "gpt-4o-mini", "langgraph_node": "plan"})
    root = trace.root(user_id="eve", session_id="s1", tags=["root"], total_tokens=500)
    messages = {"messages": [{"type": "human", "content": "plan it"}]}
    outputs = {"messages": [{"type": "ai", "content": "planned"}]}
    chain = trace.run("chain", "plan", 1, messages, outputs, end_time=moment(9))
    chain |= {"user_id": "ada", "session_id": "s2", "status": "success", "tags": ["langsmith:nostream"]}
    call = trace.model(2, "ok", parent=chain["id"], tags=["call"], thread_id="lg-1")
    return root, chain, call


@pytest.mark.req("S2-001", "S2-002", "S2-003", "S2-005", "S2-006")
async def test_run_without_its_root_has_its_row(store: Store) -> None:
    _, chain, _ = _trace()
    await write(store, chain)
    (run,) = (await lens(store))["agent_runs"]
    assert run["run_id"] == chain["id"]
    assert (run["start_time"], run["end_time"]) == ("2026-11-01T12:00:01.000000Z", "2026-11-01T12:00:09.000000Z")
    assert (run["status"], run["error"]) == ("success", None)
    assert (run["user_id"], run["session_id"], run["thread_id"]) == ("ada", "s2", None)
    assert run["input_messages"] == chain["inputs"]["messages"]
    assert run["output_messages"] == chain["outputs"]["messages"]
    assert (run["tags"], run["langgraph_metadata"]) == (["langsmith:nostream"], chain["extra"]["metadata"])
    assert (run["model_name"], run["total_tokens"]) == ("gpt-4o-mini", 0)


@pytest.mark.req("S2-007", "S2-011", "S2-015", "S2-026")
async def test_model_call_without_its_root_has_its_row(store: Store) -> None:
    *_, call = _trace()
    await write(store, call)
    rows = await lens(store)
    (run,) = rows["agent_runs"]
    (llm_call,) = rows["llm_calls"]
    assert run["run_id"] == llm_call["run_id"] == call["id"]
    assert run["output_messages"] == call["outputs"]["generations"]
    assert (run["status"], run["thread_id"], run["total_tokens"]) == ("success", "lg-1", 120)
    assert (await store.run(call["id"])).status == "completed"
    assert [exported["id"] for exported in await export_run(store, call["id"])] == [call["id"]]
    assert (await store.verify()).ok


@pytest.mark.req("S2-004")
async def test_failed_run_without_its_root_shows_its_error(store: Store) -> None:
    _, chain, _ = _trace()
    await write(store, {**chain, "status": "error", "error": "Traceback …", "outputs": None})
    (run,) = (await lens(store))["agent_runs"]
    assert (run["status"], run["error"]) == ("error", "Traceback …")


@pytest.mark.req("S2-045", "S2-048")
@pytest.mark.parametrize("named", [True, False])
async def test_run_joins_its_root_in_any_order(store: Store, named: bool) -> None:
    """`named`: whether runs name their trace. Otherwise only the links to the parents lead to it."""
    runs = _trace()
    if not named:
        runs = tuple({key: value for key, value in run.items() if key != "trace_id"} for run in runs)
    expected: Json | None = None
    for order in permutations(runs):
        async with open_store("sqlite:///:memory:") as single:
            for run in order:
                await write(single, run)
            (thread,) = await single.threads(kind="trace", limit=None)
            assert thread.total_runs == 1
            expected = expected or await lens(single)
            assert await lens(single) == expected
    for run in reversed(runs):
        await write(store, run)
    rows = await lens(store)
    assert rows == expected
    (agent_run,) = rows["agent_runs"]
    assert (agent_run["run_id"], agent_run["user_id"], agent_run["session_id"]) == (runs[0]["id"], "eve", "s1")
    assert (agent_run["tags"], agent_run["total_tokens"], agent_run["thread_id"]) == (["root"], 500, None)
    assert [call["run_id"] for call in rows["llm_calls"]] == [runs[0]["id"]]
    before = await fences(store)
    await write(store, *runs)
    assert await fences(store) == before, "a second import changes nothing"


async def test_values_of_substitute_end_when_root_is_still_running(store: Store) -> None:
    root, chain, call = _trace()
    post, patch = post_and_patch({**root, "total_tokens": None})
    await write(store, call)
    await write(store, chain)
    assert [run["run_id"] for run in (await lens(store))["agent_runs"]] == [chain["id"]], "the first run of the trace"
    await write(store, post)
    (run,) = (await lens(store))["agent_runs"]
    assert (run["run_id"], run["status"], run["end_time"]) == (root["id"], None, None)
    assert run["total_tokens"] == 120
    (thread,) = await store.threads(kind="trace", limit=None)
    assert (thread.status, thread.total_runs) == ("running", 0)
    await write(store, patch)
    (thread,) = await store.threads(kind="trace", limit=None)
    assert (thread.status, thread.total_runs, thread.title) == ("completed", 1, "hello")
    assert set(await seen(store)) == {root["id"]}
