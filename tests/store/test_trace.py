"""The shape of a run, worked out from outlines alone."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import Run, new_id
from lockstitch.model.statistics import StitchOutline
from lockstitch.store.reports.trace import DEEPEST, Node, cut, mirror, native, nest
from tests.model.properties import quick
from tests.store.worlds import NOW
from tests.work import assert_linear, lines

RUN = Run(thread_id=new_id(), sequence=1, turn=1, first_position=1, started_at=NOW, agent="helper")


def entry(position: int, type: str, **more: Any) -> StitchOutline:
    values: dict[str, Any] = dict.fromkeys(StitchOutline._fields)
    return StitchOutline(**{**values, "position": position, "id": UUID(int=position), "type": type, "at": NOW, **more})


def drawn(root: Node) -> list[str]:
    return [f"{'  ' * len(place)}{node.kind} {node.name or node.type}" for node, place in root.walk()]


def test_tool_calls_are_below_their_response_in_its_order() -> None:
    log = [
        entry(1, "input"),
        entry(2, "api_retry"),
        entry(3, "llm_call", name="m", calls=3, step_number=1),
        entry(4, "tool_started", call_id="b"),
        entry(5, "tool_error", call_id="b", call_index=1),
        entry(6, "tool_call", name="second", call_id="b", reply_to=3, call_index=1),
        entry(7, "tool_call", name="first", call_id="a", reply_to=3, call_index=0),
        entry(8, "compaction"),
        entry(9, "made_up_by_others"),
    ]
    root = native(RUN, log, {3: [{"id": "c", "name": "third", "input": {}, "index": 2}]})
    assert drawn(root) == [
        "run helper",
        "  model m",
        "    event api_retry",
        "    tool first",
        "    tool second",
        "      event tool_error",
        "    tool third",
        "  event compaction",
        "  event made_up_by_others",
    ]
    assert root.children[0].children[3].status is None


def test_shows_entries_without_a_known_parent() -> None:
    """An answer to a response that is gone, a retry before nothing, a child of no known call."""
    child = new_id()
    log = [
        entry(1, "tool_call", name="look", call_id="a", reply_to=99, call_index=0),
        entry(2, "thread_spawned", call_id="b", child_id=child, name="scout"),
        entry(3, "thread_result", child_id=child, name="scout"),
        entry(4, "thread_result", child_id=new_id(), name="stranger"),
        entry(5, "api_retry"),
    ]
    root = native(RUN, log)
    assert drawn(root)[1:] == ["  tool look", "  event stranger", "  thread scout", "  event api_retry"]
    assert root.children[2].id == child


def test_native_entry_starts_before_its_time_and_span_starts_at_its_time() -> None:
    log = [entry(1, "llm_call", name="m", duration_ms=400, at=NOW + timedelta(seconds=1))]
    assert native(RUN, log).children[0].as_json(NOW)["offset_ms"] == 600
    assert mirror(RUN, log).children[0].as_json(NOW)["offset_ms"] == 1000


def test_nested_run_is_below_the_last_earlier_model_call() -> None:
    log = [entry(2, "llm_call", name="a"), entry(9, "llm_call", name="b")]
    root = native(RUN, log)
    for name, first in (("early", 1), ("middle", 5), ("late", 12)):
        nest(root, native(RUN.changed(agent=name), []), RUN.changed(agent=name, first_position=first))
    assert drawn(root) == ["run helper", "  model a", "    run middle", "  model b", "    run late", "  run early"]


@quick
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 5)), max_size=25))
def test_draws_every_span_once_for_any_parent_links(spans: list[tuple[int, bool, int]]) -> None:
    """Also where spans are above each other in a circle."""
    log = [
        entry(number, "removed" if removed else "span", parent_id=UUID(int=above), at=NOW + timedelta(seconds=second))
        for number, (above, removed, second) in enumerate(spans, 1)
    ]
    remaining = {stitch_outline.id for stitch_outline in log if stitch_outline.type != "removed"}
    root = mirror(RUN, log)
    nodes = [node for node, _ in root.walk()][1:]
    assert len(nodes) == len(remaining)
    assert {node.id for node in nodes} == remaining
    for node in (root, *nodes):
        assert [child.start for child in node.children] == sorted(
            child.start for child in node.children
        ) or node is root


@quick
@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 40), st.none() | st.integers(0, 5))
def test_counts_nodes_that_are_cut(parents: list[int], limit: int, depth: int | None) -> None:
    log = [entry(number, "span", parent_id=UUID(int=above)) for number, above in enumerate(parents, 1)]
    expected_ids = [node.id for node, place in mirror(RUN, log).walk() if depth is None or len(place) <= depth]
    root = mirror(RUN, log)
    shown_count, hidden_count = cut(root, depth, limit)
    nodes = [node for node, _ in root.walk()]
    assert [node.id for node in nodes] == expected_ids[:limit]
    assert (len(nodes), len(nodes) + hidden_count) == (shown_count, len(log) + 1)
    assert sum(node.omitted for node in nodes) == hidden_count


def test_cuts_very_deep_chain() -> None:
    log = [entry(number, "span", parent_id=UUID(int=number - 1)) for number in range(1, 30_001)]
    root = mirror(RUN, log)
    shown_count, hidden_count = cut(root, None, 10**6)
    assert (shown_count, hidden_count) == (DEEPEST + 1, 30_000 - DEEPEST)
    assert root.as_json()["children"][0]["children"][0]["left_off"] == 0


@pytest.mark.parametrize("depth", [0, 1])
def test_depth_keeps_the_upper_levels(depth: int) -> None:
    root = native(RUN, [entry(1, "llm_call"), entry(2, "tool_call", reply_to=1, name="x", call_id="x", call_index=0)])
    assert cut(root, depth, 100) == (1 + depth, 2 - depth)


def test_draws_many_cycles_in_linear_time() -> None:
    def work(size: int) -> int:
        # Pairs of spans that are below each other.
        log = [entry(number, "span", parent_id=UUID(int=number ^ 1)) for number in range(2, size * 2 + 2)]
        return lines(lambda: mirror(RUN, log))

    assert_linear(work)
