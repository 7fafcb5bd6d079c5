"""A process is killed after each commit of a session. Another one continues: nothing is lost or doubled."""

import json
import subprocess
import sys


def test_session_continues_after_kill_at_any_commit(store_url: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.adk.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) == 6, "the creation and each event have a commit; the last process is not killed"
    for point in points:
        assert point["authors"] == ["user", "helper", "helper", "helper"]
        assert point["state"] == {"asked": 2, "user:sums": 1, "user:visits": 1}
        assert point["types"] == ["input", "llm_call", "tool_call", "tool_call", "llm_call"]
        assert point["runs"] == [["completed", 2, 30]]
