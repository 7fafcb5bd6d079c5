"""The program in docs/howto/notebooks.md."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "notebooks.md").read_text()


def test_runs_program_of_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "asyncio.run" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "notebooks.md", "exec"), {})
    output = capsys.readouterr().out
    assert "80 short chapters" in output
    assert "1 list.md Shelf C, line 3" in output
