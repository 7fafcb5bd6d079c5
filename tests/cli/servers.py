"""Real server processes, stopped by their pid."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests.cli.calling import begin

ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """One process of `lockstitch serve` and its first output."""

    process: Popen[str]
    started: dict[str, Any]

    @property
    def url(self) -> str:
        return self.started["url"]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        os.kill(self.process.pid, number)
        return self.process.wait(60)


@contextmanager
def server(*options: str, port: int = 0, cwd: Path = ROOT, **env: str) -> Iterator[Server]:
    with begin("serve", "--json", "--port", str(port), *options, cwd=cwd, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                _, complaint = process.communicate(timeout=60)
                raise AssertionError(complaint)
            yield Server(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(60)
