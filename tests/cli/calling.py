"""Call the command line: in this process where that is enough, otherwise as a real process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.cli import entry
from tests.docs.warm import warm_commands

SOURCE = str(Path(lockstitch.__file__).parents[1])


@dataclass(frozen=True)
class CommandResult:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


Call = Callable[..., CommandResult]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `lockstitch` in this process."""
    monkeypatch.delenv("LOCKSTITCH_STORE", raising=False)
    monkeypatch.delenv("LOCKSTITCH_APP", raising=False)

    def called(*arguments: str) -> CommandResult:
        capsys.readouterr()
        code = entry.run(arguments)
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return called


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process, extended so that `python -m lockstitch` finds the package."""
    return {**os.environ, "PYTHONPATH": SOURCE, **more}


def begin(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, fresh: bool = False, **how: Any
) -> subprocess.Popen[str]:
    """Start a real process.

    It is forked from a loaded interpreter. Its pid is that of a script, which forwards SIGHUP, SIGINT and SIGTERM. If
    the script is killed, the process is killed too. `fresh` starts a new interpreter instead.
    """
    command = [sys.executable, "-m", "lockstitch"] if fresh else [str(warm_commands() / "lockstitch")]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(
        [*command, *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        text=True,
        **{**streams, **how},
    )


def run(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, **how: Any) -> CommandResult:
    """Run a real process to its end."""
    with begin(*arguments, cwd=cwd, env=env, **how) as process:
        out, err = process.communicate(timeout=120)
        return CommandResult(process.returncode, out or "", err or "")
