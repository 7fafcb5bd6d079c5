"""Agno: the tests of its repository for its SQLite database, the suite of this folder and the how-to."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from frameworks.environments import FOLDER, ROOT, python_of
from tests.docs.pages import DOCS, run_page

COMMON = ("genai-prices", "pytest", "pytest-asyncio", "sqlalchemy", "greenlet", "aiosqlite", "opentelemetry-sdk")
VERSIONS = {"newest": ("agno", *COMMON), "pinned": ("agno==3.1.10", *COMMON)}

REPOSITORY = "https://github.com/agno-agi/agno"
TAG = "v3.0.0a3"
TESTS = "libs/agno/tests/integration"

MISSING = ("test_scheduler.py", "test_service_accounts.py")
"""Tests of methods that `LockstitchDb` does not have."""

INTERNAL = {
    # They read and create the tables of Agno's database with SQL.
    *(
        f"test_db.py::{name}"
        for name in (
            "test_init_with_db_url",
            "test_create_session_table_integration",
            "test_create_metrics_table_with_constraints",
            "test_create_table_with_indexes",
            "test_get_table_with_create_table_if_not_found",
            "test_get_or_create_existing_table",
            "test_full_workflow",
        )
    ),
    "test_runs_fk_cascade.py::TestFkPragmaEnabled::test_foreign_keys_pragma_is_on",
    "test_runs_fk_cascade.py::TestFkCascadeDeletesRuns::test_raw_sql_delete_session_also_cascades",
    # It expects the words of an error of SQLite.
    "test_runs_fk_cascade.py::TestOrphanRunInsertRejected::test_insert_run_for_unknown_session_fails",
}
"""Tests of the tables of Agno's database."""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    return python_of(f"agno-{request.param}", VERSIONS[request.param])


def repository() -> Path | None:
    """Return a clone of Agno's repository that has the tag, or None."""
    if given := os.environ.get("LOCKSTITCH_AGNO_REPOSITORY"):
        return Path(given)
    clone = FOLDER / "agno-tests"
    subprocess.run(["git", "init", "--quiet", "--bare", clone], check=True)
    fetch = ["git", "-C", clone, "fetch", "--quiet", "--depth=1", REPOSITORY, f"refs/tags/{TAG}:refs/tags/{TAG}"]
    return None if subprocess.run(fetch, check=False).returncode else clone


def run_tests(python: Path, folder: Path, *arguments: str, **variables: str) -> tuple[str, int]:
    """Run pytest without the settings of this repository. Return its output and the number of tests that passed."""
    plain = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
    command = [python, "-m", "pytest", *plain, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", result.stdout)
    return result.stdout + result.stderr, int(passed[1]) if passed else 0


def test_agents_store_their_sessions_on_all_backends(python: Path, tmp_path: Path) -> None:
    output, passed = run_tests(python, tmp_path, str(ROOT / "frameworks/agno/suite.py"))
    assert passed == 23, output
    assert "failed" not in output, output


def test_tests_of_the_repository_fail_only_for_tables_and_missing_methods(python: Path, tmp_path: Path) -> None:
    clone = repository()
    if clone is None:
        pytest.skip("The repository of Agno cannot be reached. LOCKSTITCH_AGNO_REPOSITORY names a clone.")
    files = [f"{TESTS}/db/sqlite", f"{TESTS}/conftest.py"]
    archive = subprocess.run(["git", "-C", clone, "archive", TAG, *files], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", tmp_path], input=archive, check=True)
    conftest = tmp_path / TESTS / "conftest.py"
    # The driver of PostgreSQL that this import needs is not used by these tests.
    conftest.write_text(conftest.read_text().replace("from agno.db.postgres import PostgresDb", "PostgresDb = object"))
    arguments = ("-p", "frameworks.agno.swap", f"{TESTS}/db/sqlite")
    output, passed = run_tests(python, tmp_path, *arguments)
    names = re.findall(r"^(?:FAILED|ERROR) \S+/db/sqlite/(\S+)", output, re.MULTILINE)
    failures = {name for name in names if not name.startswith(MISSING)}
    assert failures <= INTERNAL, output
    assert passed + len(names) == 102, output


def test_page_does_what_it_says(python: Path, tmp_path: Path) -> None:
    run_page(DOCS / "howto/agno.md", tmp_path, PATH=os.pathsep.join([str(python.parent), os.environ["PATH"]]))
