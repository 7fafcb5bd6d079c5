"""The suite of the conversation store on all backends, with the newest and a pinned version of pydantic-ai.

pydantic-ai has no suite for conversation stores, so this is ours, `tests/integrations/pydantic_ai`.
"""

import subprocess

import pytest

from frameworks.environments import ROOT, python_of

TEST_PACKAGES = ("anyio", "hypothesis", "httpx2", "pytest")
VERSIONS = {"newest": "pydantic-ai-slim", "pinned": "pydantic-ai-slim==2.66.0"}


@pytest.mark.parametrize("versions", VERSIONS)
def test_every_test_passes(versions: str) -> None:
    python = python_of(f"pydantic-ai-{versions}", [VERSIONS[versions], *TEST_PACKAGES])
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/integrations/pydantic_ai"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
