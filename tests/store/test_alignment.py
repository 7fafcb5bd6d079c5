"""Aligning two sequences: the same as difflib while it is cheap, and an end to it where it is not."""

from difflib import SequenceMatcher, unified_diff

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.store.reports.alignment import Allowance, align, changed_lines
from tests.work import lines

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


@given(a=WORDS, b=WORDS)
def test_aligns_as_difflib_does(a: list[str], b: list[str]) -> None:
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    stretches = align(a, b, Allowance())
    assert stretches is not None
    assert [(stretch.equal, *stretch[1:]) for stretch in stretches] == [
        (kind == "equal", *places) for kind, *places in codes
    ]


@given(a=WORDS, b=WORDS)
def test_shows_lines_as_unified_diff_does(a: list[str], b: list[str]) -> None:
    assert changed_lines(a, b, Allowance()) == list(unified_diff(a, b, lineterm="", n=1))[2:]


def test_stops_when_the_allowance_is_used_up() -> None:
    a, b = ["x", "y"] * 1_000, ["x", "x", "y", "y"] * 500
    allowance = Allowance(100_000)
    assert align(a, b, allowance) is None
    assert changed_lines(a, b, allowance) is None
    assert align(["x"], ["x"], allowance) is not None


def test_work_does_not_grow_beyond_the_allowance() -> None:
    def work(size: int) -> int:
        a, b = ["x", "y"] * size, ["x", "x", "y", "y"] * (size // 2)
        return lines(lambda: align(a, b, Allowance(10_000)))

    assert work(400) < 30_000
    assert work(800) < 30_000
