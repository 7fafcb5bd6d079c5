"""A short chaos test: the record is correct, and the check detects a missing fence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def play(backend: str, seed: int = 7, unsafe: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LEDGER_PAUSE": "0.1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    environment.pop("LOCKSTITCH_UNSAFE", None)
    if unsafe:
        environment["LOCKSTITCH_UNSAFE"] = unsafe
    # If something must go wrong: more threads, until it goes wrong, and no wait for threads that never end.
    sizes = ["--seconds", "20", "--until-doubled", "--houses", "12", "--patience", "3", "--poison", "0"]
    if not unsafe:
        sizes = ["--seconds", "4", "--houses", "2", "--poison", "1"]
    sizes += ["--rounds", "0"]
    command = [sys.executable, "-m", "tests.chaos", "--backends", backend, "--seed", str(seed), *sizes]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.req("S3-035", "S3-036", "S3-037", "S3-026")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_loses_nothing_and_repeats_nothing(backend: str):
    process = play(backend)

    last = process.stdout.splitlines()[-1] if process.stdout else process.stderr
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]
    assert last.startswith("chaos: ")
    assert last.endswith(": unfinished 0, lost 0, doubled 0, forked 0, stale 0")
    kills, stops, restarts, full_disks = (int(part.split()[0]) for part in last.split(", ")[1:5])
    assert kills > 1
    assert stops > 0
    assert restarts + full_disks > 0


@pytest.mark.parametrize("unsafe", ["fence", "intent"])
def test_fails_without_safety(unsafe: str):
    # The time is short and processes are scheduled at random, so one detection in several plays is enough.
    for seed in range(7, 13):
        process = play("sqlite", seed, unsafe)
        if process.returncode == 1 and "doubled 0" not in process.stdout.splitlines()[-1]:
            return
    raise AssertionError(process.stdout)
