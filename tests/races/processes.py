"""Real processes by the dozen, forked from one warm interpreter, so that fifty cost little more than one.

    results = run("tests.races.writers:append_once", [[url, thread_id]] * 50)

Each gets a process of its own. A job is an async function whose first argument is a gate: it prepares itself, passes
the gate, and races. The gate opens when all have come to it, and closes behind them, so that every round of a race
can have its own start.
"""

import asyncio
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, BinaryIO

ROOT = Path(__file__).parents[2]

Gate = Callable[[], None]


def run(
    job: str,
    calls: Sequence[Sequence[Any]],
    *,
    seconds: float = 90.0,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """What each call of `module:function` returned, as JSON. An error in any of them is raised here."""
    order = json.dumps({"job": job, "calls": [list(arguments) for arguments in calls]})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.races.processes"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        answer, _ = process.communicate(order, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{job} was not done after {seconds:g} s") from None
    finally:
        # The group is of this process's own making: the interpreter and what it forked.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    outcomes = json.loads(answer)
    problems = [outcome["error"] for outcome in outcomes if "error" in outcome]
    if problems:
        raise RuntimeError(f"{len(problems)} of {len(outcomes)} failed:\n{problems[0]}")
    return [outcome["result"] for outcome in outcomes]


def main() -> None:
    order = json.load(sys.stdin)
    module, _, name = order["job"].partition(":")
    job = getattr(importlib.import_module(module), name)
    # A store loads its backend when it is opened; here that is once, and not again in each of them.
    for backend in ("files", "sqlite", "postgres"):
        importlib.import_module(f"lockstitch.backends.{backend}.backend")
    # Made before the forks, and inherited by them.
    barrier = multiprocessing.get_context("fork").Barrier(len(order["calls"]))
    children: list[tuple[int, BinaryIO]] = []
    for arguments in order["calls"]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(job, arguments, barrier, writing)
        os.close(writing)
        children.append((pid, os.fdopen(reading, "rb")))
    outcomes = [json.loads(pipe.read() or b'{"error": "it died without a word"}') for _, pipe in children]
    for pid, _ in children:
        os.waitpid(pid, 0)
    json.dump(outcomes, sys.stdout)


def _work(job: Any, arguments: list[Any], barrier: Barrier, writing: int) -> None:
    def gate() -> None:
        with suppress(BrokenBarrierError):
            barrier.wait()

    try:
        outcome = {"result": asyncio.run(job(gate, *arguments))}
    except BaseException:
        outcome = {"error": traceback.format_exc()}
        # One that fails on its way to the gate must not keep the others waiting.
        barrier.abort()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(outcome).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
