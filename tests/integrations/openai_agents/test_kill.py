"""A process is killed after each commit of a run. Another one continues: nothing is lost, and nothing is doubled."""

import subprocess
import sys


def victim(*arguments: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.openai_agents.victim", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr


def test_run_continues_after_kill_at_any_commit(store_url: str) -> None:
    victim("kill", store_url)


def test_two_processes_that_add_at_once_lose_nothing(store_url: str) -> None:
    victim("add", store_url)
