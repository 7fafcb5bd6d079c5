"""Markdown as nodes, in linear time."""

import re
from collections.abc import Callable

import pytest
from jinja2 import Environment, PackageLoader

from lockstitch.server.pages.common import markdown
from lockstitch.server.pages.common.content import answer_line
from lockstitch.server.pages.common.markdown import markdown_blocks
from tests.work import assert_linear, lines, steps

PATTERNS = {name: value for name, value in vars(markdown).items() if isinstance(value, re.Pattern)}

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


def rendered(text: str) -> str:
    """Return the HTML that a page shows for a Markdown text."""
    environment = Environment(
        loader=PackageLoader("lockstitch.server", "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    html = str(environment.get_template("markdown.html").module.text(markdown_blocks(text)))  # pyright: ignore[reportAttributeAccessIssue]
    return html.removeprefix('<div class="say">').removesuffix("</div>")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Title\ntext", '<p class="strong">Title</p><p>text</p>'),
        ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
        ("- a\n  - b\n    1. c\n- d", '<ul><li>a<ul><li>b<ol start="1"><li>c</li></ol></li></ul></li><li>d</li></ul>'),
        ("7. a\n\n   b\n8. c", '<ol start="7"><li>a<p>b</p></li><li>c</li></ol>'),
        ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
        (
            "| a | b |\n|---|:-:|\n| *1* | <i> |",
            '<div class="scroll"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
            "<tbody><tr><td><em>1</em></td><td>&lt;i&gt;</td></tr></tbody></table></div>",
        ),
        ("~~a~~ **b** `<c>`\n\n---", "<p><s>a</s> <b>b</b> <code>&lt;c&gt;</code></p><hr>"),
        ("```py\n<x>\n```", '<pre class="code"><code>&lt;x&gt;</code></pre>'),
        (
            "![chart](https://a.example/c.png) (https://b.example/x).",
            '<p><a href="https://a.example/c.png" rel="noopener noreferrer nofollow">chart</a> '
            '(<a href="https://b.example/x" rel="noopener noreferrer nofollow">https://b.example/x</a>).</p>',
        ),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        (
            '[a](https://a.example/"onclick="x)',
            '<p><a href="https://a.example/%22onclick=%22x" rel="noopener noreferrer nofollow">a</a></p>',
        ),
    ],
)
def test_page_shows_markdown_as_escaped_html(text: str, html: str) -> None:
    assert rendered(text) == html


def test_line_of_a_list_has_no_markdown_marks() -> None:
    text = "## Title\n\n**The Wild Robot.** Roz wakes, see [here](https://a.example).\n\n- *one*\n- `two`"
    assert answer_line(text) == "Title The Wild Robot. Roz wakes, see here. one two"
