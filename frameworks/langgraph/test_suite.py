"""LangGraph's own conformance suite for checkpointers, with the newest and a pinned version of LangGraph."""

import subprocess

import pytest

from frameworks.environments import ROOT, python_of

CONFORMANCE = "langgraph-checkpoint-conformance==0.0.2"
VERSIONS = {
    "newest": ("langgraph", CONFORMANCE),
    "pinned": ("langgraph==1.2.20", "langgraph-checkpoint==4.3.1", CONFORMANCE),
}


@pytest.mark.parametrize("versions", VERSIONS)
def test_every_test_passes(versions: str) -> None:
    python = python_of(f"langgraph-{versions}", VERSIONS[versions])
    command = [python, "-m", "frameworks.langgraph.suite"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "langgraph: passed 324 of 324"
