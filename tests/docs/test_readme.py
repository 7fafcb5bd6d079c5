"""The README: its examples run, its commands and links exist."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.calling import Call

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


MODEL = "anthropic:claude-sonnet-5"
SCRIPT = [
    [{"calls": [{"name": "send_mail", "input": {"to": "Ada", "body": "Dear Ada"}}]}, "Ada has mail."],
    ["Bob has mail too."],
]


def example(number: int, folder: Path, *arguments: str) -> str:
    """Run an example of the README with a scripted model and return its output."""
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[number]
    (folder / "script.json").write_text(json.dumps({"replies": SCRIPT, "beside": {"title": "Letters"}}))
    (folder / "letters.py").write_text(code.replace(MODEL, "scripted:script.json"))
    done = subprocess.run(
        [sys.executable, *(arguments or ("letters.py",))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_runs_example_of_agent(tmp_path: Path) -> None:
    assert MODEL in README
    output = example(0, tmp_path)
    assert "completed Ada has mail." in output
    assert "Bob has mail too." in output
    command = ("-m", "lockstitch", "run", "helper", "Hi", "--thread", "k", "--app", "letters:app")
    assert example(0, tmp_path, *command) == "Ada has mail.\n"


def test_runs_example_of_record(tmp_path: Path) -> None:
    assert "Where is my invoice? → In your mail since Monday." in example(1, tmp_path)


def test_finds_commands_and_links(call: Call) -> None:
    help_text = call("--help").out
    commands = set(re.findall(r"^lockstitch (\w+)", README, re.MULTILINE))
    assert commands
    assert all(re.search(rf"^\W*{command}\b", help_text, re.MULTILINE) for command in commands)
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= targets
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
