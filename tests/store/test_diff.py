"""The difference of two runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.function import tool
from lockstitch.errors import NotFound
from lockstitch.store import Store
from lockstitch.store.reports import diff as module
from lockstitch.store.reports.alignment import Allowance
from lockstitch.store.reports.diff import Difference, Pair, Step
from tests.engine.agents import calls, scripted
from tests.model.properties import quick
from tests.store.worlds import mirror, span

pytestmark = pytest.mark.anyio


@tool(effect="safe")
def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


@tool(effect="safe")
def listen() -> str:
    """Listen."""
    return "heard"


def helper(*replies: Any, **options: Any) -> Agent:
    return scripted(*replies, **{"tools": [look, listen], "instructions": "Be kind.", **options})


async def run(store: Store, agent: Agent, text: str = "Go") -> Any:
    return (await agent.run(text, store=store)).run_id


def named(pair: Pair) -> list[str]:
    return [change.name for change in pair.changes]


async def test_equal_runs_have_no_difference(store: Store) -> None:
    item = await run(store, helper(calls("look", look={"at": "x"}), "Done."))
    other_run = await run(store, helper(calls("look", look={"at": "x"}), "Done."))
    difference = await store.difference(item, other_run)
    assert difference.same
    assert len(difference.pairs) == 3
    assert all(pair.same for pair in difference.pairs)
    assert {change.name for change in difference.changes} <= {"duration_ms"}
    assert difference.as_json()["same"] is True


async def test_difference_names_changed_values(store: Store) -> None:
    item = await run(store, helper(calls("look", look={"at": "x"}), "It is here.\nOr there."))
    other_run = await run(
        store,
        helper(
            calls("look", look={"at": "y"}),
            "It is here.\nOr nowhere.",
            instructions="Be brief.",
            max_tokens=77,
            tools=[look],
        ),
    )
    difference = await store.difference(item, other_run)
    first, tool_call, last = difference.pairs
    assert set(named(first)) == {"parameters", "system", "tools", "calls"}
    assert named(tool_call) == ["args", "result"]
    assert [(change.a, change.b) for change in tool_call.changes] == [({"at": "x"}, {"at": "y"}), ("seen x", "seen y")]
    (answer,) = [change for change in last.changes if change.name == "answer"]
    assert answer.lines is not None
    assert [line for line in answer.lines if line[0] in "+-"] == ["-Or there.", "+Or nowhere."]
    assert not difference.same


async def test_pairs_other_steps_when_only_one_run_has_a_step(store: Store) -> None:
    item = await run(store, helper(calls("look"), "Done."))
    other_run = await run(store, helper(calls("look"), calls("listen", "look"), "Done."))
    difference = await store.difference(item, other_run)
    shape = [(pair.a and pair.a.kind, pair.b and (pair.b.kind, pair.b.name)) for pair in difference.pairs]
    assert shape == [
        ("model", ("model", "scripted")),
        ("tool", ("tool", "look")),
        (None, ("model", "scripted")),
        (None, ("tool", "listen")),
        (None, ("tool", "look")),
        ("model", ("model", "scripted")),
    ]
    assert [pair.same for pair in difference.pairs] == [True, True, False, False, False, True]


async def test_compares_failed_run_with_completed_run(store: Store) -> None:
    item = await run(store, helper("Fine."))
    other_run = await run(store, helper({"fail": "auth", "message": "The key is wrong."}))
    difference = await store.difference(item, other_run)
    changed = {change.name: (change.a, change.b) for change in difference.changes}
    assert changed["status"] == ("completed", "failed")
    assert changed["error"] == (None, "The key is wrong.")
    assert [(pair.a is None, pair.b is None) for pair in difference.pairs] == [(False, True)]


async def test_compares_imported_runs_with_each_other_and_with_native_run(store: Store) -> None:
    """Spans arrive in any order. A tool call that no response requested comes at its start time."""
    for foreign_id, temperature, answer in (("a", 0, "Done."), ("b", 1, "Ready.")):
        world = mirror(foreign_id=foreign_id, model="scripted", total_cost=0.5)
        top = span(world, "root")
        extra = {"invocation_params": {"temperature": temperature}}
        span(world, "late", top.id, after=9, type="tool_call", call_id="z", data={"inputs": {"q": 1}})
        last = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
        span(
            world, "scripted", top.id, after=5, type="llm_call", status="end_turn", message=last, data={"extra": extra}
        )
        use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        requested = {"role": "assistant", "content": [use]}
        first = span(
            world,
            "scripted",
            top.id,
            type="llm_call",
            status="tool_use",
            message=requested,
            data={"inputs": {"m": foreign_id}},
        )
        body = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "seen "}]}
        span(
            world,
            "look",
            top.id,
            after=3,
            type="tool_call",
            call_id="c",
            call_index=0,
            reply_to=first.position,
            message=body,
        )
        await world.put(store)

    difference = await store.difference("a", "b")
    assert [pair.a and pair.a.name for pair in difference.pairs] == ["scripted", "look", "scripted", "late"]
    assert [named(pair) for pair in difference.pairs] == [["prompt"], [], ["parameters", "answer"], []]

    own_run = await run(store, helper(calls("look"), "Done."))
    difference = await store.difference(own_run, "a")
    assert [named(pair) for pair in difference.pairs[:3]] == [[], [], ["parameters"]]
    assert (difference.pairs[3].a, difference.pairs[3].b and difference.pairs[3].b.name) == (None, "late")


async def test_difference_rejects_unknown_runs(store: Store) -> None:
    item = await run(store, helper("Fine."))
    for a, b in ((item, "unknown"), ("unknown", item)):
        with pytest.raises(NotFound, match="Run unknown not found"):
            await store.difference(a, b)
    assert (await store.difference(item, item)).same


def steps(names: list[str]) -> list[Step]:
    return [Step("model" if name == "m" else "tool", name, {}) for name in names]


NAMES = st.lists(st.sampled_from(["m", "look", "listen"]), max_size=12)


@quick
@given(NAMES, NAMES)
def test_every_step_is_in_one_pair_in_order(a: list[str], b: list[str]) -> None:
    pairs = list(module._aligned(steps(a), steps(b)))  # pyright: ignore[reportPrivateUsage]
    assert [step.name for step, _ in pairs if step is not None] == a
    assert [other_step.name for _, other_step in pairs if other_step is not None] == b
    assert all(
        step.kind == other_step.kind for step, other_step in pairs if step is not None and other_step is not None
    )


def test_pairs_steps_by_number_when_alignment_is_too_costly() -> None:
    pairs = list(module._aligned(steps(["m", "look"]), steps(["m"]), Allowance(1)))  # pyright: ignore[reportPrivateUsage]
    assert [(step is None, other_step is None) for step, other_step in pairs] == [(False, False), (False, True)]


def test_difference_is_plain_json() -> None:
    world = mirror()
    shown_json = Difference(world.runs[0], world.runs[0], [], [Pair(steps(["m"])[0], None, [])]).as_json()
    assert (shown_json["same"], shown_json["steps"][0]["b"]) == (False, None)
