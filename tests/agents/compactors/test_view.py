"""Properties of every compactor, tested with random logs."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.compactors.view import ContextView
from lockstitch.agents.registry import compactor
from lockstitch.engine.ports.compactor import CompactionInput, Compactor
from lockstitch.engine.usage import estimate_all
from lockstitch.model import context, open_calls
from tests.agents.compactors.compacting import OVERHEAD, Summarizer, apply, compact, enrich, finish, first_said, needed
from tests.model.logs import LANES, Log, logs
from tests.model.properties import thorough
from tests.model.test_fold import assert_valid

lanes = st.sampled_from(LANES)


def prepared(log: Log) -> Log:
    """Start a turn in the thread's own context, because work of members follows a request in that context."""
    log.turn(None)
    return log


rich_logs = st.builds(enrich, logs().map(prepared), st.integers(0, 2**32))
closed_logs = st.builds(enrich, logs(closed=True).map(prepared), st.integers(0, 2**32))

thresholds = st.sampled_from([0, OVERHEAD, 1_000, 3_000])
compactors = st.one_of(
    st.builds(lambda t, keep: compactor("tool_result_removal", threshold=t, keep=keep), thresholds, st.integers(0, 3)),
    st.builds(
        lambda t, turns, characters: compactor(
            "sliding_window", threshold=t, keep_turns=turns, result_characters=characters
        ),
        thresholds,
        st.integers(1, 3),
        st.sampled_from([0, 50, 1_000]),
    ),
    st.builds(lambda t, turns: compactor("summarizing", threshold=t, keep_turns=turns), thresholds, st.integers(1, 3)),
)


@thorough
@given(rich_logs, lanes)
def test_unchanged_view_equals_context(log: Log, lane: UUID | None) -> None:
    view = ContextView(CompactionInput(log.stitches, 10, lane))

    assert view.messages == context(log.stitches, lane)
    assert view.compacted() is None


@pytest.mark.req("S0-124")
@thorough
@given(closed_logs, lanes, compactors)
def test_compacted_context_is_valid_and_starts_with_first_user_message(
    log: Log, lane: UUID | None, candidate: Compactor
) -> None:
    before = context(log.stitches, lane)
    compacted = compact(candidate, log.stitches, lane)
    if compacted is None:
        return

    after = apply(log, compacted, lane)

    assert_valid(after)
    assert first_said(before) is None or first_said(before) in after
    assert not before or before[0] != first_said(before) or after[0] == before[0]


@thorough
@given(rich_logs, lanes, compactors)
def test_compacted_context_has_reported_size(log: Log, lane: UUID | None, candidate: Compactor) -> None:
    before = context(log.stitches, lane)
    compacted = compact(candidate, log.stitches, lane)
    if compacted is None:
        return

    after = apply(log, compacted, lane)

    assert compacted.tokens == OVERHEAD + estimate_all(after) < OVERHEAD + estimate_all(before)
    assert len(after) == len(before) - compacted.removed
    assert len([message for message in after if message not in before]) == compacted.modified
    # A compaction refers to the stitches that stay. It does not copy them.
    stored = [stitch.message for stitch in log.stitches if stitch.message]
    assert not any(new in stored for new in compacted.replace.values())


@thorough
@given(rich_logs, lanes, compactors)
def test_result_depends_only_on_stitches_of_context(log: Log, lane: UUID | None, candidate: Compactor) -> None:
    before = [stitch.as_json() for stitch in log.stitches]
    compacted = compact(candidate, log.stitches, lane)

    assert compact(candidate, needed(log, lane), lane) == compacted
    lane_stitches = [stitch for stitch in log.stitches if stitch.lane == lane]
    assert compact(candidate, lane_stitches, lane) == compacted
    if lane_stitches:
        tokens = OVERHEAD + estimate_all(context(lane_stitches, lane))
        assert finish(candidate.compact(CompactionInput(lane_stitches, tokens), Summarizer())) == compacted
    assert compact(candidate, log.stitches[::-1], lane) == compacted
    assert [stitch.as_json() for stitch in log.stitches] == before


@thorough
@given(rich_logs, compactors, compactors, st.integers(0, 2**32))
def test_continued_thread_is_compacted_again(log: Log, first: Compactor, second: Compactor, seed: int) -> None:
    for candidate in (first, second, second):
        waiting = open_calls(log.stitches)
        compacted = compact(candidate, log.stitches)
        if compacted is not None:
            apply(log, compacted)
            # Open calls stay open.
            assert open_calls(log.stitches) == waiting
        while calls := log.open_calls():
            log.answer(calls[0])
        assert_valid(context(log.stitches))
        log.turn(None)
        log.respond(None, 2)
        log.respond(None, 0)
        enrich_tail(log, seed)
    while calls := log.open_calls():
        log.answer(calls[0])
    assert_valid(context(log.stitches))
    # A reader needs only the last compaction and the stitches to which it refers.
    assert context(needed(log, None)) == context(log.stitches)


def enrich_tail(log: Log, seed: int) -> None:
    tail = Log()
    tail.stitches = log.stitches[-2:]
    log.stitches[-2:] = enrich(tail, seed).stitches


def test_kept_positions_are_few_ranges() -> None:
    log = Log()
    for _ in range(50):
        log.turn(None)
        log.add("run_started")
        log.respond(UUID(int=2), 0)
        log.respond(None, 0)
    compacted: Any = compact(compactor("sliding_window", threshold=900, keep_turns=2), log.stitches)

    assert compacted.keep[0] == (1, 1)
    assert len(compacted.keep) == 2
    assert compacted.keep[1][1] == len(log.stitches)
    assert compacted.replace == {}
