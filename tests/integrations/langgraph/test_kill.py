"""A process is killed after each commit of a graph. Another one continues: nothing is lost, and nothing is doubled."""

import json
import subprocess
import sys

from tests.integrations.langgraph.test_saver import SUM


def test_graph_continues_after_kill_at_any_commit(store_url: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.langgraph.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) == 10, "each checkpoint and each task has a commit"
    for point in points:
        assert point["texts"] == SUM, point
        assert point["types"] == ["input", "llm_call", "tool_call", "llm_call"], point
        assert point["runs"] == [["completed", 2, 40]], point
