"""Workers: the current process, and how to prove that a process is dead."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstitch.model import FakeClock, Worker, current_process, is_provably_dead
from lockstitch.model import worker as worker_module
from lockstitch.model.worker import boot_id, expired_on_host, host_clock, process_started

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.skipif(not boot_id(), reason="this system gives no proof of a process's death")


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """Start a child process that waits for the end of its standard input."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def worker_of(pid: int) -> Worker:
    return current_process(NOW).changed(pid=pid, process_started=process_started(pid))


def test_current_process_is_alive() -> None:
    worker = current_process(NOW, lease_seconds=7)

    assert worker.pid == os.getpid()
    assert worker.boot_id == boot_id()
    assert worker.process_started == process_started(os.getpid())
    assert (worker.lease_seconds, worker.started_at, worker.beat_at) == (7, NOW, NOW)
    assert not worker.dead
    assert not is_provably_dead(worker)


def test_every_start_has_new_worker_id() -> None:
    assert current_process(NOW).id != current_process(NOW).id


def test_killed_process_is_provably_dead() -> None:
    with sleeping() as child:
        worker = worker_of(child.pid)
        assert not is_provably_dead(worker)

        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # Its exit status has not been read yet: a zombie does nothing.
        assert process_started(child.pid) is None
        assert is_provably_dead(worker)

        child.wait()
        assert is_provably_dead(worker)


def test_stopped_process_is_not_dead() -> None:
    with sleeping() as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)

        assert not is_provably_dead(worker_of(child.pid))


def test_process_with_reused_pid_is_not_the_worker() -> None:
    started = process_started(os.getpid())
    assert started is not None
    former = current_process(NOW).changed(process_started=str(int(started) - 1))

    assert is_provably_dead(former)


def test_worker_of_another_boot_is_not_provably_dead() -> None:
    """Another machine may have the same name. In a store of one host, the lease of such a worker has expired."""
    elsewhere = current_process(NOW).changed(boot_id="00000000-0000-0000-0000-000000000000", uptime=5.0)

    assert not is_provably_dead(elsewhere)
    assert expired_on_host(elsewhere, NOW, host_clock(FakeClock(NOW)))


@pytest.mark.parametrize("name", ["pid_namespace", "time_namespace"])
@pytest.mark.parametrize("other", ["", "pid:[1]"])
def test_worker_of_another_namespace_is_not_provably_dead(name: str, other: str) -> None:
    """The same pid is another process there, and the same process has another start time."""
    dead_process = current_process(NOW).changed(pid=2**22 + 1, process_started="1")
    assert is_provably_dead(dead_process)

    assert not is_provably_dead(dead_process.changed(**{name: other}))


def test_hidden_process_is_not_provably_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may be mounted so that the processes of other users do not appear."""
    with sleeping() as child:
        worker = worker_of(child.pid)
        monkeypatch.setattr(
            worker_module, "Path", lambda path: Path("/nowhere") if str(child.pid) in path else Path(path)
        )

        assert process_started(child.pid) is None
        assert not is_provably_dead(worker)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root makes a PID namespace")
def test_worker_is_not_provably_dead_when_proc_shows_another_namespace() -> None:
    """The pid of the worker is that of another process in this /proc. The end of that process proves nothing."""
    code = "from lockstitch.model.worker import namespace; print(repr(namespace('pid')))"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if not process.stdout:
        pytest.skip("this machine does not let root make a PID namespace")

    assert process.stdout.strip() == "''"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root makes a PID namespace")
def test_workers_of_two_pid_namespaces_do_not_declare_each_other_dead() -> None:
    """Like two pods with hostNetwork: one host name, one boot, two PID namespaces."""
    code = (
        "import sys; from datetime import datetime, UTC; "
        "from lockstitch.model import Worker, provably_dead, this_process; "
        "print(this_process(datetime.now(UTC)).model_dump_json(), flush=True); "
        "print(provably_dead(Worker.model_validate_json(sys.stdin.readline())), flush=True); input()"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", code]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            pytest.skip("this machine does not let root make a PID namespace")
        inside = Worker.model_validate_json(line)
        outside = current_process(datetime.now(UTC))
        assert (inside.host, inside.boot_id) == (outside.host, outside.boot_id)
        assert inside.pid_namespace != outside.pid_namespace
        # Its pid is 1 here too, but that is another process.
        assert inside.pid != child.pid
        child.stdin.write(outside.model_dump_json() + "\n")
        child.stdin.flush()

        assert child.stdout.readline().strip() == "False"
        assert not is_provably_dead(inside)
    finally:
        child.kill()
        child.communicate()


def test_worker_of_another_host_is_not_provably_dead() -> None:
    elsewhere = current_process(NOW).changed(host="elsewhere.example", pid=2**22 + 1, process_started="1")

    assert not is_provably_dead(elsewhere)
    assert not is_provably_dead(elsewhere.changed(boot_id="another boot"))


def test_worker_without_boot_id_is_not_provably_dead() -> None:
    assert not is_provably_dead(current_process(NOW).changed(boot_id="", pid=2**22 + 1))


def test_unused_pid_has_no_start_time() -> None:
    assert process_started(2**22 + 1) is None


def test_start_time_is_read_when_command_contains_brackets() -> None:
    code = "open('/proc/self/comm', 'w').write('a) Z 1 (b'); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        before = worker_of(child.pid)
        child.stdout.readline()
        assert not is_provably_dead(before)
    finally:
        child.kill()
        child.communicate()
