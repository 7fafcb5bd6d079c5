"""Real worker processes, read line by line and stopped by their pid."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.calling import begin

ROOT = Path(__file__).parents[2]


class Worker:
    """One process of `lockstitch worker --json`."""

    def __init__(
        self, url: str, *options: str, app: str = "tests.cli.crew:app", fresh: bool = False, **env: str
    ) -> None:
        arguments = ["worker", "--json", "--store", url, "--app", app, *options]
        self.process = begin(*arguments, cwd=ROOT, env=env, fresh=fresh)
        self.events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._listen)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.complaints.extend(self.process.stderr)

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [entry for entry in list(self.events) if {"event": event, **fields}.items() <= entry.items()]

    def until(self, event: str, number: int = 1, seconds: float = 60, **fields: Any) -> None:
        """Wait until the worker has printed `number` events of a kind."""
        wait_for(lambda: len(self.logged(event, **fields)) >= number, seconds, lambda: (self.events, self.complaints))

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def ended(self, seconds: float = 60) -> int:
        """Return the exit code. All output has been read by then."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.ended()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


@contextmanager
def working(*arguments: str, **more: Any) -> Iterator[Worker]:
    worker = Worker(*arguments, **more)
    try:
        yield worker
    finally:
        worker.close()


def wait_for(condition: Callable[[], object], seconds: float = 60, about: Callable[[], object] = str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, about()
        time.sleep(0.02)
