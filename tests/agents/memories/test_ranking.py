"""Texts are ranked by the words that they share with a query."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.memories import ranked, words
from tests.model.properties import quick

texts = st.lists(st.text("ab c.", max_size=9), max_size=8)


def test_rare_words_decide() -> None:
    texts = ["The dog likes the garden.", "The user likes tea.", "The user likes the sea and tea in the garden."]

    assert ranked("Does the dog like it?", texts)[0] == 0
    assert ranked("garden tea", texts)[0] == 2
    assert ranked("Zebra", texts) == []
    assert ranked("", texts) == []
    assert ranked("tea", []) == []


def test_words_are_found_in_any_script() -> None:
    assert words("Größe, größe! (2x)") == {"grösse", "2x"}
    assert words("snake_case") == {"snake", "case"}
    assert ranked("東京の天気は?", ["彼は東京に住んでいる", "He likes tea"]) == [0]


@quick
@given(st.text("ab c", max_size=9), texts, st.integers(0, 99))
def test_order_is_by_score_then_by_position(query: str, texts: list[str], seed: int) -> None:
    order = ranked(query, texts)

    assert sorted(order) == [place for place, text in enumerate(texts) if words(query) & words(text)]
    # Equal texts keep their order.
    assert all(first < second for first, second in pairwise(order) if texts[first] == texts[second])
    mixed = list(enumerate(texts))
    random.Random(seed).shuffle(mixed)
    second_order = [mixed[place][1] for place in ranked(query, [text for _, text in mixed])]
    assert sorted(second_order) == sorted(texts[place] for place in order)
