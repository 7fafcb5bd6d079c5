"""A process is killed after each commit of a session. Another one continues: nothing is lost or doubled."""

import json
import subprocess
import sys


def test_session_continues_after_kill_at_any_commit(store_url: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.agno.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) == 7, "each write has a commit; the last process is not killed"
    turn = ["input", "llm_call", "tool_call", "tool_call", "llm_call"]
    for point in points:
        assert point["runs"] == ["run-1", "run-2"]
        assert point["types"] == ["agno_message", *turn, *turn]
        assert point["records"] == [["completed", 2, 20], ["completed", 2, 20]]
        assert point["trace"] == {"n": 1}
