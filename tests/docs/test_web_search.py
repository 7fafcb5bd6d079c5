"""The examples in docs/howto/web-search.md."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "web-search.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_creates_its_agents(number: int) -> None:
    exec(compile(EXAMPLES[number], "web-search.md", "exec"), {})
