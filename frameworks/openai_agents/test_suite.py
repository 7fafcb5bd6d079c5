"""`LockstitchSession` with the newest and a pinned version of the SDK: our tests with its runs, and the page."""

import os
import subprocess
from pathlib import Path

import pytest

from frameworks.environments import ROOT, python_of
from tests.docs.pages import DOCS, blocks, matches

TOOLS = (
    "openai>=3.49",
    "genai-prices>=0.2.1",
    "pytest>=8.4",
    "anyio",
    "hypothesis",
    "pytest-asyncio",
    "inline-snapshot",
)
VERSIONS = {"newest": ("openai-agents", *TOOLS), "pinned": ("openai-agents==0.24.0", *TOOLS)}


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of an environment with a version of the SDK."""
    return python_of(f"openai-agents-{request.param}", VERSIONS[request.param])


def test_sessions_work_with_runs_of_the_sdk(python: Path) -> None:
    result = _pytest(python, "frameworks/openai_agents/sdk_suite.py")
    assert result.returncode == 0, result.stdout


def test_page_does_what_it_says(python: Path, tmp_path: Path) -> None:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    page = blocks(DOCS / "howto" / "openai-agents.md")
    for block, following in zip(page, [*page[1:], None], strict=True):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.code)
        elif block.runs:
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.code],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.returncode == 0, f"line {block.line}: {result.stderr}"
            assert following is not None
            assert matches(following.code, result.stdout), f"line {block.line}: {result.stdout}"


def _pytest(python: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
