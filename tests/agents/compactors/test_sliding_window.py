"""The sliding window shrinks old messages in stages, and stops when the context is small enough."""

from typing import Any

import pytest

from lockstitch.agents.compactors.strategies import PLACEHOLDER, SlidingWindowCompactor
from lockstitch.engine.usage import estimate_all
from lockstitch.model import context
from lockstitch.model.message import blocks
from tests.agents.compactors.compacting import OVERHEAD, Summarizer, apply, chat, compact, long_run, results
from tests.agents.compactors.test_tool_result_removal import contents
from tests.model.logs import Log
from tests.model.test_fold import assert_valid


def thoughtful(log: Log) -> Log:
    """Return a log in which every response starts with thinking."""
    for place, stitch in enumerate(log.stitches):
        if stitch.type == "llm_call" and stitch.message:
            thinking = {"type": "thinking", "thinking": "h" * 2_000, "signature": "s"}
            message = {**stitch.message, "content": [thinking, *blocks(stitch.message)]}
            log.stitches[place] = stitch.changed(message=message)
    return log


def kinds(message: Any) -> list[str]:
    return [block["type"] for block in blocks(message)]


def form(content: str) -> str:
    """Return the form of a result: complete, cut or removed."""
    return "." if content == PLACEHOLDER else "W" if len(content) > 4_000 else "c"


def compacted_to(log: Log, threshold: int, **parameters: Any) -> list[Any]:
    compacted = compact(SlidingWindowCompactor(threshold=threshold, **parameters), log.stitches)
    assert compacted is not None
    after = apply(log, compacted)
    assert_valid(after)
    assert OVERHEAD + estimate_all(after) == compacted.tokens <= threshold
    return after


@pytest.mark.req("S0-126")
@pytest.mark.parametrize(
    ("threshold", "thinking", "content", "messages"),
    [
        (20_000, 12, "WWWWWW", 24),
        (9_000, 4, "WWWWWW", 24),
        (6_000, 4, "ccccWW", 24),
        (5_050, 4, "....WW", 24),
        (4_800, 4, ".WW", 13),
    ],
)
def test_stops_when_below_threshold(threshold: int, thinking: int, content: str, messages: int) -> None:
    """The stages: unchanged, without thinking, results cut, results replaced, turns removed."""
    log = thoughtful(chat(turns=6))
    before = context(log.stitches)
    compactor = SlidingWindowCompactor(threshold=threshold, keep_turns=2, result_characters=500)
    compacted = compact(compactor, log.stitches)
    after = apply(log, compacted) if compacted else before

    assert sum(kind == "thinking" for message in after for kind in kinds(message)) == thinking
    assert (
        "".join("." if text == PLACEHOLDER else "W" if len(text) > 4_000 else "c" for text in contents(after))
        == content
    )
    assert len(after) == messages
    assert after[-8:] == before[-8:]
    assert after[0] == before[0]


def test_removes_oldest_turns_first() -> None:
    log = chat(turns=8, length=20)
    before = context(log.stitches)
    after = compacted_to(log, 1_050, keep_turns=3, result_characters=10_000)

    removed = len(before) - len(after)
    assert 0 < removed < 20
    assert after == [before[0], *before[removed + 1 :]]


def test_shrinks_long_run_of_one_turn() -> None:
    log = long_run(steps=20)
    before = context(log.stitches)

    after = compacted_to(log, 5_000, keep_turns=3)

    assert after[0] == before[0]
    assert after[-6:] == before[-6:]
    assert [len(text) > 3_000 for text in contents(after)[-4:]] == [False, True, True, True]


def test_keeps_response_with_only_thinking() -> None:
    log = chat(turns=3)
    log.stitches[1] = log.stitches[1].changed(
        type="llm_call", calls=None, message={"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}]}
    )
    log.stitches[2] = log.stitches[2].changed(type="api_retry", reply_to=None, message=None)

    compacted = compact(SlidingWindowCompactor(threshold=0, keep_turns=10), log.stitches)

    assert compacted is None


def test_requests_no_summary() -> None:
    summarizer = Summarizer()
    log = long_run(steps=9)

    compact(SlidingWindowCompactor(threshold=0), log.stitches, summarizer=summarizer)

    assert summarizer.asked == []
    assert [len(results(message)) for message in context(log.stitches)][:3] == [0, 0, 1]
