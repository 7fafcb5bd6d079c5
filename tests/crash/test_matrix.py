"""Killing the runtime at named points: a spread of them per backend; `make crash` takes them all."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.matrix import PLAYS, spread
from tests.races.processes import ROOT
from tests.servers import Databases

POINTS = {"errand": 8, "teamwork": 5}


@pytest.fixture
def fresh_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes the URLs of fresh stores of the backend at hand."""
    made: list[str] = []
    databases: Databases | None = None
    if backend == "postgres":
        databases = request.getfixturevalue("databases")

    def fresh() -> str:
        if databases is not None:
            made.append(databases.take())
            return made[-1]
        made.append("")
        place = tmp_path / f"store-{len(made)}"
        return f"sqlite:///{place}.db" if backend == "sqlite" else f"file://{place}"

    yield fresh
    for url in made if databases is not None else ():
        assert databases is not None
        databases.give_back(url)


def crash(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which forks: a test process has threads and must not."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.req("S0-051")
@pytest.mark.parametrize("play", PLAYS)
def test_a_run_that_is_killed_comes_to_the_same_end(play: str, fresh_url: Callable[[], str], tmp_path: Path):
    urls = [fresh_url() for _ in range(POINTS[play] + 1)]
    done = crash("tests.crash.matrix", play, str(tmp_path / "killed"), *urls)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.match(rf"{POINTS[play]} points: lost 0, repeated 0, in doubt (\d+)\n", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) >= 2, "no tool that may run once was cut"


@pytest.mark.parametrize("play", PLAYS)
def test_without_the_mark_of_what_was_begun_it_fails(play: str, tmp_path: Path):
    """A check that could not fail would prove nothing."""
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(6)]
    done = crash("tests.crash.matrix", play, str(tmp_path / "killed"), *urls, LOCKSTITCH_UNSAFE="intent")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "happened 2 times" in done.stdout


@pytest.mark.parametrize(("safety", "code"), [("", 0), ("intent", 1), ("fence", 1)])
def test_the_last_line_says_how_it_went(safety: str, code: int):
    sizes = ("--kills", "1", "--rounds", "5", "--points", "6", "--backends", "sqlite", "--seed", "1")
    done = crash("tests.crash", *sizes, LOCKSTITCH_UNSAFE=safety)
    assert done.returncode == code, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"crash: 13 points x 1 backends: lost (\d+), repeated (\d+), in doubt (\d+)", last)
    assert found is not None, last
    assert (found[1], found[2]) == ("0", "0") or code == 1


def test_a_spread_has_what_matters():
    points = [f"{name}.{when}:{n}" for n in range(1, 20) for name in ("append", "tool") for when in ("before", "after")]
    chosen = spread(points, POINTS["errand"], PLAYS["errand"].mattering)
    assert len(chosen) == POINTS["errand"]
    assert {"tool.before:2", "tool.after:2"} < set(chosen)
