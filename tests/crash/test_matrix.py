"""Kill the engine at named points: a selection of them per backend. `make crash` uses all."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.matrix import PLAYS, spread
from tests.races.processes import ROOT, call
from tests.servers import Databases

POINTS = {"errand": 6, "teamwork": 5, "chat": 6, "cancelling": 4}


@pytest.fixture
def fresh_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Return a function that creates URLs of new stores of the current backend."""
    urls: list[str] = []
    databases: Databases | None = None
    if backend == "postgres":
        databases = request.getfixturevalue("databases")

    def fresh() -> str:
        if databases is not None:
            urls.append(databases.take())
            return urls[-1]
        urls.append("")
        place = tmp_path / f"store-{len(urls)}"
        return f"sqlite:///{place}.db" if backend == "sqlite" else f"file://{place}"

    yield fresh
    for url in urls if databases is not None else ():
        assert databases is not None
        databases.give_back(url)


@pytest.mark.req("S0-051")
@pytest.mark.parametrize("play", PLAYS)
def test_killed_run_reaches_same_end(play: str, fresh_url: Callable[[], str], tmp_path: Path):
    urls = [fresh_url() for _ in range(POINTS[play] + 1)]
    # In a separate process, which forks: a test process has threads and must not fork.
    reply = call("tests.crash.matrix:killed", play, str(tmp_path / "killed"), urls, seconds=300)
    verdict = re.fullmatch(rf"{POINTS[play]} points: lost 0, repeated 0, in doubt (\d+)", reply)
    assert verdict is not None, reply
    assert int(verdict[1]) >= 2, "no tool that may run once was cut"


def crash(*arguments: str, safety: str = "") -> tuple[int, list[str]]:
    """Return the exit code and the output of `make crash` with one kill of a writer on SQLite."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash", "--kills", "1", "--backends", "sqlite", "--seed", "1", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOCKSTITCH_UNSAFE": safety},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.stdout, process.stderr
    return process.returncode, process.stdout.splitlines()


def test_last_line_contains_verdict():
    code, output = crash("--rounds", "5", "--points", "4", "--plays", "cancelling")
    assert code == 0, output
    assert re.fullmatch(r"crash: 5 points x 1 backends: lost 0, repeated 0, in doubt \d+", output[-1]), output


@pytest.mark.parametrize(
    ("play", "point"),
    {
        "errand": "tool.after:2",
        "teamwork": "tool.after:3",
        "chat": "tool.after:2",
        "cancelling": "tool.before:2",
    }.items(),
)
def test_matrix_fails_without_started_entries(play: str, point: str, tmp_path: Path):
    """A check that cannot fail would prove nothing: each play detects that an effect happened twice."""
    urls = [f"sqlite:///{tmp_path / name}.db" for name in ("whole", "killed")]
    unsafe = {"LOCKSTITCH_UNSAFE": "intent"}
    reply = call("tests.crash.matrix:killed", play, str(tmp_path / "killed"), urls, [point], environment=unsafe)
    assert re.search(rf"^1 points: lost 0, repeated 1, in doubt 0\n  {point}: charge .*happened 2 times$", reply), reply


def test_matrix_fails_without_fence():
    code, output = crash("--rounds", "0", "--plays", safety="fence")
    assert code == 1, output
    assert output[-1] == "crash: 1 points x 1 backends: lost 0, repeated 5, in doubt 0"


def test_spread_contains_important_points():
    points = [f"{name}.{when}:{n}" for n in range(1, 20) for name in ("append", "tool") for when in ("before", "after")]
    chosen = spread(points, POINTS["errand"], PLAYS["errand"].important)
    assert len(chosen) == POINTS["errand"]
    assert {"tool.before:2", "tool.after:2"} < set(chosen)
