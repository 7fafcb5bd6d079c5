"""Twenty kills per backend; `make crash` does two hundred."""

import os
import subprocess
import sys

import pytest

from tests.races.processes import ROOT

KILLS = 20


def crash(*arguments: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which forks: a test process has threads and must not."""
    code = (
        "import sys; from tests.crash.killing import kill; toll = kill(sys.argv[1], int(sys.argv[2]));"
        "print(toll); sys.exit(not toll.ok)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, url, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.req("S0-089", "S3-031")
def test_nothing_acknowledged_is_lost_or_half_there(store_url: str) -> None:
    done = crash(str(KILLS), url=store_url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kills={KILLS}" in done.stdout
    assert "lost=0, repeated=0" in done.stdout


def test_without_the_fence_it_fails(store_url: str) -> None:
    """A check that could not fail would prove nothing."""
    done = crash("1", url=store_url, LOCKSTITCH_UNSAFE="fence")
    assert done.returncode == 1
    assert "repeated=5" in done.stdout, done.stdout + done.stderr
