"""The page about notebooks says what is so."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "notebooks.md").read_text()


def test_the_program_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "asyncio.run" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "notebooks.md", "exec"), {})
    said = capsys.readouterr().out
    assert "80 short chapters" in said
    assert "1 list.md Shelf C, line 3" in said
