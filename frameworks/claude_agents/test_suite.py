"""The conformance suite of the Claude Agent SDK and Claude Code itself, with the newest and a pinned version."""

import subprocess

import pytest

from frameworks.environments import ROOT, python_of

VERSIONS = {
    "newest": ("claude-agent-sdk", "genai-prices"),
    "pinned": ("claude-agent-sdk==0.2.182", "genai-prices"),
}


@pytest.mark.parametrize("versions", VERSIONS)
def test_every_test_passes(versions: str) -> None:
    python = python_of(f"claude-agents-{versions}", VERSIONS[versions])
    command = [python, "-m", "frameworks.claude_agents.suite"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "claude-agents: passed 42 of 42"
