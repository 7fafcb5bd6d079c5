"""`CrashDemo`: the script of `lockstitch demo`, with real processes that are killed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockstitch.cli.demo import shop
from lockstitch.errors import LockstitchError
from lockstitch.model import InDoubtWait, parse_waits

THREAD: Final = "order-4711"
PATIENCE: Final = 90.0
"""Seconds to wait until the model charges the card."""


class DemoFailed(LockstitchError):
    """A step of the demonstration had an unexpected result."""

    wire_name = "NotToldAsPlanned"


@dataclass
class CrashDemo:
    """One demonstration in its own folder. `quiet` suppresses all output."""

    folder: Path
    model: str | None
    quiet: bool

    @property
    def _bank(self) -> Path:
        return self.folder / "bank.jsonl"

    def run(self) -> dict[str, Any]:
        """Run the demonstration and return its facts. Raises `DemoFailed` if a step fails."""
        self._bank.touch()
        self._print("An agent settles an order. Every step is committed before the next one starts.")
        pid = self._kill_in_the_middle()
        self._print(
            f"kill -9 {pid}, while it charged the card. The bank has charged it, but its response never arrived.",
            "The record contains:",
        )
        self._show_unless_quiet("threads")
        self._print(
            "Another process resumes at once: the old one is known to be dead, so there is no lease to wait for.",
            "It repeats no recorded step. The tool `charge` must happen once, so the outcome is unknown and it asks:",
        )
        began = time.monotonic()
        self._show("resume", THREAD, code=4)
        seconds = time.monotonic() - began
        self._print("A person checks the account at the bank and settles the call. The thread continues:")
        for call in self._doubts():
            self._show("settle", THREAD, call, "--done", "charged 42 EUR, says the bank")
        self._print("The record: the messages, each step with its time and cost, and a check of the store:")
        turns = self._ask("history", THREAD)
        self._show_unless_quiet("history", THREAD)
        self._show_unless_quiet("log", str(turns[0]["run_id"]))
        self._show_unless_quiet("show", THREAD)
        self._show("doctor", "--verify")
        charges = self._charges()
        if charges != 1:
            raise DemoFailed(f"The card was charged {charges} times instead of once.")
        self._print(f"Killed during a payment, resumed after {seconds:.1f} s, and charged exactly once.")
        overview = self._ask("threads")[0]
        return {
            "ok": True,
            "thread_id": overview["id"],
            "model": self.model or "scripted",
            "charges": charges,
            "seconds_to_go_on": round(seconds, 3),
            "total_cost": overview["total_cost"],
        }

    def _kill_in_the_middle(self) -> int:
        command = ["run", "clerk", shop.QUESTION, "--thread", THREAD]
        self._prompt(command)
        with self._process(command, shop_seconds=PATIENCE) as process:
            try:
                until = time.monotonic() + PATIENCE
                while not self._charges():
                    if process.poll() is not None:
                        raise DemoFailed("The model finished without charging the card. Try again.")
                    if time.monotonic() > until:
                        raise DemoFailed(f"The model did not charge the card within {PATIENCE:.0f} seconds.")
                    time.sleep(0.02)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
            return process.pid

    def _doubts(self) -> list[str]:
        waits = parse_waits(self._ask("show", THREAD)["waiting_for"])
        return [str(wait.call_id) for wait in waits if isinstance(wait, InDoubtWait)]

    def _charges(self) -> int:
        return len(self._bank.read_text().splitlines())

    # Commands

    def _show(self, *command: str, code: int = 0) -> None:
        """Run a command as a user types it, and show its output. Raises if the exit code is not `code`."""
        self._prompt(command)
        with self._process(command) as process:
            try:
                if process.wait() != code:
                    raise DemoFailed(f"`lockstitch {shlex.join(command)}` exited with code {process.returncode}.")
            finally:
                # An interrupted demonstration must not leave a process that still writes.
                process.kill()

    def _show_unless_quiet(self, *command: str) -> None:
        """Show the output of a command that changes nothing. Skipped if `quiet`."""
        if not self.quiet:
            self._show(*command)

    def _ask(self, *command: str) -> Any:
        """Run a command with --json and return its result."""
        line = [*self._command(command), "--json"]
        done = subprocess.run(line, env=self._environment(), check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def _process(self, command: Sequence[str], shop_seconds: float = 0.0) -> "subprocess.Popen[bytes]":
        where = subprocess.DEVNULL if self.quiet else sys.stdout.fileno()
        environment = {**self._environment(), shop.SECONDS: str(shop_seconds)}
        return subprocess.Popen(self._command(command), env=environment, stdout=where, stderr=where)

    @staticmethod
    def _command(command: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "lockstitch", *command]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LOCKSTITCH_STORE": f"sqlite:////{str(self.folder).lstrip('/')}/shop.db",
            "LOCKSTITCH_APP": "lockstitch.cli.demo.shop:app",
            shop.BANK: str(self._bank),
            shop.MODEL: self.model or "",
        }

    # Output

    def _print(self, *lines: str) -> None:
        if not self.quiet:
            sys.stdout.write("\n" + "\n".join(f"# {line}" for line in lines) + "\n")
            sys.stdout.flush()

    def _prompt(self, command: Sequence[str]) -> None:
        if not self.quiet:
            sys.stdout.write(f"$ lockstitch {shlex.join(command)}\n")
            sys.stdout.flush()
