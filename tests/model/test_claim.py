"""Claim order and limits, which all backends share."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import Limit, Thread, new_id
from lockstitch.model.worker import ClaimRequest, free_slots, in_fair_order, limits_covering
from tests.conformance.contract import a_goal, later

names = st.sampled_from("abcd")
threads = st.builds(
    lambda project, priority, seconds: a_goal(project=project, priority=priority, wake_at=later(seconds)),
    names,
    st.integers(-1, 1),
    st.integers(0, 3),
)
limits = st.builds(Limit, name=names, at_most=st.integers(0, 4), agents=st.lists(names, max_size=3))
held = st.dictionaries(names, st.integers(0, 3))


def urgency(head: Thread) -> tuple[object, ...]:
    return -head.priority, head.wake_at, head.id


@given(st.lists(threads, max_size=12), st.sampled_from(["", "a", "bb", "d", "z"]))
def test_every_project_gets_one_thread_before_any_gets_two(ready: list[Thread], after: str) -> None:
    order = in_fair_order(ready, after)
    assert {head.id for head in order} == {head.id for head in ready}
    of_project = {
        project: sorted(heads, key=urgency)
        for project, heads in groupby(sorted(ready, key=lambda head: head.project), key=lambda head: head.project)
    }
    expected: list[Thread] = []
    turns = sorted(of_project, key=lambda project: (project <= after, project))
    for round_number in range(len(ready)):
        expected += [
            of_project[project_name][round_number]
            for project_name in turns
            if round_number < len(of_project[project_name])
        ]
    assert order == expected


@given(st.lists(limits, max_size=4), held, st.none() | st.lists(names, max_size=4), st.integers(1, 9))
def test_limited_request_never_exceeds_a_limit(
    given: list[Limit], held: dict[str, int], agents: list[str] | None, limit: int
) -> None:
    request = ClaimRequest(new_id(), agents, limit=limit, limits=given).limited_to(held, "abcd")
    assert request.agents is not None
    assert set(request.agents) <= set("abcd" if agents is None else agents)
    assert request.limit <= limit
    for group_limit in given:
        chosen = request.limit if set(group_limit.agents) & set(request.agents) else 0
        now = sum(held.get(agent, 0) for agent in set(group_limit.agents))
        assert not chosen or now + chosen <= group_limit.at_most
    if request.agents:
        assert request.limit >= 1, "the remaining agents have a free slot"


def test_free_slots_and_covering_limits_are_computed() -> None:
    wide, narrow = Limit(name="w", at_most=5, agents=["a", "b"]), Limit(name="n", at_most=1, agents=["b"])
    assert free_slots([wide, narrow], {"a": 3, "b": 1}) == {"a": 1, "b": 0}
    assert free_slots([], {"a": 3}) == {}
    assert limits_covering([wide, narrow], None) == [wide, narrow]
    assert limits_covering([wide, narrow], ["a", None]) == [wide]
    assert limits_covering([wide, narrow], [None]) == []
