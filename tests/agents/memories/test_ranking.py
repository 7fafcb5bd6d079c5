"""Texts by the words they share."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.memories import ranked, words
from tests.model.properties import quick

texts = st.lists(st.text("ab c.", max_size=9), max_size=8)


def test_rare_words_decide() -> None:
    known = ["The dog likes the garden.", "The user likes tea.", "The user likes the sea and tea in the garden."]

    assert ranked("Does the dog like it?", known)[0] == 0
    assert ranked("garden tea", known)[0] == 2
    assert ranked("Zebra", known) == []
    assert ranked("", known) == []
    assert ranked("tea", []) == []


def test_words_are_found_in_any_script() -> None:
    assert words("Größe, größe! (2x)") == {"grösse", "2x"}
    assert words("snake_case") == {"snake", "case"}
    assert ranked("東京の天気は?", ["彼は東京に住んでいる", "He likes tea"]) == [0]


@quick
@given(st.text("ab c", max_size=9), texts, st.integers(0, 99))
def test_order_is_by_score_then_by_position(query: str, known: list[str], seed: int) -> None:
    order = ranked(query, known)

    assert sorted(order) == [place for place, text in enumerate(known) if words(query) & words(text)]
    # Equal texts keep their order.
    assert all(one < two for one, two in pairwise(order) if known[one] == known[two])
    mixed = list(enumerate(known))
    random.Random(seed).shuffle(mixed)
    again = [mixed[place][1] for place in ranked(query, [text for _, text in mixed])]
    assert sorted(again) == sorted(known[place] for place in order)
