"""ADK: the session tests of its repository, the suite of this folder and the how-to, newest and pinned version."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from frameworks.environments import FOLDER, ROOT, python_of
from tests.docs.pages import DOCS, run_page

COMMON = ("genai-prices", "pytest", "pytest-asyncio")
VERSIONS = {"newest": ("google-adk", *COMMON), "pinned": ("google-adk==1.39.1", *COMMON)}

REPOSITORY = "https://github.com/google/adk-python"
COMMIT = "7c670f638bc17374ceb08740bdd057e55c9c2e12"
TESTS = "tests/unittests/sessions/test_session_service.py"
"""8 functions for two services: 16 tests. Newer versions of the file test internals of ADK's services."""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    return python_of(f"adk-{request.param}", VERSIONS[request.param])


def repository() -> Path | None:
    """Return a clone of ADK's repository that has the commit, or None."""
    if given := os.environ.get("LOCKSTITCH_ADK_REPOSITORY"):
        return Path(given)
    clone = FOLDER / "adk-tests"
    subprocess.run(["git", "init", "--quiet", "--bare", clone], check=True)
    fetch = ["git", "-C", clone, "fetch", "--quiet", "--depth=1", REPOSITORY, COMMIT]
    return None if subprocess.run(fetch, check=False).returncode else clone


def run_tests(python: Path, folder: Path, *arguments: str, **variables: str) -> tuple[str, int]:
    """Run pytest without the settings of this repository. Return its output and the number of tests that passed."""
    plain = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
    command = [python, "-m", "pytest", *plain, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", result.stdout)
    return result.stdout + result.stderr, int(passed[1]) if passed else 0


def test_agents_keep_their_sessions_on_all_backends(python: Path, tmp_path: Path) -> None:
    output, passed = run_tests(python, tmp_path, str(ROOT / "frameworks/adk/suite.py"))
    assert passed == 15, output
    assert "failed" not in output, output


def test_tests_of_the_repository_fail_only_where_adks_own_service_fails(python: Path, tmp_path: Path) -> None:
    clone = repository()
    if clone is None:
        pytest.skip("The repository of ADK cannot be reached. LOCKSTITCH_ADK_REPOSITORY names a clone.")
    text = subprocess.run(["git", "-C", clone, "show", f"{COMMIT}:{TESTS}"], capture_output=True, check=True).stdout
    (tmp_path / "test_session_service.py").write_bytes(text)
    failures: dict[str, set[str]] = {}
    for service in ("own", "lockstitch"):
        (tmp_path / service).mkdir()
        arguments = ("-p", "frameworks.adk.swap", "test_session_service.py")
        folder = str(tmp_path / service)
        output, passed = run_tests(python, tmp_path, *arguments, ADK_SERVICE=service, ADK_FOLDER=folder)
        failures[service] = {*re.findall(r"^FAILED (\S+)", output, re.MULTILINE)}
        assert passed + len(failures[service]) == 16, output
    assert failures["lockstitch"] <= failures["own"]
    assert len(failures["own"]) <= 4


def test_page_does_what_it_says(python: Path, tmp_path: Path) -> None:
    run_page(DOCS / "howto/adk.md", tmp_path, PATH=os.pathsep.join([str(python.parent), os.environ["PATH"]]))
