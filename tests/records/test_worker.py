"""Workers: a process of this host, and how to know that it is dead."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from lockstitch.records import Worker, provably_dead, this_process
from lockstitch.records.worker import boot_id, process_started

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.skipif(not boot_id(), reason="this system gives no proof of a process's death")


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A child process that only waits for its standard input to end."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def worker_of(pid: int) -> Worker:
    return this_process(NOW).changed(pid=pid, process_started=process_started(pid))


def test_this_process_is_described_and_lives() -> None:
    worker = this_process(NOW, lease_seconds=7)

    assert worker.pid == os.getpid()
    assert worker.boot_id == boot_id()
    assert worker.process_started == process_started(os.getpid())
    assert (worker.lease_seconds, worker.started_at, worker.beat_at) == (7, NOW, NOW)
    assert not worker.dead
    assert not provably_dead(worker)


def test_every_start_is_a_worker_of_its_own() -> None:
    assert this_process(NOW).id != this_process(NOW).id


def test_a_killed_process_is_provably_dead() -> None:
    with sleeping() as child:
        worker = worker_of(child.pid)
        assert not provably_dead(worker)

        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # Nobody has fetched its exit status yet: a zombie does nothing any more.
        assert process_started(child.pid) is None
        assert provably_dead(worker)

        child.wait()
        assert provably_dead(worker)


def test_a_stopped_process_is_not_dead() -> None:
    with sleeping() as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)

        assert not provably_dead(worker_of(child.pid))


def test_another_process_with_the_same_pid_is_not_the_worker() -> None:
    started = process_started(os.getpid())
    assert started is not None
    former = this_process(NOW).changed(process_started=str(int(started) - 1))

    assert provably_dead(former)


def test_a_process_of_an_earlier_boot_is_dead() -> None:
    assert provably_dead(this_process(NOW).changed(boot_id="00000000-0000-0000-0000-000000000000"))


def test_nothing_is_provable_about_another_host() -> None:
    elsewhere = this_process(NOW).changed(host="elsewhere.example", pid=2**22 + 1, process_started="1")

    assert not provably_dead(elsewhere)
    assert not provably_dead(elsewhere.changed(boot_id="another boot"))


def test_nothing_is_provable_without_a_boot_id() -> None:
    assert not provably_dead(this_process(NOW).changed(boot_id="", pid=2**22 + 1))


def test_a_pid_that_nobody_has_has_no_start() -> None:
    assert process_started(2**22 + 1) is None


def test_a_command_with_brackets_in_its_name_does_not_confuse() -> None:
    code = "open('/proc/self/comm', 'w').write('a) Z 1 (b'); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        before = worker_of(child.pid)
        child.stdout.readline()
        assert not provably_dead(before)
    finally:
        child.kill()
        child.communicate()
