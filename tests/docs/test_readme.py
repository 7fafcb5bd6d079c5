"""The README says nothing that is not true: its example runs, its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Where is my invoice? → In your mail since Monday." in done.stdout


def test_the_commands_and_links_exist() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstitch", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    commands = set(re.findall(r"^lockstitch (\w+)", README, re.MULTILINE))
    assert commands
    assert all(re.search(rf"^\W*{command}\b", done.stdout, re.MULTILINE) for command in commands)
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= targets
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
