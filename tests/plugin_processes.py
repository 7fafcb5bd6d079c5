"""The option `--processes N`: run the tests in N processes that are forked after the collection.

The collection imports all tests and takes as long as hundreds of them. The processes share its result and its memory.
They get the tests of one module after another, so a fixture of a module is seldom set up twice. Modules of the folders
in `LONGEST` come first: a long test that starts last would keep one process busy after the end of the rest.

A test that runs for `LIMIT` seconds fails with the stacks of its threads and tasks, so that no run lasts forever.
"""

import asyncio
import atexit
import contextlib
import multiprocessing
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from itertools import groupby, pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import pytest

from tests.docs.warm import start_warm_commands

LONGEST = ("chaos", "crash", "docs", "examples", "benchmarks", "machine", "races", "hostile", "server", "apps")
"""Folders with tests that take seconds."""

MOST = 40
"""The highest number of tests that a process gets at once. The tests of a larger module are divided."""

LIMIT = 600.0
"""The most seconds that a test may take. The longest takes one minute on two processors without other load.

Python does not handle the alarm while a C function waits. Then `faulthandler_timeout` ends the process.
"""

CHECK_SECONDS = 10.0
"""Maximum seconds between two checks of the test processes."""

Share = list[int]
"""Indexes of consecutive tests of one module."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processes", type=int, default=0, metavar="N", help="run the tests in N processes; 0 uses this process"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    if not config.option.processes or config.option.collectonly or session.testsfailed:
        return None
    Distribution(session).run(config.option.processes)
    return True


def shares(session: pytest.Session) -> Iterator[Share]:
    """Yield all tests in the order in which processes get them."""
    root = session.config.rootpath / "tests"
    modules = [list(group) for _, group in groupby(range(len(session.items)), lambda index: session.items[index].path)]

    def order(module: Share) -> int:
        folder = next(iter(session.items[module[0]].path.relative_to(root).parts), "")
        return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)

    for module in sorted(modules, key=order) if session.items[0].path.is_relative_to(root) else modules:
        for start in range(0, len(module), MOST):
            yield module[start : start + MOST]


class Distribution:
    """Gives the tests of a session to processes and reports their results in this process."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._waiting = deque(shares(session))
        self._processes: dict[Connection, BaseProcess] = {}
        self._given: dict[Connection, deque[int]] = {}
        """The tests of a process that have not ended."""
        self._ended: dict[Connection, str] = {}
        """The last test of a process that has ended."""
        self._started = 0

    def run(self, processes: int) -> None:
        if len(self._waiting) > processes:
            start_warm_commands()  # once, instead of once per process
        try:
            for _ in range(processes):
                self._start()
            while self._processes:
                for connection in wait(list(self._processes), CHECK_SECONDS):
                    assert isinstance(connection, Connection)
                    self._receive(connection)
                self._end_lost()
        finally:
            for connection in self._processes:
                connection.close()
            for process in self._processes.values():
                process.join()

    def _start(self) -> None:
        # The first process creates the folder of all of them.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        ours, theirs = multiprocessing.Pipe()
        inherited = [ours, *self._processes]
        process = multiprocessing.get_context("fork").Process(
            target=_run, args=(self._session, theirs, inherited, self._started)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns: PyArrow has a thread
            process.start()
        theirs.close()
        self._started += 1
        self._processes[ours] = process
        self._given[ours] = deque()

    def _receive(self, connection: Connection) -> None:
        """Answer one message of a process: a report, or None if it asks for tests."""
        hook = self._session.config.hook
        try:
            message: dict[str, Any] | None = connection.recv()
        except (EOFError, OSError):
            self._end(connection)
            return
        if message is None:
            share = self._waiting.popleft() if self._waiting else []
            self._given[connection].extend(share)
            connection.send(share)
            return
        report: pytest.TestReport = hook.pytest_report_from_serializable(config=self._session.config, data=message)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            self._given[connection].popleft()
            self._ended[connection] = report.nodeid
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _end_lost(self) -> None:
        """End the processes that were killed. A process that they forked can keep the connection open."""
        for connection, process in list(self._processes.items()):
            if not process.is_alive() and not connection.poll():
                self._end(connection)

    def _end(self, connection: Connection) -> None:
        """Forget a process. If it has not ended its tests, the current one fails and a new process gets the rest."""
        process = self._processes.pop(connection)
        given = self._given.pop(connection)
        process.join()
        connection.close()
        if not given:
            return
        item = self._session.items[given.popleft()]
        # A test of another process, or the one before in this process, may have killed it.
        current = [self._session.items[tests[0]].nodeid for tests in self._given.values() if tests]
        self._waiting.appendleft(list(given))
        self._session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"The test process {process.pid} crashed with exit code {process.exitcode} in {item.nodeid}.\n"
                f"The last test that it ended: {self._ended.get(connection)}\nTests of the other processes: {current}",
                when="call",
                user_properties=item.user_properties,
            )
        )
        self._start()


def _run(session: pytest.Session, connection: Connection, inherited: list[Connection], number: int) -> None:
    """Run the tests that the first process sends, until it sends none."""
    for other in inherited:
        other.close()
    _separate(session.config, number)
    session.config.pluginmanager.register(_Reports(session.config, connection))
    session.config.pluginmanager.register(_Limit())
    items = session.items
    try:
        connection.send(None)
        share: Share = connection.recv()
        while share:
            for index, following in pairwise(share):
                session.config.hook.pytest_runtest_protocol(item=items[index], nextitem=items[following])
            # The next test decides which fixtures the last one tears down.
            connection.send(None)
            last, share = share[-1], connection.recv()
            session.config.hook.pytest_runtest_protocol(item=items[last], nextitem=items[share[0]] if share else None)
    except (EOFError, OSError, KeyboardInterrupt):
        session._setupstate.teardown_exact(None)
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not call them


def _separate(config: pytest.Config, number: int) -> None:
    """Give this process its own temporary folder and captured output, and leave reporting to the first process."""
    atexit._clear()
    for name in ("terminalreporter", "logxml", "requirement-proofs"):
        if (plugin := config.pluginmanager.get_plugin(name)) is not None:
            config.pluginmanager.unregister(plugin)
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(mode=0o700)
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture.is_globally_capturing():
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()


class _Reports:
    """Sends the reports of this process to the first one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


class _Limit:
    """Interrupts a test after `LIMIT` seconds. Its fixtures still end the processes that they started."""

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, self._interrupt)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, bool | None, bool | None]:
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"Thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(top)[-12:])}"
            for ident, top in sys._current_frames().items()
        ]
        with contextlib.suppress(RuntimeError):  # The test runs no event loop.
            stacks += [f"{task!r}\n{_stack(task.get_coro())}" for task in asyncio.all_tasks()]
        pytest.fail(f"The test ran for {LIMIT:g} seconds.\n\n" + "\n".join(stacks), pytrace=False)


def _stack(coroutine: Any) -> str:
    """Return the current lines of a coroutine and of those that it awaits."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n')
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "".join(lines)
