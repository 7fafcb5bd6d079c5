"""`LockstitchSession` with versions of the SDK: the tests of the SDK, our tests with its runs, and the page."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

from frameworks.environments import FOLDER, ROOT, python_of
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
SOURCE: Final = "openai-agents==0.24.0"
VERSIONS = {"newest": ("openai-agents", *TOOLS), "pinned": (SOURCE, *TOOLS)}

MODULES: Final = (
    "memory",
    "sandbox/test_memory.py",
    "test_agent_runner.py",
    "test_agent_runner_streamed.py",
    "test_max_turns.py",
    "test_native_tool_failure_history.py",
    "test_programmatic_tool_calling.py",
    "test_run_impl_resume_paths.py",
    "test_soft_cancel.py",
    "test_tool_batch_failure_history.py",
    "test_tool_failure_boundaries.py",
)
"""Tests of the SDK that use `SQLiteSession`."""

TESTED_WITH: Final = (
    "openai-agents[encrypt,realtime,sqlalchemy,voice]==0.24.0",
    *TOOLS,
    *("aiosqlite", "fakeredis", "httpx", "pytest-mock", "pytest-timeout", "requests", "rich", "websockets"),
)

PRIVATE: Final = {
    "_insert_items": {
        "test_cancelled_suffix_transaction_settles_before_newer_append",
        "test_handoff_resume_after_cancelled_compaction_commits",
    },
    "_connections, _connections_lock, _lock, _locked_connection": {
        "test_settled_clear_failure_invalidates_response_chain",
        "test_settled_pop_failure_invalidates_response_chain",
        "test_sqlite_session_close_closes_worker_thread_connections",
        "test_sqlite_session_close_retries_quarantined_connection",
        "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
        "test_sqlite_session_file_lock_is_shared_across_instances",
        "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
        "test_sqlite_session_keeps_connections_of_live_worker_threads",
        "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
        "test_sqlite_session_pop_item_skips_corrupt_most_recent",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
        "test_sqlite_session_reaps_connections_from_exited_worker_threads",
        "test_sqlite_session_rollback_failure_evicts_connection",
    },
    "its tables": {
        "test_failed_encrypted_suffix_transaction_preserves_original_tokens",
        "test_sqlite_session_failed_add_items_releases_write_lock",
        "test_sqlite_session_failed_clear_session_rolls_back",
        "test_sqlite_session_failed_pop_item_releases_write_lock",
        "test_suffix_transaction_rolls_back_failed_insert",
    },
    # `LockstitchSession` replaces the items of a compaction in one commit. The tests wait for two calls.
    "no _atomic_replace_items": {
        "test_cancel_restore_waits_for_mutation_lock_before_newer_writes",
        "test_exception_restore_drains_when_compaction_is_cancelled",
    },
}
"""Tests that read private parts of `SQLiteSession`, by these parts."""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of an environment with a version of the SDK."""
    return python_of(f"openai-agents-{request.param}", VERSIONS[request.param])


def test_sessions_work_with_runs_of_the_sdk(python: Path) -> None:
    result = _pytest(python, "frameworks/openai_agents/sdk_suite.py")
    assert result.returncode == 0, result.stdout


def sources() -> Path:
    """Return the folder with the sources of the SDK and its tests."""
    folder = FOLDER / "openai-agents-source"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    if not folder.is_dir():
        subprocess.run([*download, SOURCE, "--dest", folder], check=True)
    (archive,) = folder.glob("*.tar.gz")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    if not unpacked.is_dir():
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return unpacked


def test_tests_of_the_sdk_fail_only_where_they_read_private_parts() -> None:
    python = python_of("openai-agents-tests", TESTED_WITH)
    modules = [f"tests/{module}" for module in MODULES]
    options = ["-q", "-p", "no:cacheprovider", "-p", "frameworks.openai_agents.swap", "--timeout", "90", "--tb=line"]
    result = subprocess.run(
        [python, "-m", "pytest", *options, *modules],
        cwd=sources(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None, result.stdout + result.stderr
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", result.stdout, re.MULTILINE))
    assert failed - set().union(*PRIVATE.values()) == set()
    assert int(passed[1]) >= 1350, result.stdout


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
