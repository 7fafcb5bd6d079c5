"""Dozens of real processes, forked from one warm interpreter, so that fifty cost little more than one.

    results = run("tests.races.writers:append_once", [[url, thread_id]] * 50)

Each call has a separate process. A job is an async function with a gate as its first argument: it prepares itself,
passes the gate, and races. The gate opens when all jobs have reached it, and closes behind them, so that every round of
a race has a common start.

    result = call("tests.crash.killing:killed", url, 20)

runs in one separate process with a single OS thread, for a function that forks. The warm interpreter starts at first
use and lives as long as the process that started it.
"""

import asyncio
import atexit
import importlib
import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, BinaryIO

from lockstitch.store import open_store
from tests import faults

ROOT = Path(__file__).parents[2]

Gate = Callable[[], None]


def run(
    job: str,
    calls: Sequence[Sequence[Any]],
    *,
    seconds: float = 90.0,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """Return the JSON result of each call of `module:function`. Raises the first error here."""
    arguments = [list(call) for call in calls]
    outcomes = call("tests.races.processes:race", job, arguments, seconds=seconds, environment=environment)
    problems = [outcome["error"] for outcome in outcomes if "error" in outcome]
    if problems:
        raise RuntimeError(f"{len(problems)} of {len(outcomes)} failed:\n{problems[0]}")
    return [outcome["result"] for outcome in outcomes]


def call(function: str, *arguments: Any, seconds: float = 90.0, environment: Mapping[str, str] | None = None) -> Any:
    """Return the JSON result of `module:function`, executed in a separate process. Raises its error here."""
    order = {"function": function, "arguments": arguments, "environment": {**os.environ, **(environment or {})}}
    (order_pipe, ordering), (answer, answering) = os.pipe(), os.pipe()
    with os.fdopen(answer, "rb") as reading:
        with os.fdopen(ordering, "wb") as writing:
            # The child has both ends now. The end of the response is visible once no process has it open.
            socket.send_fds(_warm(), [b"!"], [order_pipe, answering])
            os.close(order_pipe)
            os.close(answering)
            writing.write(json.dumps(order).encode())
        value = _until_it_ends(reading, time.monotonic() + seconds)
    pid, _, response = value.partition(b"\n")
    if not response:
        # This process created the group: the child and the processes that the child forked.
        with suppress(ValueError, ProcessLookupError):
            os.killpg(int(pid), signal.SIGKILL)
        raise TimeoutError(f"{function} {arguments[:1]} did not finish within {seconds:g} s, or died without output")
    outcome = json.loads(response)
    if "error" in outcome:
        raise RuntimeError(outcome["error"])
    return outcome["result"]


def _until_it_ends(reading: BinaryIO, deadline: float) -> bytes:
    value = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reading.fileno(), 65536)
        if not part:
            break
        value += part
    return value


@cache
def _warm() -> socket.socket:
    """Return the socket of the warm interpreter, which ends with the socket, at the latest with this process."""
    own_socket, child_socket = socket.socketpair()
    with child_socket:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.races.processes", str(child_socket.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[child_socket.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        own_socket.close()
        process.wait()

    atexit.register(end)
    return own_socket


def main() -> None:
    """Fork a child for every request, until the requesting process has ended."""
    # A store loads much when it is opened for the first time. Load it here, so that no child has to.
    importlib.import_module("lockstitch.backends.postgres.backend")
    with tempfile.TemporaryDirectory(prefix="lockstitch-warm-") as folder:
        for url in (f"file://{folder}/store", f"sqlite:///{folder}/store.db"):
            asyncio.run(_claim_once(url))
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while True:
            _, values, _, _ = socket.recv_fds(orders, 1, 2)
            if not values:
                return
            order_pipe, answering = values
            with os.fdopen(order_pipe, "rb") as reading:
                order = json.load(reading)
            with suppress(Exception):
                # For any error: the child raises it again and reports it.
                importlib.import_module(order["function"].partition(":")[0])
            if os.fork() == 0:
                orders.close()
                _answer(order, answering)
                return
            os.close(answering)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


async def _claim_once(url: str) -> None:
    async with open_store(url) as store:
        await store.claim(await store.create())


def _answer(order: dict[str, Any], answering: int) -> None:
    os.setsid()
    os.write(answering, f"{os.getpid()}\n".encode())
    os.environ.clear()
    os.environ.update(order["environment"])
    faults.install()
    try:
        module, _, name = order["function"].partition(":")
        outcome = {"result": getattr(importlib.import_module(module), name)(*order["arguments"])}
    except BaseException:
        outcome = {"error": traceback.format_exc()}
    with os.fdopen(answering, "wb") as pipe:
        pipe.write(json.dumps(outcome).encode())


def race(name: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
    """Execute every call in a separate process and return the results."""
    module, _, function = name.partition(":")
    job = getattr(importlib.import_module(module), function)
    # Created before the forks, which inherit it.
    barrier = multiprocessing.get_context("fork").Barrier(len(calls))
    children: list[tuple[int, BinaryIO]] = []
    for arguments in calls:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(job, arguments, barrier, writing)
        os.close(writing)
        children.append((pid, os.fdopen(reading, "rb")))
    outcomes = [json.loads(pipe.read() or b'{"error": "it died without output"}') for _, pipe in children]
    for pid, _ in children:
        os.waitpid(pid, 0)
    return outcomes


def _work(job: Any, arguments: Sequence[Any], barrier: Barrier, writing: int) -> None:
    def gate() -> None:
        with suppress(BrokenBarrierError):
            barrier.wait()

    try:
        outcome = {"result": asyncio.run(job(gate, *arguments))}
    except BaseException:
        outcome = {"error": traceback.format_exc()}
        # A process that fails before the gate must not block other processes.
        barrier.abort()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(outcome).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
