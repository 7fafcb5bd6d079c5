"""A summary of the model replaces older turns."""

from typing import Any

import pytest

from lockstitch.agents.compactors.strategies import HEADING, SummarizingCompactor
from lockstitch.model import context
from tests.agents.compactors.compacting import Summarizer, apply, chat, compact, long_run
from tests.model.test_fold import assert_valid


@pytest.mark.req("S0-126")
def test_summary_replaces_older_turns_and_feeds_next_summary() -> None:
    log = chat(turns=6)
    before = context(log.stitches)
    summarizer = Summarizer()
    compactor = SummarizingCompactor(threshold=1_000, keep_turns=2)

    first = compact(compactor, log.stitches, summarizer=summarizer)
    assert first is not None
    after = apply(log, first)

    summary = {"role": "user", "content": f"{HEADING}a summary of 16 messages"}
    assert after == [before[0], summary, *before[16:]]
    assert summarizer.asked == [before[:16]]
    assert (first.removed, first.modified) == (14, 1)
    assert len(first.replace) == 1

    log.turn(None)
    log.respond(None, 0)
    second = compact(compactor, log.stitches, summarizer=summarizer)
    assert second is not None
    second_messages = apply(log, second)

    assert summarizer.asked[1] == [before[0], summary, *before[16:20]]
    assert second_messages[0] == before[0]
    assert second_messages[1]["content"].startswith(HEADING)
    assert second_messages[2:] == [*before[20:], *context(log.stitches)[-2:]]


def test_summarizes_steps_of_long_run() -> None:
    log = long_run(steps=10)
    before = context(log.stitches)

    compacted = compact(SummarizingCompactor(threshold=0, keep_turns=3), log.stitches)

    assert compacted is not None
    after = apply(log, compacted)
    assert_valid(after)
    assert after == [before[0], {"role": "user", "content": f"{HEADING}a summary of 15 messages"}, *before[-6:]]


def test_does_not_summarize_summary_alone() -> None:
    log = long_run(steps=10)
    compactor = SummarizingCompactor(threshold=0, keep_turns=3)
    compacted: Any = compact(compactor, log.stitches)
    apply(log, compacted)
    summarizer = Summarizer()

    assert compact(compactor, log.stitches, summarizer=summarizer) is None
    assert summarizer.asked == []


def test_does_not_call_model_at_threshold() -> None:
    summarizer = Summarizer()

    assert compact(SummarizingCompactor(), chat(turns=9).stitches, summarizer=summarizer) is None
    assert summarizer.asked == []


@pytest.mark.parametrize("text", ["", "  \n"])
def test_empty_summary_leaves_context_unchanged(text: str) -> None:
    assert compact(SummarizingCompactor(threshold=0), long_run(9).stitches, summarizer=Summarizer(text)) is None


def test_cuts_summary_longer_than_replaced_messages() -> None:
    log = chat(turns=6, length=100)
    compacted = compact(
        SummarizingCompactor(threshold=0, keep_turns=1), log.stitches, summarizer=Summarizer("word " * 9_000)
    )

    assert compacted is not None
    [summary] = compacted.replace.values()
    assert summary["content"].startswith(f"{HEADING}word word")
    assert len(summary["content"]) < 5_000
