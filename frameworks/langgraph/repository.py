"""`outcomes`: run LangGraph's own tests of graphs, with its own savers or with those of Lockstitch.

The tests are in the repository of LangGraph only. `LOCKSTITCH_LANGGRAPH_REPOSITORY` can name another clone of it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from frameworks.environments import FOLDER, ROOT

REPOSITORY: Final = os.environ.get("LOCKSTITCH_LANGGRAPH_REPOSITORY", "https://github.com/langchain-ai/langgraph")
COMMIT: Final = "f09cfe8ff"
VERSION: Final = "1.2.11"
"""Version of LangGraph at this commit."""

PACKAGES: Final = (
    *("langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "langgraph-cli[inmem]", "pycryptodome"),
    *("httpx", "pytest", "pytest-mock", "pytest-repeat", "redis", "syrupy", "uvloop"),
)
"""Requirements of the tests."""

FILES: Final = ("test_pregel", "test_time_travel", "test_subgraph_persistence")
"""Start of the names of the files with tests."""

SELECTED: Final = "sqlite or in_memory"
"""Tests with a saver of SQLite or with a memory. The other ones use nothing of Lockstitch."""


def tests() -> Path:
    """Return a folder with the tests and without the code of LangGraph. Fetch them if they are missing."""
    folder = FOLDER / "langgraph-repository"
    part = "libs/langgraph"
    if not (folder / part).is_dir():
        clone = FOLDER / "langgraph-clone"
        shutil.rmtree(clone, ignore_errors=True)
        clone_tests = ["git", "clone", "--quiet", "--no-checkout", REPOSITORY, str(clone)]
        subprocess.run(clone_tests, check=True)
        folder.mkdir(parents=True, exist_ok=True)
        archive = ["git", "-C", str(clone), "archive", COMMIT, f"{part}/tests", f"{part}/pyproject.toml"]
        content = subprocess.run(archive, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=content, check=True)
        shutil.rmtree(clone)
    return folder / part


def outcomes(python: Path, *, swapped: bool, only: Iterable[str] = ()) -> tuple[set[str], set[str]]:
    """Return the names of the tests that were run, and of those that failed.

    Args:
        python: Interpreter of an environment with `PACKAGES`.
        swapped: True: with the saver and the memory of Lockstitch. False: with those of LangGraph.
        only: Names of tests. Empty: all.
    """
    folder = tests()
    files = sorted(str(path) for path in (folder / "tests").glob("*.py") if path.name.startswith(FILES))
    files = [f"tests/{name.split('.')[1]}.py::{name.split('.', 2)[2]}" for name in only] or files
    report = folder / f"{python.parents[1].name}-{'swapped' if swapped else 'own'}.xml"
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", SELECTED, f"--junitxml={report}"]
    command += ["-p", "frameworks.langgraph.swapped"] if swapped else []
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "NO_DOCKER": "true"}
    output = subprocess.run(
        [*command, *files], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if output.returncode not in (0, 1):
        raise RuntimeError(output.stdout[-5000:] + output.stderr[-5000:])
    cases = [*ElementTree.parse(report).iter("testcase")]
    names = {f"{case.get('classname')}.{case.get('name')}": case for case in cases if case.find("skipped") is None}
    failed = {name for name, case in names.items() if any(case.find(tag) is not None for tag in ("failure", "error"))}
    return set(names), failed
