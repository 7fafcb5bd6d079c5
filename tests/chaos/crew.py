"""The crew: worker processes that are killed, stopped and started again at any moment, and lose their store.

They are forked from a process that has imported everything, so that a new one starts at once. Half of them have a short
lease, which they lose when they are stopped or the store is unreachable. The other half keep their lease: no
worker may take the threads that they hold after an outage.
"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lockstitch.backends.postgres import pool
from lockstitch.engine import worker
from lockstitch.engine.worker import WorkerLoop
from lockstitch.store import open_store
from lockstitch.store.writes import writer
from tests.chaos.scenario import app

LONG_LEASE = 12.0
"""Seconds: longer than any outage here."""

WAITS = 0.5
"""Seconds that a worker waits for an unreachable store, so that a short outage has the effects of a long one."""


@dataclass
class Crew:
    """A number of workers on one store. Killed workers are replaced."""

    url: str
    log: Path
    size: int = 4
    concurrency: int = 8
    lease: float = 1.0
    members: list[int] = field(default_factory=list[int])
    patient: set[int] = field(default_factory=set[int])
    """Processes with a long lease."""
    stopped: dict[int, float] = field(default_factory=dict[int, float])
    """Stopped processes, and when they continue."""

    def muster(self) -> None:
        """Replace the workers that have ended."""
        self.members = [pid for pid in self.members if not _ended(pid)]
        self.patient.intersection_update(self.members)
        while len(self.members) < self.size:
            patient = len(self.patient) < self.size // 2
            pid = self._fork(LONG_LEASE if patient else self.lease)
            self.members.append(pid)
            if patient:
                self.patient.add(pid)

    def kill(self, pid: int) -> None:
        _signal(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.members.remove(pid)
        self.stopped.pop(pid, None)

    def stop(self, pid: int, seconds: float) -> None:
        _signal(pid, signal.SIGSTOP)
        self.stopped[pid] = time.monotonic() + seconds

    def wake(self, *, all_of_them: bool = False) -> None:
        """Continue the stopped workers that are due."""
        for pid, until in list(self.stopped.items()):
            if all_of_them or time.monotonic() >= until:
                _signal(pid, signal.SIGCONT)
                del self.stopped[pid]

    @contextlib.contextmanager
    def disk_full(self) -> Iterator[None]:
        """Make every write of a worker to a file fail, as on a full disk, while this context is open."""
        for pid in self.members:
            _limit_files(pid, 0)
        try:
            yield
        finally:
            for pid in self.members:
                _limit_files(pid, resource.RLIM_INFINITY)

    def dismiss(self) -> None:
        self.wake(all_of_them=True)
        for pid in list(self.members):
            self.kill(pid)

    @property
    def awake(self) -> list[int]:
        return [pid for pid in self.members if pid not in self.stopped]

    @property
    def stoppable(self) -> list[int]:
        """The workers that lose their lease when they are stopped for a while."""
        return [pid for pid in self.awake if pid not in self.patient]

    def _fork(self, lease: float) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        # This process must neither end the parent's server nor continue the parent's tests.
        code = 1
        try:
            with self.log.open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                logging.basicConfig(stream=log, format=f"%(asctime)s {os.getpid()} %(message)s", force=True)
                asyncio.run(self._work(lease))
                code = 0
        except BaseException:  # an error must not continue the code of the parent
            traceback.print_exc()
        finally:
            os._exit(code)

    async def _work(self, lease: float) -> None:
        pool.PATIENCE = writer.OUTCOME_TIMEOUT = worker.RETRY_AFTER_SECONDS = WAITS
        async with open_store(self.url) as store:
            # All periods are scaled with the short lease.
            often = {"poll": 0.3, "reap": self.lease / 4, "alone": self.lease, "drain": self.lease / 6}
            loop = WorkerLoop(app, store, concurrency=self.concurrency, lease=lease, **often)
            await loop.run()


def _ended(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def _limit_files(pid: int, size: int) -> None:
    """Limit the size of files that a process writes."""
    with contextlib.suppress(ProcessLookupError):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
