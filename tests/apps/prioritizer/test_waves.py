"""Waves, broken cycles, merged dependencies and clusters."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.embedders import HashingEmbedder
from lockstitch.apps.prioritizer import Prioritizer, agent_tools, conclusion
from lockstitch.apps.prioritizer.dependencies import dependents, merged, normalised
from lockstitch.apps.prioritizer.models import TaskDependency
from lockstitch.apps.prioritizer.waves import PlanInput, Planned, clusters, planned
from lockstitch.errors import Refused
from lockstitch.store import Store
from tests.apps.prioritizer.samples import needs, stored, task

pytestmark = pytest.mark.anyio

IDS = [f"t{number}" for number in range(12)]

DEPENDENCIES = st.lists(
    st.builds(
        lambda ends, kind, confidence, method: needs(*ends, confidence, kind, detection_method=method),
        st.lists(st.sampled_from(IDS), min_size=2, max_size=2, unique=True),
        st.sampled_from(["prerequisite", "blocks", "related"]),
        st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]),
        st.sampled_from(["ai_inference", "stored_relationship"]),
    ),
    max_size=40,
)


def build_plan(ids: list[str], dependencies: list[TaskDependency], **more: object) -> Planned:
    tasks = [task(id) for id in ids]
    plan_input = PlanInput(tasks, dependencies, dict.fromkeys(ids, 0.5), "As they come.", **more)  # pyright: ignore[reportArgumentType]
    return planned(plan_input)


@pytest.mark.req("S1-046", "S1-048", "S1-059", "S1-060", "S1-063")
@given(ids=st.lists(st.sampled_from(IDS), min_size=1, unique=True), dependencies=DEPENDENCIES)
def test_any_tasks_make_a_valid_plan(ids: list[str], dependencies: list[TaskDependency]) -> None:
    """The validators of a plan check its form. This test checks the waves independently."""
    result = build_plan(ids, dependencies)
    plan = result.plan
    wave_of = {id: wave.wave_number for wave in plan.execution_waves for id in wave.task_ids}
    assert sorted(wave_of) == sorted(ids), "a partition"
    place = {id: number for number, id in enumerate(plan.ordered_task_ids)}
    dropped = {cycle.dropped.key for cycle in result.broken}
    for dependency in merged(dependencies, ids):
        if dependency.orders and dependency.key not in dropped:
            assert wave_of[dependency.target_task_id] < wave_of[dependency.source_task_id], "no edge inside a wave"
            assert place[dependency.target_task_id] < place[dependency.source_task_id]
    for id, wave in wave_of.items():
        before = [
            wave_of[dependency.target_task_id]
            for dependency in plan.dependencies
            if dependency.orders and dependency.source_task_id == id
        ]
        assert wave == max(before, default=0) + 1, "as early as possible"
    assert build_plan(ids, dependencies) == result, "deterministic"


@pytest.mark.req("S1-064", "X1-22")
@given(dependencies=DEPENDENCIES)
def test_breaks_cycle_at_its_weakest_dependency(dependencies: list[TaskDependency]) -> None:
    result = build_plan(IDS, dependencies)
    for cycle in result.broken:
        circle = [*cycle.task_ids, cycle.task_ids[0]]
        assert (cycle.dropped.source_task_id, cycle.dropped.target_task_id) == (circle[-2], circle[-1])
        for source, target in pairwise(cycle.task_ids):
            links = [
                edge
                for edge in result.plan.dependencies
                if edge.orders and (edge.source_task_id, edge.target_task_id) == (source, target)
            ]
            assert max(edge.confidence for edge in links) >= cycle.dropped.confidence
        assert cycle.dropped not in result.plan.dependencies
    wave_of = {id: wave.wave_number for wave in result.plan.execution_waves for id in wave.task_ids}
    assert all(
        wave_of[edge.source_task_id] > wave_of[edge.target_task_id]
        for edge in result.plan.dependencies
        if edge.relationship_type in ("prerequisite", "blocks")
    ), "no such edge inside a wave"


@pytest.mark.req("S1-064")
def test_reports_broken_cycle() -> None:
    result = build_plan(["a", "b", "c"], [needs("a", "b", 0.9), needs("b", "c", 0.41), needs("c", "a", 0.8)])
    (broken,) = result.broken
    assert (broken.dropped.source_task_id, broken.dropped.target_task_id) == ("b", "c")
    assert sorted(broken.task_ids) == ["a", "b", "c"]
    assert result.plan.ordered_task_ids == ["b", "a", "c"]
    even = build_plan(["a", "b"], [needs("a", "b", 0.7), stored("b", "a", 0.7)])
    assert even.broken[0].dropped.detection_method == "ai_inference", "stored dependencies are stronger"


@pytest.mark.req("S1-060", "S1-061")
def test_waves_follow_from_dependencies() -> None:
    tasks = [task("a", estimate_hours=2), task("b", estimate_hours=1.5), task("c"), task("d")]
    deps = [needs("c", "a"), needs("c", "b", kind="blocks"), needs("d", "b", kind="related")]
    plan = planned(PlanInput(tasks, deps, dict.fromkeys("abcd", 0.5), "Go.")).plan
    assert [wave.task_ids for wave in plan.execution_waves] == [["a", "b", "d"], ["c"]]
    assert [wave.parallel_execution for wave in plan.execution_waves] == [True, False]
    assert [wave.estimated_duration_hours for wave in plan.execution_waves] == [3.5, None]
    apart = planned(PlanInput(tasks, deps, dict.fromkeys("abcd", 0.5), "Go.", sequential_groups=[frozenset("ab")])).plan
    assert [wave.parallel_execution for wave in apart.execution_waves] == [False, False]


@pytest.mark.req("S1-062")
async def test_similar_tasks_are_adjacent() -> None:
    titles = {
        "a": "Paint the kitchen",
        "b": "Order the invoice paper",
        "c": "Paint the hall",
        "d": "Print the invoice paper",
        "e": "Water the flowers",
    }
    embedder = HashingEmbedder()
    tasks = [task(id, title) for id, title in titles.items()]
    vectors = dict(zip(titles, await embedder.embed(list(titles.values())), strict=True))
    plan_input = PlanInput(tasks, [], dict.fromkeys(titles, 0.5), "Go.", vectors, embedder.threshold)
    assert planned(plan_input).plan.ordered_task_ids == ["a", "c", "b", "d", "e"]


def test_plans_two_hundred_tasks_and_two_thousand_edges_quickly() -> None:
    random = Random(7)
    ids = [f"t{number}" for number in range(200)]
    edges = [needs(*random.sample(ids, 2), round(random.random(), 2)) for _ in range(2_000)]
    vectors = {id: [random.gauss(0, 1) for _ in range(64)] for id in ids}
    began = time.process_time()
    build_plan(ids, edges, vectors=vectors)
    assert time.process_time() - began < 0.9


# Dependencies


@pytest.mark.req("S1-053", "S1-054", "S1-055")
def test_dependencies_of_both_sources_are_merged() -> None:
    task_dependencies = merged(
        [
            needs("b", "a", 0.9),
            stored("b", "a", 0.6),
            needs("b", "a", 0.4, "related"),
            needs("c", "z"),
            stored("c", "a"),
            needs("c", "a", 0.3),
        ],
        ["a", "b", "c"],
    )
    assert task_dependencies == [stored("b", "a", 0.9), needs("b", "a", 0.4, "related"), stored("c", "a")]


@pytest.mark.req("X1-13")
def test_reads_dependencies_of_the_other_format() -> None:
    first = {"source_task_id": "b", "target_task_id": "a", "relationship_type": "prerequisite", "confidence": 0.7}
    second = {
        "source_task_id": "a",
        "target_task_id": "b",
        "relationship_type": "prerequisite",
        "confidence_score": 0.7,
        "detection_method": "ai",
    }
    assert normalised(first) == normalised(second) == needs("b", "a", 0.7)
    manual = {**second, "relationship_type": "blocks", "detection_method": "manual"}
    assert normalised(manual) == stored("b", "a", 0.7, "blocks")
    for wrong in (
        {},
        {**first, "source_task_id": "a"},
        {**first, "confidence": 2},
        {**first, "relationship_type": "x"},
    ):
        with pytest.raises(Refused, match="not a dependency"):
            normalised(wrong)


def test_counts_dependents() -> None:
    chain = [needs("b", "a"), needs("c", "b"), needs("d", "b"), needs("d", "c"), needs("e", "a", kind="related")]
    assert dependents(list("abcde"), chain) == {"a": 3, "b": 2, "c": 1, "d": 0, "e": 0}


# Clusters


@pytest.mark.req("S1-082")
def test_clusters_by_average_linkage() -> None:
    """In a chain of similar vectors, only members with enough average similarity form a group."""
    vectors = [[1.0, 0.0], [0.95, 0.31225], [0.6, 0.8], [0.0, 1.0]]
    assert clusters(vectors, 0.75) == [[0, 1], [2, 3]], "1 is 0.82 like 2, but 0 and 1 are 0.71 like 2 on average"
    assert clusters(vectors, 0.45) == [[0, 1], [2, 3]], "the average similarity of the two pairs is 0.43"
    assert clusters(vectors, 0.4) == [[0, 1, 2, 3]]
    assert clusters(vectors, 0.0) == [[0, 1, 2, 3]]
    assert clusters(vectors, 0.99) == [[0], [1], [2], [3]]
    assert clusters([], 0.5) == []
    assert clusters([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], 0.5) == [[0], [1, 2]]


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), max_size=12), st.floats(0.05, 0.95))
def test_clusters_partition_the_vectors(vectors: list[list[float]], threshold: float) -> None:
    groups = clusters(vectors, threshold)
    assert sorted(index for group in groups for index in group) == list(range(len(vectors)))
    assert groups == sorted(groups)


async def test_clusters_two_hundred_texts_quickly() -> None:
    texts = [
        f"Write the {word} of module {number}" for number in range(40) for word in ("tests", "notes", "a", "b", "c")
    ]
    vectors = await HashingEmbedder().embed(texts)
    began = time.process_time()
    clusters(vectors, 0.5)
    assert time.process_time() - began < 1.0


async def test_planning_a_long_list_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Planning thousands of tasks does not block the event loop."""
    threads: set[int] = set()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.add(threading.get_ident())
            return function(*arguments)

        return call

    monkeypatch.setattr(agent_tools, "clusters", noted(agent_tools.clusters))
    monkeypatch.setattr(agent_tools, "detected", noted(agent_tools.detected))
    monkeypatch.setattr(conclusion, "build_conclusion", noted(conclusion.build_conclusion))
    prioritizer = Prioritizer()
    await prioritizer.setup(store)
    session = await prioritizer.run(
        store, await prioritizer.start_from_list(store, "ada", "Open it", "- [ ] Test\n- [ ] Build\n")
    )
    assert session.status == "completed"
    assert threads
    assert threading.get_ident() not in threads
