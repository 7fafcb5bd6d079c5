"""A process is killed before and after each commit of a session. Another one imports the session again."""

import json
import subprocess
import sys


def test_session_is_whole_after_kill_at_any_commit(store_url: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.claude_agents.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) == 6, "three commits"
    for point in points:
        assert point["whole"], point
        assert point["runs"] == [["completed", 246, 36], ["completed", 123, 4]], point
