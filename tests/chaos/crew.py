"""The crew: worker processes that may be killed, stopped and started again at any moment.

They are forked off a process that has everything imported, so that a new one is there at once.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from lockstitch.runtime.worker import WorkerLoop
from lockstitch.store import open_store
from tests.chaos.house import app


@dataclass
class Crew:
    """So many workers on one store. Whoever is killed is replaced."""

    url: str
    log: Path
    size: int = 4
    concurrency: int = 8
    lease: float = 1.0
    members: list[int] = field(default_factory=list[int])
    stopped: dict[int, float] = field(default_factory=dict[int, float])
    """Processes that stand still, and when they go on."""

    def muster(self) -> None:
        """Replace those who have ended."""
        self.members = [pid for pid in self.members if not _ended(pid)]
        while len(self.members) < self.size:
            self.members.append(self._fork())

    def kill(self, pid: int) -> None:
        _signal(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.members.remove(pid)
        self.stopped.pop(pid, None)

    def stop(self, pid: int, seconds: float) -> None:
        _signal(pid, signal.SIGSTOP)
        self.stopped[pid] = time.monotonic() + seconds

    def wake(self, *, all_of_them: bool = False) -> None:
        """Let those go on whose time has come."""
        for pid, until in list(self.stopped.items()):
            if all_of_them or time.monotonic() >= until:
                _signal(pid, signal.SIGCONT)
                del self.stopped[pid]

    def dismiss(self) -> None:
        self.wake(all_of_them=True)
        for pid in list(self.members):
            self.kill(pid)

    @property
    def awake(self) -> list[int]:
        return [pid for pid in self.members if pid not in self.stopped]

    def _fork(self) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        # The parent's server must not be ended by this process, nor its tests be run on.
        code = 1
        try:
            with self.log.open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                logging.basicConfig(stream=log, format=f"%(asctime)s {os.getpid()} %(message)s", force=True)
                asyncio.run(self._work())
                code = 0
        except BaseException:  # whatever it is, it must not go back to where the parent goes on
            traceback.print_exc()
        finally:
            os._exit(code)

    async def _work(self) -> None:
        async with open_store(self.url) as store:
            loop = WorkerLoop(app, store, concurrency=self.concurrency, lease=self.lease, poll=0.3, reap=self.lease / 4)
            await loop.run()


def _ended(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
