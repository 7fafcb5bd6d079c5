"""A process is killed after each commit. Another one continues: nothing is lost, and nothing is doubled."""

import json
import subprocess
import sys

from tests.integrations.pydantic_ai.agents import SUM


def test_conversation_continues_after_kill_at_any_commit(store_url: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.pydantic_ai.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) == 6, "five commits, and none"
    history = [*SUM, "hi", "You said hi."]
    for point in points:
        assert point["texts"] == history, point
        assert point["context"] == [text for text in history if text != "5"], point
        assert point["runs"] == ["completed"] * 3, point
        assert point["rest"] == [0, 1], point
