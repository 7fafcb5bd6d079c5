"""The README says nothing that is not true: its example runs, its commands exist."""

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
    """What an example of the README prints, without a network."""
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


def test_the_example_of_an_agent_runs(tmp_path: Path) -> None:
    assert MODEL in README
    told = example(0, tmp_path)
    assert "completed Ada has mail." in told
    assert "Bob has mail too." in told
    command = ("-m", "lockstitch", "run", "helper", "Hi", "--thread", "k", "--app", "letters:app")
    assert example(0, tmp_path, *command) == "Ada has mail.\n"


def test_the_example_of_the_record_runs(tmp_path: Path) -> None:
    assert "Where is my invoice? → In your mail since Monday." in example(1, tmp_path)


def test_the_commands_and_links_exist(call: Call) -> None:
    told = call("--help").out
    commands = set(re.findall(r"^lockstitch (\w+)", README, re.MULTILINE))
    assert commands
    assert all(re.search(rf"^\W*{command}\b", told, re.MULTILINE) for command in commands)
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= targets
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
