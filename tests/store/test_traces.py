"""Trace trees of native and imported runs, on every backend."""

from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.errors import NotFound
from lockstitch.model import Entry, FakeClock
from lockstitch.store import Store
from lockstitch.store.reports.trace import Node
from tests.engine import story
from tests.engine.agents import calls, confirm, scripted
from tests.engine.threads.families import agent, asks, child, done, family
from tests.samples import answered, asked, begin_turn, finish_turn, result, said
from tests.store.worlds import mirror, span

pytestmark = pytest.mark.anyio


def lines(root: Node) -> list[str]:
    """Kind, name and status, indented."""
    return [
        " ".join(["  " * len(place) + node.kind, node.name or node.type, node.status or "-"])
        for node, place in root.walk()
    ]


@pytest.mark.req("S2-055")
async def test_traces_run_with_all_kinds_of_entries(store: Store, tmp_path: Path) -> None:
    await story.tell(store, tmp_path)
    first, second, third = await store.runs("t")

    trace = await store.trace(first.id)

    drawn = [line for line in lines(trace.root) if "compaction" not in line and "memory" not in line]
    assert drawn == [
        "run teller completed",
        "  model scripted tool_use",
        "    tool look ok",
        "    tool look ok",
        "    tool look ok",
        "  event file_stored -",
        "  event file_error error",
        "  model scripted tool_use",
        "    tool broken error",
        "      event broken error",
        "    tool draw ok",
        "  event file_stored -",
        "  model scripted tool_use",
        "    tool pay ok",
        "      event pay approved",
        "    tool confirm ok",
        "  event run_paused approval",
        "  model scripted end_turn",
        "    event api_retry overloaded",
        "  event final_answer_validation_failed -",
        "  model scripted end_turn",
        "  event error error",
    ]
    assert (trace.shown, trace.omitted, trace.root.text) == (len(lines(trace.root)), 0, "What is it?")
    models = [node for node, _ in trace.root.walk() if node.kind == "model"]
    assert [node.step for node in models] == [1, 2, 3, 4, 5]
    assert sum((node.usage or {})["input_tokens"] for node in models) == first.input_tokens
    assert models[-1].text == story.ANSWER
    (retry,) = [node for node, _ in trace.root.walk() if node.type == "api_retry"]
    assert retry.error == "The script says: overloaded."
    reasons = [node.text for node, _ in trace.root.walk() if node.type == "compaction"]
    assert "above_threshold" in reasons

    limited = (await store.trace(second.id)).root
    assert [node.label for node in limited.children if node.label] == ["final_summary"]
    failed = (await store.trace(third.id)).root
    assert (failed.status, failed.error) == ("failed", "The key is wrong.")
    assert lines(failed)[-1] == "  event scripted auth"


async def test_child_threads_are_below_the_call_that_created_them(store: Store) -> None:
    lead = agent("lead", asks(child("part", wait=True), child("other", agent="sub", wait=True)), "ok")
    lead = family(lead, agent("member", done("did it")), agent("sub", asks(child("deep", wait=True)), done("x"))).agent(
        lead.name
    )
    outcome = await lead.run("Go", store=store, thread="t")
    assert outcome.run_id is not None

    trace = await store.trace(outcome.run_id)

    assert lines(trace.root) == [
        "run lead completed",
        "  model scripted tool_use",
        "    tool create_thread ok",
        "      thread member completed",
        "        run member completed",
        "          model scripted tool_use",
        "            tool complete_thread ok",
        "    tool create_thread ok",
        "      thread sub completed",
        "        run sub completed",
        "          model scripted tool_use",
        "            tool create_thread ok",
        "              thread member completed",
        "                run member completed",
        "                  model scripted tool_use",
        "                    tool complete_thread ok",
        "          event run_paused children",
        "          model scripted tool_use",
        "            tool complete_thread ok",
        "  event run_paused children",
        "  model scripted end_turn",
    ]
    below = [node for node, _ in trace.root.walk() if node.kind == "thread"]
    assert [node.text for node in below] == ["part", "other", "deep"]
    heads = await store.tree("t")
    assert {node.id for node in below} == {head.id for head in heads[1:]}
    # A child's figures are those of all below it.
    runs = {head.goal: (await store.runs(head))[0] for head in heads[1:]}
    assert (below[1].usage or {})["input_tokens"] == runs["other"].input_tokens + runs["deep"].input_tokens
    assert all((node.duration_ms or 0) >= 0 for node in below)

    shallow = await store.trace(outcome.run_id, depth=3)
    assert len(lines(shallow.root)) == shallow.shown
    assert not [node for node, _ in shallow.root.walk() if node.kind == "run" and node is not shallow.root]
    few = await store.trace(outcome.run_id, limit=4)
    assert (few.shown, lines(few.root)) == (4, lines(trace.root)[:4])
    assert few.omitted > 0

    await store.delete(below[0].id)
    assert "      thread member removed" in lines((await store.trace(outcome.run_id)).root)


async def test_calls_without_a_result_are_open(store: Store) -> None:
    @tool(effect="safe")
    def add(a: int) -> int:
        """Add."""
        return a + 1

    asking = scripted({**calls("confirm", "add", confirm={"question": "Now?"}, add={"a": 1})}, tools=[confirm, add])
    outcome = await asking.run("Go", store=store, thread="t")
    assert (outcome.status, outcome.run_id is not None) == ("waiting", True)
    (model, paused) = (await store.trace(outcome.run_id or "")).root.children
    assert [(node.name, node.status, node.args, node.text) for node in model.children] == [
        ("confirm", None, '{"question":"Now?"}', None),
        ("add", "ok", '{"a":1}', "2"),
    ]
    assert paused.type == "run_paused"


async def test_nested_runs_are_below_the_step_that_delegated(store: Store) -> None:
    committed, run = await begin_turn(store, await store.create(agent="team"), "Go", role="team")
    step = await store.append(committed.head, [asked("c1", name="delegate", run_id=run.id)])
    member = store.new_run(step.head, parent_run_id=run.id, agent="writer").changed(input_tokens=5)
    entries = [
        said("Write", run_id=member.id, lane=member.id),
        answered("Written.", run_id=member.id, lane=member.id, name="small"),
    ]
    head = (await store.append(step.head, entries, new_runs=[member])).head
    head = (await store.append(head, [result("c1", 0, step.head.position, "Written.", "delegate", run_id=run.id)])).head
    await finish_turn(store, head, run, "Done.")

    root = (await store.trace(run.id)).root

    assert lines(root) == [
        "run team completed",
        "  model llm_call tool_use",
        "    tool delegate ok",
        "    run writer running",
        "      model small end_turn",
        "  model llm_call end_turn",
    ]
    assert root.children[0].children[1].children[0].text == "Written."


@pytest.mark.req("S2-055")
async def test_traces_imported_run_as_tree_of_its_spans(store: Store) -> None:
    world = mirror(input_tokens=30, output_tokens=3, total_cost=0.25, model="gpt-9")
    top = span(world, "assistant", took=10)
    use = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}}
    model = span(
        world,
        "gpt-9",
        top.id,
        after=2,
        took=3,
        type="llm_call",
        status="tool_use",
        step_number=1,
        message={"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
        data={"kind": "llm", "cost": 0.25, "finish_reason": "tool_calls"},
        input_tokens=30,
        output_tokens=3,
    )
    chain = span(world, "chain", top.id, after=1, took=1)
    span(
        world,
        "search",
        chain.id,
        after=6,
        type="tool_call",
        status="error",
        call_id="c1",
        call_index=0,
        reply_to=model.position,
        message={"type": "tool_result", "tool_use_id": "c1", "content": "not found", "is_error": True},
        data={"kind": "tool", "error": "404"},
    )
    span(world, "alone", top.id, after=8, type="tool_call", call_id="c2", message=None, data={"inputs": {"q": "y"}})
    span(world, "gone", top.id, type="removed")
    span(world, "stray", world.threads[0].id, after=9, data={"kind": "retriever", "error": "boom"}, status="error")
    await world.put(store)

    trace = await store.trace("trace-1")

    assert lines(trace.root) == [
        "run assistant completed",
        "  span assistant ok",
        "    span chain ok",
        "      tool search error",
        "    model gpt-9 tool_use",
        "    tool alone ok",
        "  span stray error",
    ]
    tree = trace.as_json()["tree"]
    assert (tree["total_cost"], tree["duration_ms"], tree["usage"]["input_tokens"]) == (0.25, 10_000, 30)
    called = tree["children"][0]["children"][1]
    assert (called["offset_ms"], called["duration_ms"], called["total_cost"], called["text"]) == (
        2000,
        3000,
        0.25,
        "Let me see.",
    )
    searched = tree["children"][0]["children"][0]["children"][0]
    assert (searched["args"], searched["text"], searched["error"]) == ('{"q":"x"}', "not found", "404")
    alone, stray = tree["children"][0]["children"][2], tree["children"][1]
    assert (alone["args"], alone["text"]) == ('{"q":"y"}', None)
    assert (stray["label"], stray["error"]) == ("retriever", "boom")


async def test_traces_archived_run(timed_store: Store, clock: FakeClock) -> None:
    head = await timed_store.create(kind="goal", goal="g", agent="helper")
    committed, run = await begin_turn(timed_store, head, "Go")
    step = await timed_store.append(committed.head, [asked("c1", run_id=run.id)])
    last_commit = await timed_store.append(step.head, [result("c1", 0, step.head.position, "found", run_id=run.id)])
    final_fields = {"status": "completed", "completed_at": clock.now()}
    await timed_store.append(
        last_commit.head,
        [answered("Here.", run_id=run.id)],
        run_updates=[(run, final_fields)],
        fields={"status": "completed", "result": {}},
    )
    before = await timed_store.trace(run.id)
    clock.advance(60)
    assert await timed_store.archive(clock.now()) == 1
    assert await timed_store._backend.outline(run.id) == []
    assert (await timed_store.trace(run.id)).as_json() == before.as_json()


@pytest.mark.parametrize("shape", ["wide", "deep"])
async def test_traces_thousands_of_spans(store: Store, shape: str) -> None:
    """Writing the spans takes the time here. test_trace.py builds larger trees."""
    count = 2_000
    world = mirror()
    top = span(world, "root")
    run, at = world.runs[0], world.runs[0].started_at
    above = top
    for number in range(count - 1):
        values: dict[str, Any] = {**top.__dict__, "id": type(top.id)(int=number), "position": number + 2}
        above = type(top).unchecked({**values, "parent_id": above.id if shape == "deep" else top.id, "at": at})
        world.stitches.append(above)
    await world.put(store)
    trace = await store.trace(run.id)
    deepest = 101 if shape == "deep" else 500
    assert (trace.shown, trace.omitted) == (deepest, count + 1 - deepest)
    assert sum(node.omitted for node, _ in trace.root.walk()) == trace.omitted
    assert trace.root.children[0].label == "chain"


async def test_trace_rejects_runs_of_other_projects(store: Store) -> None:
    world = await mirror(project="elsewhere").put(store)
    for name in ("trace-1", world.runs[0].id, "unknown", "", "\N{SNOWMAN}"):
        with pytest.raises(NotFound):
            await store.trace(name)


async def test_outline_has_times_and_costs_but_no_texts(store: Store) -> None:
    """The outline of a call is read from its details, which may contain any value."""
    committed, run = await begin_turn(store, await store.create(agent="one"), "Go")
    odd: list[dict[str, Any]] = [
        {"cost": 0.5, "first_token_ms": 120},
        {"cost": {"total_cost": 0.25, "input_cost": 0.25}, "first_token_ms": 80.6},
        {"cost": True, "first_token_ms": "soon", "purpose": {"a": 1}},
        {"cost": {"total_cost": "much"}, "purpose": "title \U0001f600", "text": "a\x00b"},
        {"cost": 2**70, "purpose": "title"},
        {},
    ]
    entries = [Entry(type="llm_call", run_id=run.id, name="m", status="end_turn", data=data) for data in odd]
    entries.append(Entry(type="api_retry", run_id=run.id, status="overloaded", duration_ms=7, data={"delay": 1.5}))
    entries.append(Entry(type="run_paused", run_id=run.id, status="timer", data={"until": 3}))
    await store.append(committed.head, entries)

    shape = await store.trace_outline(run.id, limit=100)

    nodes = [node for node, _ in shape.root.walk()][1:]
    assert [node.cost for node in nodes] == [0.5, 0.25, None, None, float(2**70), None, None, None]
    assert [node.first_token_ms for node in nodes] == [120, 81, *[None] * 6]
    assert [node.label for node in nodes] == [None, None, None, "title \U0001f600", "title", None, None, None]
    assert {node.type: node.pause_ms for node in nodes} == {"llm_call": None, "api_retry": 1500, "run_paused": None}
    assert {node.text for node in nodes} == {None}
    expected_nodes = [node for node, _ in (await store.trace(run.id)).root.walk()][1:]
    assert [node.cost for node in expected_nodes] == [node.cost for node in nodes]
