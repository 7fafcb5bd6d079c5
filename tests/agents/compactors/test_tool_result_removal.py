"""Above the threshold, old tool results are removed. All other messages stay."""

from typing import Any

import pytest

from lockstitch.agents.compactors.strategies import PLACEHOLDER, ToolResultRemovalCompactor
from lockstitch.engine.ports.compactor import NoCompactor
from lockstitch.model import context
from tests.agents.compactors.compacting import apply, chat, compact, results


def contents(messages: list[Any]) -> list[Any]:
    return [block["content"] for message in messages for block in results(message)]


@pytest.mark.req("S0-125")
def test_replaces_old_results_above_threshold_unless_disabled() -> None:
    log = chat(turns=5, calls=2)
    before = context(log.stitches)
    compactor = ToolResultRemovalCompactor(threshold=8_000, keep=3)

    assert compact(NoCompactor(), log.stitches) is None
    assert NoCompactor().threshold is None
    compacted = compact(compactor, log.stitches)
    assert compacted is not None
    after = apply(log, compacted)

    assert contents(after) == [PLACEHOLDER] * 7 + contents(before)[7:]
    assert [result["tool_use_id"] for m in after for result in results(m)] == [
        result["tool_use_id"] for m in before for result in results(m)
    ]
    assert [m for m in after if not results(m)] == [m for m in before if not results(m)]
    assert compact(compactor, log.stitches) is None


def test_does_nothing_at_threshold() -> None:
    log = chat(turns=3)

    assert compact(ToolResultRemovalCompactor(threshold=4_000), log.stitches) is None
    assert compact(ToolResultRemovalCompactor(), log.stitches) is None
    assert ToolResultRemovalCompactor().threshold == 100_000


def test_keeps_small_results_and_error_flags() -> None:
    log = chat(turns=3, length=5)
    log.respond(None, 1)
    here = len(log.stitches)
    log.answer((here, 0))
    block = log.stitches[-1].message or {}
    log.stitches[-1] = log.stitches[-1].changed(message={**block, "is_error": True, "content": "x" * 900})

    compacted = compact(ToolResultRemovalCompactor(threshold=0, keep=0), log.stitches)

    assert compacted is not None
    assert compacted.replace == {here + 1: {**block, "is_error": True, "content": PLACEHOLDER}}
    assert compacted.modified == 1


def test_keeps_replacements_of_earlier_compaction() -> None:
    log = chat(turns=3)
    compactor = ToolResultRemovalCompactor(threshold=0, keep=1)
    first = compact(compactor, log.stitches)
    assert first is not None
    apply(log, first)
    log.stitches += [
        stitch.changed(
            position=stitch.position + 13,
            reply_to=stitch.reply_to and stitch.reply_to + 13,
        )
        for stitch in chat(turns=1).stitches
    ]

    second = compact(compactor, log.stitches)

    assert second is not None
    assert first.replace.items() < second.replace.items()
    assert contents(apply(log, second))[:3] == [PLACEHOLDER] * 3
