"""Citations in answers."""

import pytest

from lockstitch.apps.notebooks.citations import cited_numbers, mentions


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("The Wild Robot [1].", [1]),
        ("Both say so [2][1], and again [2].", [2, 1]),
        ("Robots[3] and gulls [4, 5; 6] and [7 and 8].", [3, 4, 5, 6, 7, 8]),
        ("From [2-4] or [9\u201311].", [2, 3, 4, 9, 10, 11]),
        ("As in 【12†source】.", [12]),
        ("`list[1]` and ```\n[2]\n``` but [3]: so", [3]),
        ("[1](https://example.org) and ![2] and \\[3]", []),
        ("[1]: https://example.org", []),
        ("[0] [] [x] [12345] [9-2]", [9, 2]),
        ("no citations", []),
    ],
)
def test_reads_citation_numbers_of_an_answer(answer: str, numbers: list[int]) -> None:
    assert cited_numbers(answer) == numbers


def test_mention_has_its_range() -> None:
    answer = "Robots [1, 2]."
    (mention,) = mentions(answer)
    assert (answer[mention.start : mention.end], mention.numbers) == ("[1, 2]", (1, 2))
