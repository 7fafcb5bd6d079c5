"""Waits: the stored JSON of each kind, and that every entry is stored again unchanged."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import (
    ApprovalWait,
    ChildrenWait,
    DepsWait,
    FrontendToolWait,
    InDoubtWait,
    Json,
    NextMessageWait,
    QuestionWait,
    RetryWait,
    Thread,
    TimerWait,
    Wait,
    codec,
    parse_waits,
    person_waits,
)
from lockstitch.model.wait import PERSON_WAIT_KINDS, awaiting_person_since, parse_wait, without_next_message

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(hours=1)
RUN = UUID("018f0000-0000-7000-8000-000000000001")
_SINCE = '"since":"2026-01-01T00:00:00.000000Z"'
_UNTIL = '"until":"2026-01-01T01:00:00.000000Z"'

STORED: list[tuple[Wait, str]] = [
    (
        ApprovalWait(NOW, call_id="c1", key="k1", name="pay"),
        f'{{"kind":"approval","id":"c1",{_SINCE},"until":null,"key":"k1","name":"pay"}}',
    ),
    (
        InDoubtWait(NOW, call_id="c1", key="k1", name="pay"),
        f'{{"kind":"doubt","id":"c1",{_SINCE},"until":null,"key":"k1","name":"pay"}}',
    ),
    (
        InDoubtWait(NOW, call_id="c1", key="k1", name="pay", agent="helper"),
        f'{{"kind":"doubt","id":"c1",{_SINCE},"until":null,"key":"k1","name":"pay","agent":"helper"}}',
    ),
    (
        QuestionWait(NOW, call_id="c1", key="k1", name="ask", question="Which?"),
        f'{{"kind":"input","id":"c1",{_SINCE},"until":null,"key":"k1","name":"ask","question":"Which?"}}',
    ),
    (
        FrontendToolWait(NOW, call_id="c1", key="k1", name="form"),
        f'{{"kind":"frontend_tools","id":"c1",{_SINCE},"until":null,"key":"k1","name":"form"}}',
    ),
    (NextMessageWait(NOW), f'{{"kind":"input","id":null,{_SINCE},"until":null}}'),
    (
        ChildrenWait(NOW, child_ids=["a", "b"], mode="any", until=UNTIL),
        f'{{"kind":"children","id":null,{_SINCE},{_UNTIL},"ids":["a","b"],"mode":"any"}}',
    ),
    (TimerWait(NOW, until=UNTIL), f'{{"kind":"timer","id":null,{_SINCE},{_UNTIL}}}'),
    (
        RetryWait(NOW, call_id="c1", name="nail", reason="no tool"),
        f'{{"kind":"retry","id":"c1",{_SINCE},"until":null,"name":"nail","reason":"no tool"}}',
    ),
    (
        RetryWait(NOW, until=UNTIL, reason="ValueError: no"),
        f'{{"kind":"retry","id":null,{_SINCE},{_UNTIL},"reason":"ValueError: no"}}',
    ),
    (
        DepsWait(NOW),
        f'{{"kind":"deps","id":null,{_SINCE},"until":null,"reason":"This run was started with deps that only its '
        'process has. Resume it with `agent.resume(thread, deps=…)` or give the agent a deps factory."}',
    ),
    (
        ApprovalWait(NOW, call_id="c1", key="k1", name="pay").of_member(RUN, "helper"),
        f'{{"kind":"approval","id":"c1",{_SINCE},"until":null,"key":"k1","name":"pay","run":"{RUN}","agent":"helper"}}',
    ),
    (
        InDoubtWait(NOW, call_id="c1", key="k1", name="pay", agent="clerk").of_member(RUN, "helper"),
        f'{{"kind":"doubt","id":"c1",{_SINCE},"until":null,"key":"k1","name":"pay","agent":"clerk","run":"{RUN}"}}',
    ),
]


@pytest.mark.parametrize(("wait", "stored"), STORED)
def test_pins_stored_json_of_each_kind(wait: Wait, stored: str) -> None:
    assert codec.dumps(wait.as_json()).decode() == stored
    parsed = parse_wait(codec.loads(stored))
    assert (type(parsed), parsed) == (type(wait), wait)


def test_tests_pin_every_class() -> None:
    def leaves(cls: type[Wait]) -> set[type[Wait]]:
        return {leaf for sub in cls.__subclasses__() for leaf in leaves(sub)} or {cls}

    assert {type(wait) for wait, _ in STORED} == leaves(Wait)
    assert len(leaves(Wait)) == 9


_VALUES = st.none() | st.text(max_size=10) | st.integers() | st.lists(st.text(max_size=5), max_size=3)
_KEYS = st.sampled_from(["id", "since", "until", "run", "key", "name", "agent", "ids", "reason"]) | st.text(max_size=8)
_KINDS = st.sampled_from(["approval", "doubt", "input", "frontend_tools", "children", "timer", "retry"]) | st.text(
    max_size=10
)


@given(st.lists(st.builds(lambda kind, more: {**more, "kind": kind}, _KINDS, st.dictionaries(_KEYS, _VALUES))))
def test_stores_parsed_waits_again_unchanged(waiting_for: list[Json]) -> None:
    head = Thread(waiting_for=waiting_for, created_at=NOW, updated_at=NOW)
    before = codec.dumps(waiting_for)

    assert codec.dumps([wait.as_json() for wait in head.waits]) == before
    assert codec.dumps([wait.as_json() for wait in parse_waits(head.waiting_for)]) == before
    for wait in head.waits:
        assert isinstance(wait.is_rest, bool)
        assert not (wait.needs_person and wait.is_rest)
        assert isinstance(wait.since, datetime | None)
        assert isinstance(wait.until, datetime | None)
        assert isinstance(wait.run_id, UUID | None)


def test_keeps_unknown_kind_and_fields_of_later_versions() -> None:
    stored = {"kind": "vote", "quorum": 3}
    wait = parse_wait(stored)

    assert (type(wait), wait.kind, wait.as_json()) == (Wait, "vote", stored)
    assert (wait.since, wait.until, wait.call_id, wait.run_id, wait.needs_person, wait.is_rest) == (
        *[None] * 4,
        False,
        False,
    )
    assert parse_wait({"kind": "approval", "id": "c", "quorum": 3}).as_json()["quorum"] == 3


def test_input_is_a_question_if_it_names_a_call() -> None:
    assert type(parse_wait({"kind": "input", "id": "c1"})) is QuestionWait
    assert type(parse_wait({"kind": "input", "id": None})) is NextMessageWait
    assert type(parse_wait({"kind": "input"})) is NextMessageWait


def test_classifies_waits() -> None:
    waits = [wait for wait, _ in STORED]

    assert {type(wait) for wait in waits if wait.needs_person} == {
        ApprovalWait,
        InDoubtWait,
        QuestionWait,
        FrontendToolWait,
    }
    assert {wait.kind for wait in waits if wait.needs_person} == PERSON_WAIT_KINDS
    rests = [wait for wait in waits if wait.is_rest]
    assert [type(wait) for wait in rests] == [NextMessageWait, RetryWait]
    assert rests[1].until == UNTIL
    assert [wait for wait in waits if wait not in without_next_message(waits)] == [NextMessageWait(NOW)]


def test_lists_person_waits_longest_first() -> None:
    late = ApprovalWait(UNTIL, call_id="c1", key="k1", name="pay")
    early = FrontendToolWait(NOW, call_id="c2", key="k2", name="form")
    waits = [late, TimerWait(NOW - timedelta(days=1), until=UNTIL), early, NextMessageWait(NOW)]

    assert person_waits(waits) == [early, late]
    assert awaiting_person_since(waits) == NOW
    assert awaiting_person_since(waits[1:2]) is None
    assert awaiting_person_since([parse_wait({"kind": "approval"})]) is None


def test_reads_fields() -> None:
    wait = ApprovalWait(NOW, call_id="c1", key="k1", name="pay").of_member(RUN, "helper")

    assert (wait.kind, wait.since, wait.until, wait.call_id, wait.key, wait.name, wait.run_id, wait.agent) == (
        "approval",
        NOW,
        None,
        "c1",
        "k1",
        "pay",
        RUN,
        "helper",
    )
    assert wait.names("c1")
    assert wait.names("k1")
    assert not wait.names("c2")
    assert wait.of_member(UUID(int=1), "other") == wait, "the innermost run waits"
    assert parse_wait({"kind": "timer", "since": "soon"}).since is None


def test_removes_child_that_has_reported() -> None:
    wait = ChildrenWait(NOW, child_ids=["a", "b"], until=UNTIL)
    remaining = wait.without("a")

    assert (remaining.child_ids, remaining.any_child, remaining.until) == (["b"], False, UNTIL)
    assert wait.child_ids == ["a", "b"]
    every = ChildrenWait.of_json({"kind": "children"})
    assert every.without("a") is every


def test_parses_waits_of_thread_once_and_not_into_its_fields() -> None:
    head = Thread(waiting_for=[NextMessageWait(NOW).as_json()], created_at=NOW, updated_at=NOW)
    same = head.changed()
    fields = set(head.as_json())

    assert head.waits is head.waits
    assert head == same
    assert set(head.as_json()) == fields
    assert head.changed(waiting_for=[]).waits == ()
