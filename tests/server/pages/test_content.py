"""Markdown as nodes, in linear time."""

import re
from collections.abc import Callable

import pytest

from lockstitch.server.pages.common import content
from lockstitch.server.pages.common.content import markdown_blocks
from tests.work import assert_linear, lines, steps

PATTERNS = {name: value for name, value in vars(content).items() if isinstance(value, re.Pattern)}

TEXTS: dict[str, Callable[[int], str]] = {
    "heading of marks": lambda n: "# " + "#" * n + "x",
    "heading of spaced marks": lambda n: "# " + "# " * n + "x",
    "heading with a gap": lambda n: "# a" + " " * n + "b",
    "heading of spaces": lambda n: "#" + " " * n + "x",
    "bullet of spaces": lambda n: "-" + " " * n + "x",
    "number of spaces": lambda n: "1." + " " * n + "x",
    "long fence": lambda n: "`" * n + "\n" + "~" * n,
    "open code": lambda n: "`a\n" * n,
    "open bold": lambda n: "**a " * n,
    "stars": lambda n: "*" * n,
    "open emphasis": lambda n: " *a" * n,
    "emphasis in words": lambda n: "a*a" * n,
    "brackets": lambda n: "[" * n,
    "open links": lambda n: "[a](" * n,
    "open addresses": lambda n: "[a](http://" * n,
    "addresses": lambda n: "http://" * n,
    "points": lambda n: "http://" + "." * n,
}


@pytest.mark.parametrize("name", TEXTS)
def test_patterns_read_each_character_a_bounded_number_of_times(name: str) -> None:
    for pattern in PATTERNS.values():
        assert_linear(lambda size, pattern=pattern: steps(pattern, TEXTS[name](size)), sizes=(100, 200, 400))


@pytest.mark.parametrize(
    "text",
    [
        "- a\n",
        "- a\n  b\n",
        "1. a\n",
        "```\na\n",
        "~~~\n```\n",
        "a\n",
        "# a\n",
        "> a\n",
        "a\n\n",
        "  - a\n",
        "**a** `b` ",
    ],
)
def test_blocks_are_read_once(text: str) -> None:
    assert_linear(lambda size: lines(lambda: markdown_blocks(text * size)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Title", "Title"),
        ("## Title ##", "Title"),
        ("# Title#", "Title"),
        ("#   a # b  ###", "a # b"),
        ("# a # #", "a #"),
        ("# #", ""),
        ("   ###### deep", "deep"),
    ],
)
def test_heading_loses_its_closing_marks(text: str, said: str) -> None:
    (block,) = markdown_blocks(text)
    assert (block.kind, "".join(text for _, text, _ in block.items[0])) == ("h", said)
