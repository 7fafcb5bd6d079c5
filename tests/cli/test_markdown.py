"""`MarkdownStream`: blocks of a streamed answer are rendered once they are complete."""

import io
import re

import pytest
from rich.console import Console

from lockstitch.cli.render.markdown import MarkdownStream

TOKEN = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])|([^\x1b])")
TEXT = "# Title\n\nSome **bold** text.\n\n```sh\none\n\ntwo\n```\n\n- a\n\n  more\n- b\n\n[name](http://x.example)"


def rendered(*parts: str) -> list[str]:
    """Return the lines of the screen after an answer in these parts."""
    file = io.StringIO()
    stream = MarkdownStream(Console(file=file, force_terminal=True, width=40, legacy_windows=False))
    for part in parts:
        stream.feed(part)
    stream.end()
    rows, row, column = [""], 0, 0
    for count, action, character in TOKEN.findall(file.getvalue()):
        if action == "A":
            row -= int(count or 1)
        elif action == "K":
            rows[row] = ""
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif character:
            rows[row] = f"{rows[row][:column]:<{column}}{character}{rows[row][column + 1 :]}"
            column += 1
    return [line.strip("┃┏┓┗┛━ ") for line in rows if line.strip("┃┏┓┗┛━ ")]


@pytest.mark.parametrize("size", [1, 7, len(TEXT)])
def test_renders_each_block_once(size: int) -> None:
    lines = rendered(*(TEXT[start : start + size] for start in range(0, len(TEXT), size)))
    expected = ["Title", "Some bold text.", "one", "two", "• a", "more", "• b", "name (http://x.example)"]
    assert lines == expected


def test_code_block_ends_at_its_fence() -> None:
    assert rendered("```\n**a**\n\n**b**\n") == ["**a**", "**b**"]
    assert rendered("~~~\n```\n\n**a**\n~~~\n\n**b**") == ["```", "**a**", "b"]
